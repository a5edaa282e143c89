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

// edit changes the JSON that p4c made of the program. It finds conditions and assignments by the
// piece of source that p4c quotes for them, so removing a rule needs no p4c. If a rule is not found
// in its place, the edit fails, so no mutant is without effect.
type edit struct {
	program map[string]any
	errs    []error
}

// editProgram applies a change to the program's JSON.
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

// truth returns a boolean constant as an expression, because a condition must be an expression.
func truth(b bool) expr { return equal(number(0), number(map[bool]uint64{true: 0, false: 1}[b])) }

// field returns an expression for a field of a header.
func field(header, name string) expr { return expr{"type": "field", "value": []any{header, name}} }

// These are fields, and values of fields.
var (
	op      = field("netcraq", "KV_OP")
	request = field("netcraq", "request")
	opAck   = number(5)
	opWrite = number(3)
	opCAS   = number(6)
	opSync  = number(8)
)

// These are operations of chain_op_t.
const (
	chainAssign  = 2
	chainStore   = 3
	chainCommit  = 4
	chainSession = 8
)

// These are events of events.p4. They identify the program's decisions.
const (
	eventWriteStored = 9
	eventCASToTail   = 15
	eventCASFailed   = 16
	eventDropFrozen  = 53
)

// does returns an expression that is true if the packet's operation is chainOp.
func (e *edit) does(chainOp uint64) expr { return equal(e.scalar("chain_op"), number(chainOp)) }

// scalar finds a variable of the program by the end of its name, because p4c adds the names of
// controls and structs before it and a number after it.
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

// named reports whether got is the name that p4c gives to a variable.
func named(got, name string) bool {
	return strings.HasSuffix("_"+strings.TrimRight(got, "_0123456789"), "_"+name)
}

// flag returns an expression for a boolean variable.
func (e *edit) flag(name string) expr { return operation2("d2b", nil, e.scalar(name)) }

// latest returns the low half of the register `versions`. The high half is the committed version.
func (e *edit) latest() expr {
	return operation2("&", e.scalar("pair"), number(1<<64-1))
}

// quoted reports whether the source text that p4c quotes for x is in a file and begins with a
// fragment.
func quoted(x map[string]any, file, fragment string) bool {
	s, _ := x["source_info"].(map[string]any)
	if s == nil || !strings.HasSuffix(s["filename"].(string), file) {
		return false
	}
	return strings.HasPrefix(s["source_fragment"].(string), fragment)
}

// conditions returns the conditions whose source text is, or begins with, fragment.
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

// when changes all conditions of a file whose source text begins with fragment. There must be
// exactly n such conditions in the file.
func (e *edit) when(file, fragment string, n int, change func(old any) any) {
	cs := e.conditions(file, fragment)
	if len(cs) != n {
		e.fail("%d conditions %q in %s, not %d", len(cs), fragment, file, n)
	}
	for _, c := range cs {
		c["expression"] = change(c["expression"])
	}
}

// assignments calls do for each assignment in an action to a target. A target is a field, or a
// variable that is named as for scalar.
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

// assign changes the value of assignments to a target, if their source text in the file begins with
// fragment. There must be exactly n such assignments. If the target is in the metadata, p4c's
// quotation begins at the "=".
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

// assignFlag changes the value that is assigned to a boolean. It also changes the conditions in
// which p4c has replaced the boolean by that value. (For such a condition, p4c quotes the
// metadata's declaration.)
func (e *edit) assignFlag(file, target, fragment string, n int, change func(old any) any) {
	e.assignOnly(file, target, fragment, n, func(old any) any {
		changed := change(old)
		for _, c := range e.conditions("netcraq.p4", "meta") {
			if reflect.DeepEqual(c["expression"], old) {
				c["expression"] = changed
			}
		}
		return changed
	})
}

// assignOnly changes the value that is assigned to a boolean.
func (e *edit) assignOnly(file, target, fragment string, n int, change func(old any) any) {
	e.assign(file, target, fragment, n, func(old any) any {
		inner := old.(map[string]any)["value"].(map[string]any)["value"].(map[string]any)
		if inner["op"] != "b2d" {
			e.fail("%q does not assign a boolean", fragment)
			return old
		}
		return expr{"type": "expression", "value": operation2("b2d", nil, change(inner["right"]))}
	})
}

// always and never are change functions for when.
func always(any) any { return truth(true) }
func never(any) any  { return truth(false) }

// copyNode copies a condition, or a table without a key, of ingress under another name. next gives
// the copy's successors, each by the branch that leads to it.
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

// decides reports whether an action of a table counts the packet as the given event.
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

// isNumber reports whether an assignment's value is the number n.
func isNumber(assign map[string]any, n uint64) bool {
	v, ok := assign["parameters"].([]any)[1].(map[string]any)["value"].(string)
	got, err := strconv.ParseUint(strings.TrimPrefix(v, "0x"), 16, 64)
	return ok && err == nil && got == n
}

// deciding finds the only condition of a file whose true branch leads to event and whose false
// branch leads to otherwise. If otherwise is 0, the false branch does not matter.
func (e *edit) deciding(file string, event, otherwise uint64) map[string]any {
	var found []map[string]any
	for _, c := range e.conditions(file, "") {
		if e.decides(c["true_next"], event) && (otherwise == 0 || e.decides(c["false_next"], otherwise)) {
			found = append(found, c)
		}
	}
	return e.only(found, fmt.Sprintf("condition that leads to event %d in %s", event, file))
}

// theOne finds the only condition of a file whose source text begins with fragment.
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

// theNamed finds the condition of the control ingress that has the given name.
func (e *edit) theNamed(name string) map[string]any {
	for _, c := range e.program["pipelines"].([]any)[0].(map[string]any)["conditionals"].([]any) {
		if c := c.(map[string]any); c["name"] == name {
			return c
		}
	}
	e.fail("no condition %s", name)
	return map[string]any{}
}

// alsoDo finds the assignment to target whose source text in file begins with fragment. It appends
// a copy of this assignment to the only action that decides on event.
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
