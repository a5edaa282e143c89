package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/refpage"
)

// eventPrefixes are the titles of the groups of events, by the first word of the type.
var eventPrefixes = map[string]string{
	"chain":      "Chains",
	"controller": "The controller",
	"keys":       "Keys",
	"lease":      "Leases of switches",
	"network":    "The network",
	"placement":  "Placement of etcd's keys",
	"sessions":   "Sessions",
	"state":      "The controller's state",
	"switch":     "Switches",
}

// TestEvents checks that api/admin.EventTypes has exactly the events that the controller emits, and
// that the reference page has all of them.
func TestEvents(t *testing.T) {
	emitted := emittedEvents(t)
	if len(emitted) < 50 {
		t.Fatalf("only %d types of events were found below controlplane", len(emitted))
	}
	var page strings.Builder
	page.WriteString(refpage.Head("Events", "`api/admin/events.go`",
		"The controller emits an event when something happens to a chain, a switch or a key. `netcraqctl\n"+
			"events` shows past events, and `netcraqctl chain watch` shows new ones. Each has a type, the names\n"+
			"of its switch and its chain if it is about any, and a message with the details. Programs test the\n"+
			"type; messages are for people and may change.\n\n"+
			"[Watching](../operations.md#watching) has alerts on some of them. `netcraq_controller_events_total`\n"+
			"([metrics](metrics.md)) counts all of them by type."))
	explained := map[string]bool{}
	last, group := "", ""
	for _, e := range admin.EventTypes {
		if e.Type <= last {
			t.Errorf("api/admin.EventTypes: %q comes after %q: the order is alphabetical, and each has one entry", e.Type, last)
		}
		if emitted[e.Type] == "" {
			t.Errorf("api/admin.EventTypes: nothing below controlplane emits %q: remove it", e.Type)
		}
		if !strings.HasSuffix(e.Meaning, ".") || e.Do != "" && !strings.HasSuffix(e.Do, ".") {
			t.Errorf("api/admin.EventTypes: the texts of %q are not sentences", e.Type)
		}
		last, explained[e.Type] = e.Type, true
		prefix, _, _ := strings.Cut(e.Type, ".")
		if prefix != group {
			group = prefix
			if eventPrefixes[prefix] == "" {
				t.Errorf("eventPrefixes has no title for %q", prefix)
			}
			page.WriteString("\n## " + eventPrefixes[prefix] + "\n\n" +
				refpage.Row("event", "meaning", "what to do") + refpage.Row("---", "---", "---"))
		}
		page.WriteString(refpage.Row("`"+e.Type+"`", e.Meaning, e.Do))
	}
	for _, kind := range slices.Sorted(maps.Keys(emitted)) {
		if !explained[kind] {
			t.Errorf("%s: api/admin.EventTypes does not have %q: add it", emitted[kind], kind)
		}
	}
	refpage.Check(t, root, "events.md", page.String())
}

// eventEmitters are the functions and methods whose first argument is the type of an event. Each
// emitter passes the type to another emitter or puts it into an Event. Other functions may have the
// same name, for example the method Add of a set. So a call counts only if its number of arguments
// is between least and most.
var eventEmitters = map[string]struct{ least, most int }{
	"event":    {3, math.MaxInt}, // a method of chain.Machine
	"Event":    {3, 3},           // a method of switches.Owner
	"Add":      {4, 4},           // a method of observe.Log
	"Announce": {3, 3},           // a method of placement's network
	"reroute":  {3, 3},           // a method of Controller
}

// emittedEvents returns the types of events that the code below controlplane emits, each with one
// place in the code that emits it. It fails if it cannot determine the values of an expression.
func emittedEvents(t *testing.T) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	s := eventScan{t: t, fset: fset, faults: placementFaults(t), found: map[string]string{}}
	err := filepath.WalkDir(root+"/controlplane", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				s.function(f)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.found
}

// eventScan searches functions for types of events.
type eventScan struct {
	t      *testing.T
	fset   *token.FileSet
	faults []string
	found  map[string]string // a place in the code that emits each type
}

// function finds the events that a function emits.
func (s *eventScan) function(f *ast.FuncDecl) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if kind := emittedType(n); kind != nil {
				s.values(f, kind)
			}
		case *ast.CompositeLit:
			if kind := eventLiteralType(n); kind != nil {
				s.values(f, kind)
			}
		}
		return true
	})
}

