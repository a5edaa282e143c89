package bmv2json

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// compiled returns one of the project's own programs in p4c's output format.
func compiled(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "stf", "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// document returns a compiled program as decoded JSON.
func document(t *testing.T, name string) map[string]any {
	t.Helper()
	var doc map[string]any
	dec := json.NewDecoder(strings.NewReader(string(compiled(t, name))))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// at follows a path like "pipelines[0].tables[3].actions". It returns the path's last step and the
// JSON value that contains it.
func at(t *testing.T, doc any, path string) (container any, step string) {
	t.Helper()
	steps := strings.Split(strings.ReplaceAll(strings.ReplaceAll(path, "[", "."), "]", ""), ".")
	for _, s := range steps[:len(steps)-1] {
		switch d := doc.(type) {
		case map[string]any:
			doc = d[s]
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i >= len(d) {
				t.Fatalf("no %q in %s", s, path)
			}
			doc = d[i]
		default:
			t.Fatalf("no %q in %s", s, path)
		}
	}
	return doc, steps[len(steps)-1]
}

// change sets the value at path. If v is remove, change deletes the value.
func change(t *testing.T, doc any, path string, v any) {
	t.Helper()
	container, step := at(t, doc, path)
	switch d := container.(type) {
	case map[string]any:
		if _, there := d[step]; !there && v == remove {
			t.Fatalf("nothing to remove at %s", path)
		}
		if v == remove {
			delete(d, step)
		} else {
			d[step] = v
		}
	case []any:
		i, err := strconv.Atoi(step)
		if err != nil || i >= len(d) {
			t.Fatalf("nothing at %s", path)
		}
		d[i] = v
	default:
		t.Fatalf("nothing at %s", path)
	}
}

type removal struct{}

var remove any = removal{}

// TestPrograms reads the project's own programs, and checks the data that a P4Runtime server needs.
func TestPrograms(t *testing.T) {
	p, err := Parse(compiled(t, "tables"))
	if err != nil {
		t.Fatal(err)
	}
	table := p.Table("I.range_t")
	if table == nil || table.Match != MatchRange || len(table.Keys) != 2 ||
		table.Keys[0].Name != "h.k.a" || table.Keys[0].Width != 16 ||
		table.Keys[0].Kind != MatchRange || table.Keys[1].Kind != MatchTernary ||
		!table.NeedsPriority() {
		t.Errorf("I.range_t is %+v", table)
	}
	set, i := table.Action("I.set")
	if set == nil || i != 0 || len(set.Params) != 1 || set.Params[0] != (Param{"v", 8}) {
		t.Errorf("I.set is %+v", set)
	}
	exact := p.Table("I.exact_t")
	if exact.MaxSize != 3 || !exact.WithCounters || exact.DirectCounter == nil ||
		exact.DirectCounter.Name != "I.hits" || exact.DirectCounter.Table != exact ||
		!exact.HitMiss || exact.Default.Action.Name != "NoAction" || exact.Default.ConstEntry {
		t.Errorf("I.exact_t is %+v", exact)
	}
	constant := p.Table("I.const_t")
	if !constant.Const || len(constant.ConstEntries) != 4 || !constant.Default.ConstEntry ||
		constant.Default.Params[0][0] != 0xdd {
		t.Errorf("I.const_t is %+v", constant)
	}
	if e := constant.ConstEntries[1]; e.Action.Name != "I.set" || e.Params[0][0] != 2 ||
		e.Match[0].Value[0] != 0x12 || e.Match[1].Mask[0] != 0x7f || e.Priority != 2 {
		t.Errorf("the second entry of I.const_t is %+v", e)
	}
	chooser := p.Table("I.chooser_t")
	if chooser.HitMiss || len(chooser.Next) != 3 || chooser.Next[0] == chooser.Next[1] {
		t.Errorf("I.chooser_t is %+v", chooser)
	}

	p, err = Parse(compiled(t, "stateful"))
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Register("I.wide"); r == nil || r.Width != 128 || r.Size != 4 {
		t.Errorf("I.wide is %+v", r)
	}
	if m := p.Meter("I.direct_limit"); m == nil || !m.Direct || m.Table.Name != "I.metered" ||
		m.Rates != 2 || !m.Bytes {
		t.Errorf("I.direct_limit is %+v", m)
	}
	if l := p.LearnListNamed("seen_t"); l == nil || len(l.Widths) != 3 || l.Widths[1] != 5 {
		t.Errorf("seen_t is %+v", l)
	}
	if r := p.FieldNamed("queueing_metadata",
		"enq_qdepth"); r.String() != "standard_metadata.enq_qdepth" || r.Width() != 19 {
		t.Errorf("queueing_metadata.enq_qdepth is %s", r)
	}

	p, err = Parse(compiled(t, "selector"))
	if err != nil {
		t.Fatal(err)
	}
	if a := p.ActionProfile("I.chooser"); a == nil || a.Selector == nil || a.Selector.Algo != "crc16" ||
		len(a.Selector.Input) != 1 || len(a.Tables) != 1 {
		t.Errorf("I.chooser is %+v", a)
	}
	if a := p.ActionProfile("I.members"); a == nil || a.Selector != nil || len(a.Tables) != 2 {
		t.Errorf("I.members is %+v", a)
	}
}

// TestBadJSON changes one value in a valid program. The reader must return an error with the path
// of that value.
func TestBadJSON(t *testing.T) {
	type object = map[string]any
	type list = []any
	n := func(s string) json.Number { return json.Number(s) }
	tests := []struct {
		name, program, path string
		to                  any
		want                string // text that the error must contain
		where               string // text that the error's path must contain; "" stands for path
	}{
		{"newer major version", "tables", "__meta__.version", list{n("3"), n("0")},
			"format 3.0 is not supported", ""},
		{"older major version", "tables", "__meta__.version", list{n("1"), n("9")},
			"format 1.9 is not supported", ""},
		{"version of one number", "tables", "__meta__.version", list{n("2")},
			"expected an array of 2", ""},
		{"no header types", "tables", "header_types", remove, `has no "header_types"`, "-"},
		{"header types of another shape", "tables", "header_types", "x",
			"expected an array, found a string", ""},
		{"field without width", "tables", "header_types[2].fields[0]", list{"which"},
			"expected [name, width, signed]", ""},
		{"field of no width", "tables", "header_types[2].fields[0][1]", n("0"), "no width", ""},
		{"field that is too wide", "tables", "header_types[2].fields[0][1]", n("9999999"),
			"outside of 0 to", ""},
		{"field of negative width", "tables", "header_types[2].fields[0][1]", n("-8"),
			"outside of 0 to", ""},
		{"width that is no integer", "tables", "header_types[2].fields[0][1]", n("1.5"),
			"expected an integer", ""},
		{"two fields of a name", "tables", "header_types[2].fields[1][0]", "which",
			`a second field named "which"`, "header_types[2].fields[1]"},
		{"header of part of a byte", "tables", "header_types[2].fields[0][1]", n("7"),
			"no whole number of bytes", "headers[2]"},
		{"unknown header type", "tables", "headers[2].header_type", "nope",
			`no header type is named "nope"`, ""},
		{"two headers of a name", "tables", "headers[2].name", "standard_metadata",
			"a second header named", "headers[2]"},
		{"two headers of an id", "tables", "headers[2].id", n("0"), "a second header with id 0",
			"headers[2]"},
		{"stack of a header that is not there", "parsing", "header_stacks[0].header_ids[1]",
			n("99"), "no header has id 99", ""},
		{"stack of a header of another type", "parsing", "header_stacks[0].header_ids[1]", n("1"),
			"is of type", ""},
		{"header in a stack twice", "parsing", "header_stacks[0].header_ids[1]", n("9"),
			"cannot be in this stack", ""},
		{"union of an unknown type", "parsing", "header_unions[0].union_type", "nope",
			"no header union type", ""},
		{"union with a member less", "parsing", "header_unions[0].header_ids", list{n("1")},
			"expected an array of 2", ""},
		{"alias of a field that is not there", "tables", "field_aliases[0][1][1]", "nope",
			`has no field "nope"`, ""},
		{"alias of another shape", "tables", "field_aliases[0]", list{"x"},
			"expected an array of 2", ""},
		{"unknown state", "parsing", "parsers[0].init_state", "nope",
			`no parse state is named "nope"`, ""},
		{"transition to an unknown state", "parsing",
			"parsers[0].parse_states[0].transitions[0].next_state", "nope",
			`no parse state is named`, ""},
		{"transition with a value too long", "parsing",
			"parsers[0].parse_states[0].transitions[0].value", "0x000000",
			"has 3 bytes, expected 2", ""},
		{"transition of an unknown kind", "parsing",
			"parsers[0].parse_states[0].transitions[0].type", "maybe", "not a kind of transition",
			""},
		{"value that is not hexadecimal", "parsing",
			"parsers[0].parse_states[0].transitions[0].value", "0xzz00", "not a hexadecimal number",
			""},
		{"unknown parser operation", "parsing", "parsers[0].parse_states[0].parser_ops[0].op",
			"teleport", "not a known parser operation", ""},
		{"extract without parameters", "parsing",
			"parsers[0].parse_states[0].parser_ops[0].parameters", list{}, "expected an array of 1",
			""},
		{"extract of an unknown header", "parsing",
			"parsers[0].parse_states[0].parser_ops[0].parameters[0].value", "nope",
			`no header is named "nope"`, ""},
		{"extract into metadata", "parsing",
			"parsers[0].parse_states[0].parser_ops[0].parameters[0].value", "scalars",
			"extract into metadata",
			"parsers[0].parse_states[0].parser_ops[0]"},
		{"extract of a varbit header without a length", "parsing",
			"parsers[0].parse_states[0].parser_ops[0].parameters[0].value", "option", "extract_VL",
			"parsers[0].parse_states[0].parser_ops[0]"},
		{"unknown header in the deparser", "tables", "deparsers[0].order[0]", "nope",
			"no header is named", ""},
		{"register of no width", "stateful", "register_arrays[0].bitwidth", n("0"), "no width", ""},
		{"register that is too large", "stateful", "register_arrays[0].size", n("4294967295"),
			"outside of 0 to", ""},
		{"register of a negative size", "stateful", "register_arrays[0].size", n("-1"),
			"outside of 0 to", ""},
		{"two registers of a name", "stateful", "register_arrays[1].name", "I.narrow",
			"a second register array", "register_arrays[1]"},
		{"meter of an unknown kind", "stateful", "meter_arrays[0].type", "litres",
			"not a kind of meter", ""},
		{"direct meter of an unknown table", "stateful", "meter_arrays[1].binding", "nope",
			`no table is named "nope"`, ""},
		{"direct counter of an unknown table", "tables", "counter_arrays[0].binding", "nope",
			`no table is named "nope"`, ""},
		{"unknown primitive argument", "tables", "actions[7].primitives[0].parameters[0].type",
			"mystery", "not a known type of value", ""},
		{"parameter beyond the action's", "tables", "actions[7].primitives[0].parameters[1].value",
			n("7"), "parameter 7 of an action", ""},
		{"field that is not there", "tables", "actions[7].primitives[0].parameters[0].value[1]",
			"nope", `has no field "nope"`, ""},
		{"two actions of an id", "tables", "actions[1].id", n("0"), "a second action with id 0",
			"actions[1]"},
		{"unknown operation", "arithmetic", "pipelines[0].conditionals[0].expression.value.op",
			"<=>", "not a known operation", ""},
		{"operand of another type", "arithmetic",
			"pipelines[0].conditionals[0].expression.value.op", "and", "expected bool, found data",
			"pipelines[0].conditionals[0].expression.value.left"},
		{"operand left out", "arithmetic", "pipelines[0].conditionals[0].expression.value.right",
			nil, "expected an object, found null", ""},
		{"condition that is a number", "arithmetic", "pipelines[0].conditionals[0].expression",
			object{"type": "hexstr", "value": "0x1"},
			"expected bool, found data", ""},
		{"unknown next node", "arithmetic", "pipelines[0].conditionals[0].true_next", "nope",
			`no node of the control flow is named "nope"`, ""},
		{"unknown first table", "tables", "pipelines[0].init_table", "nope",
			"no node of the control flow", ""},
		{"table that uses an action that is not there", "tables",
			"pipelines[0].tables[1].action_ids[0]", n("99"), "no action has id 99", ""},
		{"table with an action twice", "tables", "pipelines[0].tables[1].action_ids[1]", n("1"),
			"two actions named", "pipelines[0].tables[1]"},
		{"table of an unknown kind", "tables", "pipelines[0].tables[1].type", "magic",
			"not a kind of table", ""},
		{"key of an unknown kind", "tables", "pipelines[0].tables[1].key[0].match_type", "fuzzy",
			"not a match kind", ""},
		{"key more general than its table", "tables", "pipelines[0].tables[1].key[0].match_type",
			"ternary", "is of kind exact but key",
			"pipelines[0].tables[1].match_type"},
		{"two prefixes", "tables", "pipelines[0].tables[10].key[0].match_type", "lpm",
			"has a second lpm key", "pipelines[0].tables[10].key[2]"},
		{"key of an unknown field", "tables", "pipelines[0].tables[1].key[0].target[1]", "nope",
			`has no field "nope"`, ""},
		{"default action of another table", "tables",
			"pipelines[0].tables[1].default_entry.action_id", n("4"), "does not list action", ""},
		{"default action with data too many", "tables",
			"pipelines[0].tables[1].default_entry.action_data", list{"0x1"},
			"has 0 parameters, found 1", ""},
		{"default action with data too large", "tables",
			"pipelines[0].tables[4].default_entry.action_data[0]", "0x100", "does not fit 8 bits",
			""},
		{"const entry with a key less", "tables", "pipelines[0].tables[10].entries[0].match_key",
			list{}, "expected an array of 3", ""},
		{"const entry of another kind", "tables",
			"pipelines[0].tables[10].entries[0].match_key[0].match_type", "exact", "the entry says",
			""},
		{"const entry with a key too large", "tables",
			"pipelines[0].tables[10].entries[0].match_key[0].key", "0x10000",
			"does not fit 16 bits", ""},
		{"next tables that lack an action", "tables", "pipelines[0].tables[2].next_tables",
			object{}, "actions but 0 next nodes", ""},
		{"hit without miss", "tables", "pipelines[0].tables[1].next_tables", object{"__HIT__": nil},
			"must both be there", ""},
		{"unknown action profile", "selector", "pipelines[0].tables[1].action_profile", "nope",
			`no action profile is named "nope"`, ""},
		{"unknown calculation", "stateful", "checksums[0].calculation", "nope",
			"no calculation is named", ""},
		{"checksum of an unknown kind", "stateful", "checksums[0].type", "ipv4",
			"not a supported kind of checksum", ""},
		{"calculation on something unknown", "stateful", "calculations[0].input[0].type", "weather",
			"not an input of a calculation", ""},
		{"field list of a header", "copies", "field_lists[0].elements[0]",
			object{"type": "header", "value": "doit"}, "a field list keeps fields", ""},
		{"digest of an unknown field", "stateful", "learn_lists[0].elements[0].value[1]", "nope",
			`has no field "nope"`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc := document(t, tt.program)
			change(t, doc, tt.path, tt.to)
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(b)
			var re *ReadError
			if !errors.As(err, &re) {
				t.Fatalf("error is %v, want a *ReadError", err)
			}
			if !strings.Contains(re.Msg, tt.want) {
				t.Errorf("says %q, want %q in it", re.Msg, tt.want)
			}
			where := tt.where
			switch where {
			case "":
				where = tt.path
			case "-":
				where = ""
			}
			if !strings.HasPrefix(re.Path, where) {
				t.Errorf("names %q, want %q", re.Path, where)
			}
		})
	}
}

// TestLoop checks that a loop in the control flow is an error.
func TestLoop(t *testing.T) {
	doc := document(t, "arithmetic")
	conditionals := doc["pipelines"].([]any)[0].(map[string]any)["conditionals"].([]any)
	first := conditionals[0].(map[string]any)
	conditionals[1].(map[string]any)["false_next"] = first["name"]
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), "comes back to") {
		t.Errorf("error is %v", err)
	}
}

