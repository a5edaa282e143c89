package bmthrift

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestIDL compares package idl and the tables of calls with the .thrift files. It covers each
// call's arguments, answer and exception, each struct's fields, and each enum's values.
func TestIDL(t *testing.T) {
	changes := map[string]string{
		"mirror_id, 2: i32 egress_port":               "mirror_id, 3: i32 egress_port",
		"1: i32 timeout_ms, 2: i32 time_since_hit_ms": "1: i32 time_since_hit_ms, 2: i32 timeout_ms",
		"2: optional i32 mgid":                        "2: i32 mgid",
		"1: string config_str":                        "1: binary config_str",
		"4: list<i32> sample_ids":                     "4: list<i64> sample_ids",
		"IMMUTABLE_TABLE_ENTRIES = 25":                "IMMUTABLE_TABLE_ENTRIES = 28",
		"bm_swap_configs() throws (1: SwapError e)":   "bm_swap_configs()",
		"(1: LookupError e)":                          "(2: LookupError e)",
		"bm_reset_state":                              "bm_reset",
	}
	enums := enumsOfGo(t)
	unseen := maps.Clone(enums)
	for name, calls := range services {
		text, err := os.ReadFile("idl/" + name + ".thrift")
		if err != nil {
			t.Fatal(err)
		}
		ours := map[string]string{}
		for call, m := range calls {
			ours[call] = goType(m.args) + " -> " + goType(m.result)
		}
		differ := func(text string) (out []string) {
			theirs, err := parseIDL(text)
			if err != nil {
				return []string{err.Error()}
			}
			out = differences(ours, theirs.calls)
			for e, values := range theirs.enums {
				delete(unseen, e)
				out = append(out, differences(enums[e], values)...)
			}
			return out
		}
		for _, d := range differ(string(text)) {
			t.Errorf("%s: %s", name, d)
		}
		for from, to := range changes { // The comparison must notice each of these changes.
			changed := strings.Replace(string(text), from, to, 1)
			if changed == string(text) {
				continue
			}
			if delete(changes, from); len(differ(changed)) == 0 {
				t.Errorf("%s: nobody would notice %q in place of %q", name, to, from)
			}
		}
	}
	if len(unseen) > 0 {
		t.Errorf("no file has the enums %v", unseen)
	}
	if len(changes) > 0 {
		t.Errorf("no file has what the test changes: %q", changes)
	}
	if files, _ := filepath.Glob("idl/*.thrift"); len(files) != len(services) {
		t.Errorf("%d services for the files %v", len(services), files)
	}
}

// differences lists the entries in which two maps differ.
func differences(ours, theirs map[string]string) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(ours)) {
		if ours[k] != theirs[k] {
			out = append(out, fmt.Sprintf("%s is %q here, %q in the file", k, ours[k], theirs[k]))
		}
	}
	for k := range theirs {
		if _, ok := ours[k]; !ok {
			out = append(out, fmt.Sprintf("%s is in the file only: %q", k, theirs[k]))
		}
	}
	return out
}

// plain converts a name to lower case without underscores, so that names of different languages
// compare equal.
func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// goType describes a Go type in the notation that parseIDL uses.
func goType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return goType(t.Elem())
	case reflect.Slice:
		if isBinary(t) {
			return "binary"
		}
		return "list<" + goType(t.Elem()) + ">"
	case reflect.Map:
		return "map<" + goType(t.Key()) + "," + goType(t.Elem()) + ">"
	case reflect.Struct:
		var out []string
		for i, f := range fieldsOf(t) {
			typ, kind := goType(t.Field(i).Type), t.Field(i).Type.Kind()
			if f.optional != (kind == reflect.Pointer) && kind != reflect.Slice {
				typ += ", which can be nil only if it is optional, "
			}
			out = append(out, fieldText(fmt.Sprint(f.id), f.optional, typ, t.Field(i).Name))
		}
		return "{" + strings.Join(out, ", ") + "}"
	case reflect.Int32:
		if t.PkgPath() != "" {
			return "enum " + t.Name()
		}
	}
	return map[reflect.Kind]string{reflect.Bool: "bool", reflect.Int16: "i16", reflect.Int32: "i32",
		reflect.Int64: "i64", reflect.Float64: "double", reflect.String: "string"}[t.Kind()]
}

func fieldText(id string, optional bool, typ, name string) string {
	if optional {
		typ = "optional " + typ
	}
	return id + " " + typ + " " + plain(name)
}