// emittedType returns the argument of a call that is the type of an event, or nil if the call emits
// none.
func emittedType(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	emitter, ok := eventEmitters[method.Sel.Name]
	if n := len(call.Args); !ok || n < emitter.least || n > emitter.most {
		return nil
	}
	return call.Args[0]
}

// eventLiteralType returns the field Type of a literal of an Event, or nil for another literal.
func eventLiteralType(literal *ast.CompositeLit) ast.Expr {
	name, ok := literal.Type.(*ast.Ident)
	if of, isSelector := literal.Type.(*ast.SelectorExpr); isSelector {
		name, ok = of.Sel, true
	}
	if !ok || name.Name != "Event" {
		return nil
	}
	for _, e := range literal.Elts {
		if field, ok := e.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "Type" {
			return field.Value
		}
	}
	return nil
}

// values records the types that an expression in a function can have.
func (s *eventScan) values(f *ast.FuncDecl, e ast.Expr) {
	at := s.fset.Position(e.Pos())
	switch e := e.(type) {
	case *ast.BasicLit:
		kind, err := strconv.Unquote(e.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		s.found[kind] = fmt.Sprintf("%s:%d", strings.TrimPrefix(at.Filename, root+"/"), at.Line)
		return
	case *ast.Ident: // The expression is a parameter that is passed on, or a variable.
		if takesType(f, e.Name) {
			return
		}
		if assigned := assignments(f, e.Name); len(assigned) > 0 {
			for _, value := range assigned {
				s.values(f, value)
			}
			return
		}
	case *ast.IndexExpr:
		// The expression is like map[bool]string{true: "chain.compared", false: "chain.copied"}[x].
		if choices, ok := e.X.(*ast.CompositeLit); ok {
			for _, choice := range choices.Elts {
				s.values(f, choice.(*ast.KeyValueExpr).Value)
			}
			return
		}
	case *ast.BinaryExpr: // The expression is like "placement."+string(fault).
		prefix, ok := e.X.(*ast.BasicLit)
		if ok && e.Op == token.ADD && prefix.Value == `"placement."` && isConversionOf(e.Y, "fault") {
			for _, fault := range s.faults {
				s.values(f, &ast.BasicLit{ValuePos: e.Pos(), Kind: token.STRING, Value: strconv.Quote("placement." + fault)})
			}
			return
		}
	case *ast.SelectorExpr: // Here the controller passes on the events of a chain.Machine.
		if of, ok := e.X.(*ast.Ident); ok && of.Name == "a" && e.Sel.Name == "Type" {
			return
		}
	}
	s.t.Errorf("%s: cannot determine which types of events this emits: use a string literal", at)
}

// takesType returns whether a function is an emitter and name is its parameter for the type.
func takesType(f *ast.FuncDecl, name string) bool {
	_, ok := eventEmitters[f.Name.Name]
	return ok && len(f.Type.Params.List) > 0 && f.Type.Params.List[0].Names[0].Name == name
}

// assignments returns the values that a function assigns to one of its variables.
func assignments(f *ast.FuncDecl, name string) (out []ast.Expr) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			for i, to := range a.Lhs {
				if v, ok := to.(*ast.Ident); ok && v.Name == name {
					// A single call may return several values.
					out = append(out, a.Rhs[min(i, len(a.Rhs)-1)])
				}
			}
		}
		return true
	})
	return out
}

// isConversionOf returns whether an expression converts the variable `name` to a string.
func isConversionOf(e ast.Expr, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	to, ok := call.Fun.(*ast.Ident)
	of, isVariable := call.Args[0].(*ast.Ident)
	return ok && isVariable && to.Name == "string" && of.Name == name
}

// placementFaults returns the faults of placed keys. Each is an event "placement.FAULT".
func placementFaults(t *testing.T) (faults []string) {
	t.Helper()
	for _, c := range constants(t, "client/etcd/placement/key_fault.go", "Fault") {
		if c.value != "" {
			faults = append(faults, c.value)
		}
	}
	if len(faults) < 3 {
		t.Fatalf("only %d faults were found", len(faults))
	}
	return faults
}
