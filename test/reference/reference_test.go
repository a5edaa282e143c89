// Package reference writes the pages of docs/reference that are read from the code, and checks that
// the committed ones are those.
package reference

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/netcraq/netcraq/controlplane/controller/observe"
	"github.com/netcraq/netcraq/etcd-monitor/hotkeys"
	"github.com/netcraq/netcraq/internal/refpage"
)

const root = "../.."

// TestErrors: the page has every code of the node API, with the comment alongside it.
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

// constant is a constant's text, and the comment alongside it.
type constant struct{ value, comment string }

// constants are the texts that a Go file declares as constants of a type, in its order.
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

// event is a constant of events.p4 with the comment alongside it.
var event = regexp.MustCompile(`(?m)^const bit<8> EVENT_(\w+) += (\d+);(?: +// (.*))?$`)

// TestCounters: the page has every event that a switch counts.
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

// description is what a Desc says about itself.
var description = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}`)

// TestMetrics: the page has every metric of the controller and of the gateway.
func TestMetrics(t *testing.T) {
	var page strings.Builder
	page.WriteString(refpage.Head("Metrics", "the collectors of `controlplane/controller/observe` and `etcd-monitor/hotkeys`",
		"The controller and the gateway answer `GET /metrics` in Prometheus's text format. A histogram\n"+
			"`NAME` has the series `NAME_bucket`, `NAME_sum` and `NAME_count`. [Watching](../operations.md#watching)\n"+
			"says how to scrape them."))
	controller := observe.NewMetrics().Registry
	controller.MustRegister(observe.NewSwitchEvents(nil), observe.NewUnsentPackets(nil))
	for _, part := range []struct {
		title     string
		collector prometheus.Collector
	}{
		{"The controller", controller},
		{"The gateway, `etcd-monitor`", hotkeys.NewMetrics(hotkeys.Bounds{}, nil)},
	} {
		rows := metrics(t, part.collector)
		page.WriteString("\n## " + part.title + "\n\n" + refpage.Row("metric", "labels", "meaning") +
			refpage.Row("---", "---", "---") + strings.Join(rows, ""))
	}
	refpage.Check(t, root, "metrics.md", page.String())
}

// metrics are rows with all metrics that a collector describes, in order.
func metrics(t *testing.T, c prometheus.Collector) (rows []string) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		said := description.FindStringSubmatch(d.String())
		if said == nil {
			t.Fatalf("cannot read %s", d)
		}
		name, err := strconv.Unquote(said[1])
		if err != nil {
			t.Fatal(err)
		}
		help, err := strconv.Unquote(said[2])
		if err != nil {
			t.Fatal(err)
		}
		labels := ""
		if said[3] != "" {
			labels = "`" + strings.Join(strings.Split(said[3], ","), "`, `") + "`"
		}
		rows = append(rows, refpage.Row("`"+name+"`", labels, help))
	}
	if len(rows) < 10 {
		t.Fatalf("only %d metrics were found", len(rows))
	}
	slices.Sort(rows)
	return rows
}
