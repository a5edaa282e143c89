package reference

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
)

// The functions of this file compile statements that also report to the observer.

// toldOp wraps an extraction so that it is reported to the listener. As in BMv2, the report comes
// before it is known whether the packet is long enough.
func (c *Compiler) toldOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	if !c.Observer.HasListener() ||
		o.Kind != bmv2json.ParserExtract && o.Kind != bmv2json.ParserExtractVL {
		return op
	}
	obs := c.Observer
	if o.Header != nil {
		return func(st *packet.State) uint64 {
			obs.Event(st, packetevents.ParserExtract, o.Header.ID, 0)
			return op(st)
		}
	}
	at, ids := c.nextHeaders(o, func(h *bmv2json.Header) int { return h.ID })
	return func(st *packet.State) uint64 {
		if n := st.StackCounters[at]; n < len(ids) {
			obs.Event(st, packetevents.ParserExtract, ids[n], 0)
		}
		return op(st)
	}
}

// toldCondition wraps a condition so that its value is reported to the listener.
func (c *Compiler) toldCondition(cd *bmv2json.Conditional, cond expression.Condition) expression.Condition {
	if !c.Observer.HasListener() {
		return cond
	}
	obs := c.Observer
	return func(st *packet.State) bool {
		yes := cond(st)
		value := 0
		if yes {
			value = 1
		}
		obs.Event(st, packetevents.Condition, cd.ID, value)
		return yes
	}
}

// tracedCondition wraps a condition so that its value is traced.
func (c *Compiler) tracedCondition(cd *bmv2json.Conditional, cond expression.Condition) expression.Condition {
	obs := c.Observer
	if !obs.HasTrace() {
		return cond
	}
	return func(st *packet.State) bool {
		yes := cond(st)
		obs.Tracef("%s Condition (%s) is %t", cd.Source, cd.Name, yes)
		return yes
	}
}

// tracedPrimitive wraps a primitive so that it is traced.
func (c *Compiler) tracedPrimitive(p *bmv2json.Primitive, do expression.Statement) expression.Statement {
	obs := c.Observer
	if !obs.HasTrace() {
		return do
	}
	what := p.Source
	if what == "" {
		what = p.Op
	}
	return func(st *packet.State) {
		obs.Tracef("Primitive %s", what)
		do(st)
	}
}

// tracedOp wraps an operation of a parser so that the operation, and an error that stops the
// parser, are traced.
func (c *Compiler) tracedOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	obs := c.Observer
	if !obs.HasTrace() {
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
	return func(st *packet.State) uint64 {
		err := op(st)
		if err != noError {
			obs.Tracef("Parser: %s stops with error %d", what, err)
		} else {
			obs.Tracef("Parser: %s, at byte %d", what, st.Offset)
		}
		return err
	}
}
