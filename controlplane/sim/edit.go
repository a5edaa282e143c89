package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// edit changes the JSON that p4c made of the program: conditions and assignments, which it finds by the piece of source that p4c quotes for them. So rules
// can be removed without p4c, and a rule that is not where it was is an error and not a mutant that does nothing.
type edit struct {
	program map[string]any
	errs    []error
}

// editProgram applies a change.
func editProgram(text []byte, change func(*edit)) ([]byte, error) {
	e := &edit{}
	if err := json.Unmarshal(text, &e.program); err != nil {
		return nil, err
	}
	change(e)
	if err := errors.Join(e.errs...); err != nil {
		return nil, err
	}
	return json.Marshal(e.program)
}

func (e *edit) fail(format string, args ...any) { e.errs = append(e.errs, fmt.Errorf(format, args...)) }

// expr is an expression of BMv2's JSON.
type expr map[string]any

func operation2(op string, left, right any) expr {
	return expr{"type": "expression", "value": map[string]any{"op": op, "left": left, "right": right}}
}

func and(a, b any) expr    { return operation2("and", a, b) }
func or(a, b any) expr     { return operation2("or", a, b) }
func not(a any) expr       { return operation2("not", nil, a) }
func equal(a, b any) expr  { return operation2("==", a, b) }
func number(n uint64) expr { return expr{"type": "hexstr", "value": fmt.Sprintf("0x%x", n)} }

// truth is a boolean; as a condition it must be an expression.
func truth(b bool) expr { return equal(number(0), number(map[bool]uint64{true: 0, false: 1}[b])) }

// field is a field of a header.
func field(header, name string) expr { return expr{"type": "field", "value": []any{header, name}} }

// Fields and what is in them.
var (
	op       = field("netcraq", "KV_OP")
	request  = field("netcraq", "request")
	opAck    = number(5)
	opWrite  = number(3)
	opCAS    = number(6)
	opSync   = number(8)
	workRead = "work == work_t.READ"
)

// scalar is a variable of the program. p4c puts a number behind the names of metadata.
func (e *edit) scalar(name string) expr {
	for _, t := range e.program["header_types"].([]any) {
		if t := t.(map[string]any); t["name"] == "scalars_0" || t["name"] == "scalars" {
			for _, f := range t["fields"].([]any) {
				if got := f.([]any)[0].(string); strings.TrimRight(got, "0123456789") == name || got == name {
					return field("scalars", got)
				}
			}
		}
	}
	e.fail("the program has no variable %s", name)
	return number(0)
}

// flag is a boolean variable.
func (e *edit) flag(name string) expr { return operation2("d2b", nil, e.scalar(name)) }

// low is the low half of the register versions: latest; high is committed.
func (e *edit) latest() expr {
	return operation2("&", e.scalar("pipeline_chain_pair"), number(1<<64-1))
}

// quoted says whether something stands in a source file with a fragment.
func quoted(x map[string]any, file, fragment string) bool {
	s, _ := x["source_info"].(map[string]any)
	if s == nil || !strings.HasSuffix(s["filename"].(string), file) {
		return false
	}
	return strings.HasPrefix(s["source_fragment"].(string), fragment)
}

// conditions are the conditions that stand in the source as fragment (or begin with it).
func (e *edit) conditions(file, fragment string) []map[string]any {
	var out []map[string]any
	for _, p := range e.program["pipelines"].([]any) {
		for _, c := range p.(map[string]any)["conditionals"].([]any) {
			if c := c.(map[string]any); quoted(c, file, fragment) {
				out = append(out, c)
			}
		}
	}
	return out
}

// condition gives the expression that p4c made of a condition.
func (e *edit) condition(fragment string) any {
	c := e.conditions("chain.p4", fragment)
	if len(c) == 0 {
		e.fail("no condition %q in chain.p4", fragment)
		return truth(true)
	}
	return c[0]["expression"]
}

// when changes the conditions that stand in chain.p4 as fragment: all of them, which must be n.
func (e *edit) when(fragment string, n int, change func(old any) any) {
	e.whenIn("chain.p4", fragment, n, change)
}

func (e *edit) whenIn(file, fragment string, n int, change func(old any) any) {
	cs := e.conditions(file, fragment)
	if len(cs) != n {
		e.fail("%d conditions %q in %s, not %d", len(cs), fragment, file, n)
	}
	for _, c := range cs {
		c["expression"] = change(c["expression"])
	}
}

// assign changes what is assigned where chain.p4 has fragment: everywhere, n times.
func (e *edit) assign(fragment string, n int, change func(old any) any) {
	e.assignIn("chain.p4", fragment, n, change)
}