func TestGarbage(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":        "",
		"not JSON":       "P4!",
		"half":           `{"__meta__": {"version": [2,`,
		"two documents":  `{"__meta__": {}} {}`,
		"an array":       `[]`,
		"a number":       `7`,
		"null":           `null`,
		"empty":          `{}`,
		"deep":           strings.Repeat("[", 100000),
		"meta of a kind": `{"__meta__": 5}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse([]byte(text))
			var re *ReadError
			if p != nil || !errors.As(err, &re) {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.json")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// FuzzParse reads mutations of a small program's JSON. Parse must return a program or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"__meta__": {"version": [2, 23]},
		"header_types": [{"name": "t", "id": 0, "fields": [["f", 8, false], ["v", "*"]], "max_length": 9}, {"name": "m_t", "id": 1, "fields": [["x", 9, true]]}],
		"headers": [{"name": "h", "id": 0, "header_type": "t", "metadata": false}, {"name": "m", "id": 1, "header_type": "m_t", "metadata": true}],
		"parsers": [{"name": "parser", "id": 0, "init_state": "s", "parse_states": [{"name": "s", "id": 0,
			"parser_ops": [{"op": "extract_VL", "parameters": [{"type": "regular", "value": "h"}, {"type": "expression", "value": {"type": "hexstr", "value": "0x8"}}]}],
			"transition_key": [{"type": "field", "value": ["h", "f"]}, {"type": "lookahead", "value": [0, 8]}],
			"transitions": [{"type": "hexstr", "value": "0x0102", "mask": null, "next_state": null}]}]}],
		"deparsers": [{"name": "deparser", "id": 0, "order": ["h"]}],
		"actions": [{"name": "a", "id": 0, "runtime_data": [{"name": "p", "bitwidth": 9}], "primitives": [{"op": "assign", "parameters": [
			{"type": "field", "value": ["m", "x"]}, {"type": "expression", "value": {"type": "expression", "value": {"op": "+",
				"left": {"type": "local", "value": 0}, "right": {"type": "hexstr", "value": "-0x1"}}}}]}]}],
		"pipelines": [{"name": "ingress", "id": 0, "init_table": "t", "conditionals": [], "tables": [{"name": "t", "id": 0, "match_type": "range", "type": "simple",
			"key": [{"match_type": "range", "target": ["m", "x"], "mask": null}], "actions": ["a"], "next_tables": {"a": null}, "max_size": 4,
			"default_entry": {"action_id": 0, "action_data": ["0x1"]},
			"entries": [{"match_key": [{"match_type": "range", "start": "0x1", "end": "0x2"}], "action_entry": {"action_id": 0, "action_data": ["0x2"]}}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if (p == nil) == (err == nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}

// TestEveryValueMissing removes each member of each object of a program, one after the other, and
// sets each scalar to null. Parse must not panic, and its errors must contain the right path, if
// any.
func TestEveryValueMissing(t *testing.T) {
	for _, name := range []string{"parsing", "selector"} {
		doc := document(t, name)
		count := 0
		var walk func(v any)
		try := func() {
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Parse(b)
			if (p == nil) == (err == nil) {
				t.Errorf("%v, %v", p, err)
			}
			count++
		}
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				if _, ok := v["source_fragment"]; ok {
					return
				}
				for k, old := range v {
					delete(v, k)
					try()
					v[k] = old
					walk(old)
				}
			case []any:
				for i, old := range v {
					v[i] = nil
					try()
					v[i] = old
					if i < 3 { // the first three elements stand for all others
						walk(old)
					}
				}
			}
		}
		walk(any(doc))
		t.Logf("%s: %d changes", name, count)
	}
}

// TestOlderFormats reads the output of older versions of p4c, which BMv2 accepts.
func TestOlderFormats(t *testing.T) {
	type object = map[string]any
	type list = []any
	read := func(doc object) *Program {
		t.Helper()
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}

	// The JSON has no version, and a table contains its own action profile.
	doc := document(t, "selector")
	change(t, doc, "__meta__.version", remove)
	if p := read(doc); p.Major != supportedMajor {
		t.Errorf("a program without a version is of version %d", p.Major)
	}
	change(t, doc, "__meta__", remove)
	pipeline := doc["pipelines"].(list)[0].(object)
	profiles := pipeline["action_profiles"].(list)
	pipeline["action_profiles"] = profiles[:1]
	table := pipeline["tables"].(list)[3].(object)
	delete(table, "action_profile")
	table["act_prof_name"], table["selector"] = "own", profiles[1].(object)["selector"]
	p := read(doc)
	own := p.ActionProfile("own")
	if own == nil || own.Selector == nil || len(own.Selector.Input) == 0 ||
		p.Table("I.selected").ActionProfile != own || len(p.ActionProfiles()) != 2 || own.Index != 1 {
		t.Errorf("the table's own action profile is %+v", own)
	}
	delete(table, "selector")
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), "has no selector") {
		t.Errorf("without its selector the table is read: %v", err)
	}

	// A parser sets a header's validity, and a header lacks the mark that it is not metadata.
	doc = document(t, "parsing")
	for _, h := range doc["headers"].(list) {
		if h := h.(object); h["metadata"] == false {
			delete(h, "metadata")
		}
	}
	change(t, doc, "parse_vsets[0].max_size", remove)
	const op = "parsers[0].parse_states[6].parser_ops[2]"
	set := func(header string, to any) object {
		return object{"op": "set", "parameters": list{
			object{"type": "field", "value": list{header, "$valid$"}}, to}}
	}
	hexstr := func(v string) object { return object{"type": "hexstr", "value": v} }
	for to, want := range map[string]string{"0x01": "add_header", "0x00": "remove_header"} {
		change(t, doc, op, set("tmp", hexstr(to)))
		p := read(doc)
		o := p.Parsers[0].States[6].Ops[2]
		if o.Kind != ParserPrimitive || o.Primitive.Op != want ||
			o.Primitive.Args[0].Header.Name != "tmp" {
			t.Errorf("$valid$ of %s is read as %+v", to, o.Primitive)
		}
		if s := p.ValueSets[0]; s.MaxSize != defaultSetSize {
			t.Errorf("a value set without a size has %d members", s.MaxSize)
		}
	}
	for want, bad := range map[string]object{
		"and not to a constant": set("tmp", object{"type": "field", "value": list{"kind", "arg"}}),
		"validity of metadata":  set("scalars", hexstr("0x01")),
	} {
		change(t, doc, op, bad)
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", bad, err, want)
		}
	}
}

// TestControlCharacters reads a string with control characters, which older versions of p4c wrote
// for log_msg.
func TestControlCharacters(t *testing.T) {
	const text = `{"__meta__": {"version": [2, 23]}, "header_types": [], "headers": [], "parsers": [], "deparsers": [], "pipelines": [],
		"actions": [{"name": "a", "id": 0, "runtime_data": [], "primitives": [
		{"op": "log_msg", "parameters": [{"type": "string", "value": "%s"}, {"type": "parameters_vector", "value": []}]}]}]}`
	for written, want := range map[string]string{"a\n\tb\x01": "a\n\tb\x01", `a\n`: "a\n", `\"` + "\r": "\"\r", `\\`: `\`} {
		p, err := Parse(fmt.Appendf(nil, text, written))
		if err != nil {
			t.Errorf("%q: %v", written, err)
			continue
		}
		if got := p.Actions[0].Primitives[0].Args[0].Str; got != want {
			t.Errorf("%q: %q, want %q", written, got, want)
		}
	}
	if _, err := Parse(fmt.Appendf(nil, text, "a\\\n")); err == nil {
		t.Error("a backslash before a line break is an escape that JSON does not have")
	}
}
