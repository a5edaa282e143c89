// Package reference generates the pages of docs/reference from the code, and checks that the
// committed pages match.
package reference

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/refpage"
)

const root = "../.."

// TestErrors checks that the reference page has every error code of the node API, with the comment
// next to it.
func TestErrors(t *testing.T) {
	const source = "api/nodeapi/node.go"
	var page strings.Builder
	page.WriteString(refpage.Head("Errors of the node API", "`"+source+"`",
		"Programs test `code`; `message` and `do` are for people and may change. The libraries have the same\n"+
			"codes. [The node API](../node-api.md#errors) says what to do about each."))
	page.WriteString("\n" + refpage.Row("code", "meaning") + refpage.Row("---", "---"))
	codes := constants(t, source, "Code")
	for _, code := range codes {
		page.WriteString(refpage.Row("`"+code.value+"`", cmp.Or(code.comment, "a fault of the server; report it")))
	}
	if len(codes) < 10 {
		t.Fatalf("only %d codes were found in %s", len(codes), source)
	}
	refpage.Check(t, root, "errors.md", page.String())
}

// constant is the value of a string constant, and the comment next to it.
type constant struct{ value, comment string }

// constants returns the string constants of a type in a Go file, in the file's order.
func constants(t *testing.T, source, of string) (all []constant) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), root+"/"+source, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != of {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, constant{value, strings.TrimSpace(spec.Comment.Text())})
		return true
	})
	return all
}

// event matches a constant in events.p4, with the comment next to it.
var event = regexp.MustCompile(`(?m)^const bit<8> EVENT_(\w+) += (\d+);(?: +// (.*))?$`)

// TestCounters checks that the reference page has every event that a switch counts.
func TestCounters(t *testing.T) {
	const source = "p4src/include/events.p4"
	text, err := os.ReadFile(root + "/" + source)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(refpage.Head("Counters of a switch", "`"+source+"`",
		"Each packet counts one event at each switch that it passes. `netcraq switch counters` shows them by\n"+
			"these names, and the number is the index into the P4 counter `events`."))
	page.WriteString("\n" + refpage.Row("event", "number", "meaning") + refpage.Row("---", "---", "---"))
	events := event.FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "const bit<8> EVENT_"); len(events) != n {
		t.Fatalf("%d of %d events were read", len(events), n)
	}
	for _, e := range events {
		page.WriteString(refpage.Row("`"+strings.ToLower(e[1])+"`", e[2], e[3]))
	}
	page.WriteString("\nThe controller counts `unsent` for each switch, and the command shows it with the events: the\n" +
		"controller's own packets that it dropped before they reached the switch, because too many waited or\n" +
		"the stream ended. They are not in the P4 counter.\n")
	refpage.Check(t, root, "counters.md", page.String())
}