// enumsOfGo returns the enum values of package idl by type and name.
func enumsOfGo(t *testing.T) map[string]map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range []string{"idl/idl.go", "idl/codes.go"} {
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	// The type checker ignores errors because it does not load the imported packages.
	ignore := types.Config{Error: func(error) {}}
	pkg, _ := ignore.Check("idl", fset, files, nil)
	out := map[string]map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		enum := c.Type().(*types.Named).Obj().Name()
		if out[enum] == nil {
			out[enum] = map[string]string{}
		}
		n, _ := constant.Int64Val(c.Val())
		out[enum][plain(strings.TrimPrefix(name, enum))] = fmt.Sprint(n)
	}
	return out
}

// described is the content of a .thrift file.
type described struct {
	calls map[string]string            // the calls by name, in the form "{arguments} -> {answer}"
	enums map[string]map[string]string // the values of each enum by name
	types map[string]string            // the definitions of named types
}

var (
	word        = regexp.MustCompile(`\w+`)
	comment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	declaration = regexp.MustCompile(`(?s)^\s*(?:namespace go (\w+)|typedef ([\w<>]+) (\w+)|` +
		`(enum|struct|exception|service) (\w+) \{(.*?)\})`)
	enumValue = regexp.MustCompile(`^\s*(\w+) = (\d+),?`)
	idlField  = regexp.MustCompile(`^\s*(\d+): (optional )?([\w<>, ]*[\w>]) (\w+),?`)
	idlCall   = regexp.MustCompile(`(?s)^\s*([\w<>]+) (\w+)\(([^)]*)\)(?:\s+throws \(([^)]*)\))?`)
)

// each calls f for consecutive matches of re from the beginning of text. It returns an error for
// text that does not match, so that no part of a file is ignored.
func each(re *regexp.Regexp, text string, f func(m []string) error) error {
	for strings.TrimSpace(text) != "" {
		m := re.FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf("the test cannot read %.60q", text)
		}
		if err := f(m); err != nil {
			return err
		}
		text = text[len(m[0]):]
	}
	return nil
}

func parseIDL(text string) (*described, error) {
	d := &described{calls: map[string]string{}, enums: map[string]map[string]string{},
		types: map[string]string{}}
	return d, each(declaration, comment.ReplaceAllString(text, ""), func(m []string) (err error) {
		switch {
		case m[2] != "":
			d.types[m[3]], err = d.resolve(m[2])
		case m[4] == "enum":
			values := map[string]string{}
			d.enums[m[5]], d.types[m[5]] = values, "enum "+m[5]
			err = each(enumValue, m[6], func(v []string) error { values[plain(v[1])] = v[2]; return nil })
		case m[4] == "service":
			err = each(idlCall, m[6], d.call)
		case m[4] != "":
			var fields []string
			fields, err = d.fields(m[6], func(id, name string) string { return name })
			d.types[m[5]] = "{" + strings.Join(fields, ", ") + "}"
		}
		return err
	})
}

// call adds a call to d. It names arguments and answers as type method does.
func (d *described) call(m []string) error {
	args, err := d.fields(m[3], func(id, _ string) string { return "Arg" + id })
	if err != nil {
		return err
	}
	var result []string
	if m[1] != "void" {
		typ, err := d.resolve(m[1])
		if err != nil {
			return err
		}
		result = append(result, fieldText("0", true, typ, success))
	}
	throws, err := d.fields(strings.ReplaceAll(m[4], ": ", ": optional "),
		func(string, string) string { return exception })
	if err != nil {
		return err
	}
	d.calls[m[2]] = "{" + strings.Join(args, ", ") + "} -> {" +
		strings.Join(append(result, throws...), ", ") + "}"
	return nil
}

func (d *described) fields(text string, name func(id, name string) string) (out []string,
	err error) {
	err = each(idlField, text, func(m []string) error {
		typ, err := d.resolve(m[3])
		out = append(out, fieldText(m[1], m[2] != "", typ, name(m[1], m[4])))
		return err
	})
	return out, err
}

// resolve replaces the named types in a type by their definitions.
func (d *described) resolve(typ string) (out string, err error) {
	out = word.ReplaceAllStringFunc(strings.ReplaceAll(typ, " ", ""),
		func(name string) string {
			switch name {
			case "bool", "i16", "i32", "i64", "double", "string", "binary", "list", "map":
				return name
			}
			if d.types[name] == "" {
				err = fmt.Errorf("the test knows no type %q", name)
			}
			return d.types[name]
		})
	return out, err
}
