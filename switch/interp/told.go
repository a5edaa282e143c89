package interp

import "github.com/netcraq/netcraq/switch/bmv2json"

// toldOp is an extraction that is told of. As in BMv2 that is before it is known whether the packet
// has as many bytes.
func (c *compiler) toldOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	if !c.obs.tells() ||
		o.Kind != bmv2json.ParserExtract && o.Kind != bmv2json.ParserExtractVL {
		return op
	}
	obs := c.obs
	if o.Header != nil {
		return func(st *state) uint64 {
			obs.event(st, EventParserExtract, o.Header.ID, 0)
			return op(st)
		}
	}
	at, ids := c.nextHeaders(o, func(h *bmv2json.Header) int { return h.ID })
	return func(st *state) uint64 {
		if n := st.next[at]; n < len(ids) {
			obs.event(st, EventParserExtract, ids[n], 0)
		}
		return op(st)
	}
}

func (c *compiler) toldCondition(cd *bmv2json.Conditional, cond boolFn) boolFn {
	if !c.obs.tells() {
		return cond
	}
	obs := c.obs
	return func(st *state) bool {
		yes := cond(st)
		value := 0
		if yes {
			value = 1
		}
		obs.event(st, EventCondition, cd.ID, value)
		return yes
	}
}

func (c *compiler) tracedCondition(cd *bmv2json.Conditional, cond boolFn) boolFn {
	obs := c.obs
	if !obs.traces() {
		return cond
	}
	return func(st *state) bool {
		yes := cond(st)
		obs.trace("%s Condition (%s) is %t", cd.Source, cd.Name, yes)
		return yes
	}
}

func (c *compiler) tracedPrimitive(p *bmv2json.Primitive, do doFn) doFn {
	obs := c.obs
	if !obs.traces() {
		return do
	}
	what := p.Source
	if what == "" {
		what = p.Op
	}
	return func(st *state) {
		obs.trace("Primitive %s", what)
		do(st)
	}
}

func (c *compiler) tracedOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	obs := c.obs
	if !obs.traces() {
		return op
	}
	what := map[bmv2json.ParserOpKind]string{bmv2json.ParserSet: "set",
		bmv2json.ParserVerify: "verify", bmv2json.ParserAdvance: "advance",
		bmv2json.ParserPrimitive: "primitive"}[o.Kind]
	if what == "" {
		what = "extract"
		switch {
		case o.Header != nil:
			what += " '" + o.Header.Name + "'"
		case o.Stack != nil:
			what += " the next of '" + o.Stack.Name + "'"
		}
	}
	return func(st *state) uint64 {
		err := op(st)
		if err != noError {
			obs.trace("Parser: %s stops with error %d", what, err)
		} else {
			obs.trace("Parser: %s, at byte %d", what, st.pos)
		}
		return err
	}
}