func (e *edit) assignIn(file, fragment string, n int, change func(old any) any) {
	found := 0
	for _, a := range e.program["actions"].([]any) {
		for _, p := range a.(map[string]any)["primitives"].([]any) {
			p := p.(map[string]any)
			if p["op"] != "assign" || !quoted(p, file, fragment) {
				continue
			}
			found++
			params := p["parameters"].([]any)
			params[1] = change(params[1])
		}
	}
	if found != n {
		e.fail("%d assignments %q in %s, not %d", found, fragment, file, n)
	}
}

// assignFlag changes what is assigned to a boolean.
func (e *edit) assignFlag(fragment string, n int, change func(old any) any) {
	e.assign(fragment, n, func(old any) any {
		inner := old.(map[string]any)["value"].(map[string]any)["value"].(map[string]any)
		if inner["op"] != "b2d" {
			e.fail("%q does not assign a boolean", fragment)
			return old
		}
		return expr{"type": "expression", "value": operation2("b2d", nil, change(inner["right"]))}
	})
}

// always and never are for when.
func always(any) any { return truth(true) }
func never(any) any  { return truth(false) }

// node copies a condition, or a table without a key, of ingress under another name. next gives the copy's successors, by the way that leads there.
func (e *edit) copyNode(name, copied string, next map[string]string) {
	pl := e.program["pipelines"].([]any)[0].(map[string]any)
	for _, kind := range []string{"conditionals", "tables"} {
		for i, x := range pl[kind].([]any) {
			old := x.(map[string]any)
			if old["name"] != name {
				continue
			}
			text, err := json.Marshal(old)
			if err != nil {
				e.fail("%v", err)
			}
			var c map[string]any
			if err := json.Unmarshal(text, &c); err != nil {
				e.fail("%v", err)
			}
			c["name"], c["id"] = copied, 100000+1000*len(kind)+i
			for way, to := range next {
				c[way] = to
				if way == "base_default_next" {
					for k := range c["next_tables"].(map[string]any) {
						c["next_tables"].(map[string]any)[k] = to
					}
				}
			}
			pl[kind] = append(pl[kind].([]any), c)
			return
		}
	}
	e.fail("no node %s", name)
}

// does says whether the actions of a table assign what stands in the source as fragment.
func (e *edit) does(table any, fragment string) bool {
	pl := e.program["pipelines"].([]any)[0].(map[string]any)
	for _, t := range pl["tables"].([]any) {
		t := t.(map[string]any)
		if t["name"] != table {
			continue
		}
		for _, id := range t["action_ids"].([]any) {
			for _, a := range e.program["actions"].([]any) {
				if a := a.(map[string]any); a["id"] == id {
					for _, p := range a["primitives"].([]any) {
						if quoted(p.(map[string]any), "chain.p4", fragment) {
							return true
						}
					}
				}
			}
		}
	}
	return false
}

// theOne is the one condition that stands in chain.p4 as fragment.
func (e *edit) theOne(fragment string) map[string]any {
	cs := e.conditions("chain.p4", fragment)
	if len(cs) != 1 {
		e.fail("%d conditions %q in chain.p4, not one", len(cs), fragment)
		return map[string]any{"name": "", "true_next": "", "false_next": "", "expression": truth(true)}
	}
	return cs[0]
}

// theNamed is the condition of ingress with a name.
func (e *edit) theNamed(name string) map[string]any {
	for _, c := range e.program["pipelines"].([]any)[0].(map[string]any)["conditionals"].([]any) {
		if c := c.(map[string]any); c["name"] == name {
			return c
		}
	}
	e.fail("no condition %s", name)
	return map[string]any{}
}

// alsoDo adds the assignment that stands in chain.p4 as fragment to the one action that has those two, and not it, but counts a write.
func (e *edit) alsoDo(one, other, fragment string) {
	var add any
	var to map[string]any
	for _, a := range e.program["actions"].([]any) {
		a := a.(map[string]any)
		has := map[string]bool{}
		for _, p := range a["primitives"].([]any) {
			p := p.(map[string]any)
			for _, f := range []string{one, other, fragment, "slot_writes.count"} {
				if quoted(p, "chain.p4", f) {
					has[f] = true
					if f == fragment {
						add = p
					}
				}
			}
		}
		if has[one] && has[other] && has["slot_writes.count"] && !has[fragment] {
			to = a
		}
	}
	if add == nil || to == nil {
		e.fail("no action with %q and %q, or none with %q, in chain.p4", one, other, fragment)
		return
	}
	to["primitives"] = append(to["primitives"].([]any), add)
}
