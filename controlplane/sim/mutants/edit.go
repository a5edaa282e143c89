package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// edit changes the JSON that p4c made of the program: conditions and assignments, which it finds by
// the piece of source that p4c quotes for them. So rules can be removed without p4c, and a rule
// that is not where it was is an error and not a mutant that does nothing.
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
	op      = field("netcraq", "KV_OP")
	request = field("netcraq", "request")
	opAck   = number(5)
	opWrite = number(3)
	opCAS   = number(6)
	opSync  = number(8)
)

// Operations of chain_op_t.
const (
	chainAssign  = 2
	chainStore   = 3
	chainCommit  = 4
	chainSession = 8
)

// Events of events.p4, by which a decision is known.
const (
	eventWriteStored = 9
	eventCASToTail   = 15
	eventCASFailed   = 16
	eventDropFrozen  = 53
)

// does is whether the packet's operation is that one.
func (e *edit) does(chainOp uint64) expr { return equal(e.scalar("chain_op"), number(chainOp)) }

// scalar is a variable of the program, by the end of its name: p4c puts the names of controls and
// structs before it, and a number after it.
func (e *edit) scalar(name string) expr {
	var found []string
	for _, t := range e.program["header_types"].([]any) {
		if t := t.(map[string]any); t["name"] == "scalars_0" || t["name"] == "scalars" {
			for _, f := range t["fields"].([]any) {
				if got := f.([]any)[0].(string); named(got, name) {
					found = append(found, got)
				}
			}
		}
	}
	if len(found) != 1 {
		e.fail("not one variable of the program is %s: %q", name, found)
		return number(0)
	}
	return field("scalars", found[0])
}

// named says whether that is what p4c made of a variable's name.
func named(got, name string) bool {
	return strings.HasSuffix("_"+strings.TrimRight(got, "_0123456789"), "_"+name)
}

// flag is a boolean variable.
func (e *edit) flag(name string) expr { return operation2("d2b", nil, e.scalar(name)) }

// low is the low half of the register versions: latest; high is committed.
func (e *edit) latest() expr {
	return operation2("&", e.scalar("pair"), number(1<<64-1))
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

// when changes the conditions that stand in a file as fragment: all of them, which must be n.
func (e *edit) when(file, fragment string, n int, change func(old any) any) {
	cs := e.conditions(file, fragment)
	if len(cs) != n {
		e.fail("%d conditions %q in %s, not %d", len(cs), fragment, file, n)
	}
	for _, c := range cs {
		c["expression"] = change(c["expression"])
	}
}

// assignments calls do for what is assigned to a target in an action: a field, or a variable as
// scalar has it.
func assignments(action map[string]any, target string, do func(p map[string]any)) {
	for _, p := range action["primitives"].([]any) {
		p := p.(map[string]any)
		if p["op"] != "assign" {
			continue
		}
		to, _ := p["parameters"].([]any)[0].(map[string]any)["value"].([]any)
		if len(to) == 2 && (named(to[1].(string), target) || fmt.Sprint(to[0], ".", to[1]) == target) {
			do(p)
		}
	}
}

// assign changes what is assigned to a target where a file has fragment: everywhere, n times. Where
// the target is in the metadata, p4c quotes from the = on.
func (e *edit) assign(file, target, fragment string, n int, change func(old any) any) {
	found := 0
	for _, a := range e.program["actions"].([]any) {
		assignments(a.(map[string]any), target, func(p map[string]any) {
			if quoted(p, file, fragment) {
				found++
				params := p["parameters"].([]any)
				params[1] = change(params[1])
			}
		})
	}
	if found != n {
		e.fail("%d assignments to %s of %q in %s, not %d", found, target, fragment, file, n)
	}
}

// assignFlag changes what is assigned to a boolean, and also the conditions on that boolean for
// which p4c has put in what was assigned. (p4c quotes those from where the metadata is declared.)
func (e *edit) assignFlag(file, target, fragment string, n int, change func(old any) any) {
	e.assign(file, target, fragment, n, func(old any) any {
		inner := old.(map[string]any)["value"].(map[string]any)["value"].(map[string]any)
		if inner["op"] != "b2d" {
			e.fail("%q does not assign a boolean", fragment)
			return old
		}
		changed := change(inner["right"])
		for _, c := range e.conditions("netcraq.p4", "meta") {
			if reflect.DeepEqual(c["expression"], inner["right"]) {
				c["expression"] = changed
			}
		}
		return expr{"type": "expression", "value": operation2("b2d", nil, changed)}
	})
}

// always and never are for when.
func always(any) any { return truth(true) }
func never(any) any  { return truth(false) }

// node copies a condition, or a table without a key, of ingress under another name. next gives the
// copy's successors, by the way that leads there.
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

// decides says whether an action of a table decides that a packet counts as an event.
func (e *edit) decides(table any, event uint64) (found bool) {
	for _, t := range e.program["pipelines"].([]any)[0].(map[string]any)["tables"].([]any) {
		t := t.(map[string]any)
		if t["name"] != table {
			continue
		}
		for _, a := range e.program["actions"].([]any) {
			a := a.(map[string]any)
			if slices.Contains(t["action_ids"].([]any), a["id"]) {
				assignments(a, "decision_event", func(p map[string]any) { found = found || isNumber(p, event) })
			}
		}
	}
	return found
}

// isNumber says whether an assignment's value is that number.
func isNumber(assign map[string]any, n uint64) bool {
	v, ok := assign["parameters"].([]any)[1].(map[string]any)["value"].(string)
	got, err := strconv.ParseUint(strings.TrimPrefix(v, "0x"), 16, 64)
	return ok && err == nil && got == n
}

// deciding is the one condition of a file that leads to an event where it holds, and to another,
// unless that is 0, where it does not.
func (e *edit) deciding(file string, event, otherwise uint64) map[string]any {
	var found []map[string]any
	for _, c := range e.conditions(file, "") {
		if e.decides(c["true_next"], event) && (otherwise == 0 || e.decides(c["false_next"], otherwise)) {
			found = append(found, c)
		}
	}
	return e.only(found, fmt.Sprintf("condition that leads to event %d in %s", event, file))
}

// theOne is the one condition that stands in a file as fragment.
func (e *edit) theOne(file, fragment string) map[string]any {
	return e.only(e.conditions(file, fragment), fmt.Sprintf("condition %q in %s", fragment, file))
}

func (e *edit) only(cs []map[string]any, what string) map[string]any {
	if len(cs) != 1 {
		e.fail("%d times a %s, not once", len(cs), what)
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

// alsoDo adds an assignment that stands in a file, to a target, as fragment to the one action that
// decides on an event.
func (e *edit) alsoDo(event uint64, file, target, fragment string) {
	var add map[string]any
	var to []map[string]any
	for _, a := range e.program["actions"].([]any) {
		a := a.(map[string]any)
		assignments(a, target, func(p map[string]any) {
			if quoted(p, file, fragment) {
				add = p
			}
		})
		assignments(a, "decision_event", func(p map[string]any) {
			if isNumber(p, event) {
				to = append(to, a)
			}
		})
	}
	if add == nil || len(to) != 1 {
		e.fail("%d actions decide on event %d, or none assigns %q to %s in %s", len(to), event, fragment, target, file)
		return
	}
	to[0]["primitives"] = append(to[0]["primitives"].([]any), add)
}
