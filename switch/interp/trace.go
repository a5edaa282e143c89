package interp

import (
	"fmt"
	"strings"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// trace says a step of the packet under way. The caller has looked whether anybody listens.
func (p *Pipeline) trace(format string, args ...any) {
	p.opts.Trace(fmt.Sprintf("[%d] ", p.tracing) + fmt.Sprintf(format, args...))
}

// traceStep is trace for whom it would not be worth the looking.
func (p *Pipeline) traceStep(what string) {
	if p.opts.Trace != nil {
		p.trace("%s", what)
	}
}

// trace says what was looked up in a table and what was found.
func (t *table) trace(st *state, e *entry) {
	if t.find == nil {
		return
	}
	var key strings.Builder
	for i, k := range t.keys {
		if i > 0 {
			key.WriteString(", ")
		}
		fmt.Fprintf(&key, "%s: ", t.src.Keys[i].Name)
		switch {
		case k.valid >= 0:
			fmt.Fprint(&key, st.valid[k.valid])
		case k.header >= 0 && !st.valid[k.header]:
			key.WriteString("0 (its header is not valid)")
		default:
			fmt.Fprintf(&key, "%x", bytesFromLanes(st.w[k.lane:k.lane+k.lanes], k.width))
		}
	}
	found := "miss"
	if e != nil {
		found = "hit"
	}
	t.p.trace("Table '%s': %s. Key: %s", t.src.Name, found, &key)
}

// traceCall says what a table runs.
func (t *table) traceCall(do *call) {
	var params []string
	for i, v := range do.export().Params {
		params = append(params, fmt.Sprintf("%s: %x", do.act.src.Params[i].Name, v))
	}
	t.p.trace("Action %s(%s)", do.act.src.Name, strings.Join(params, ", "))
}

func (c *compiler) tracedCondition(cd *bmv2json.Conditional, cond boolFn) boolFn {
	if c.p.opts.Trace == nil {
		return cond
	}
	return func(st *state) bool {
		yes := cond(st)
		st.p.trace("%s Condition (%s) is %t", cd.Source, cd.Name, yes)
		return yes
	}
}

func (c *compiler) tracedPrimitive(p *bmv2json.Primitive, do doFn) doFn {
	if c.p.opts.Trace == nil {
		return do
	}
	what := p.Source
	if what == "" {
		what = p.Op
	}
	return func(st *state) {
		st.p.trace("Primitive %s", what)
		do(st)
	}
}

func (c *compiler) tracedOp(o *bmv2json.ParserOp, op parseOp) parseOp {
	if c.p.opts.Trace == nil {
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
			st.p.trace("Parser: %s stops with error %d", what, err)
		} else {
			st.p.trace("Parser: %s, at byte %d", what, st.pos)
		}
		return err
	}
}
