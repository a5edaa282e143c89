package reference

import (
	"cmp"
	"go/ast"
	value "go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
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

// sections are the programs that serve metrics, with the folders that declare the metrics.
var sections = []section{
	{"The controller", []string{"controlplane"}},
	{"The gateway, `etcd-monitor`", []string{"etcd-monitor", "client/etcd"}},
	{"The node API, of `netcraq-sidecar` and of the agent", []string{"nodeapi", "cni-plugin/kube/podapi"}},
	{"Streams, of the same programs", []string{"streams"}},
	{"The agent", []string{"cni-plugin"}},
	{"Pipelets", []string{"pipelets"}},
	{"Every program", []string{"internal"}},
}

type section struct {
	title   string
	folders []string
}

// metric is a row of the reference page.
type metric struct{ name, labels, help string }

// TestMetrics checks that the reference page has every metric that the code declares.
func TestMetrics(t *testing.T) {
	var page strings.Builder
	page.WriteString(refpage.Head("Metrics", "the declarations of metrics in the code",
		"Each program answers `GET /metrics` in Prometheus's text format. A histogram `NAME` has the series\n"+
			"`NAME_bucket`, `NAME_sum` and `NAME_count`. [Watching](../operations.md#watching) says how to scrape\n"+
			"them."))
	rows := make([]map[string]metric, len(sections))
	for i := range rows {
		rows[i] = map[string]metric{}
	}
	controller := observe.NewMetrics().Registry
	controller.MustRegister(observe.NewSwitchEvents(nil), observe.NewUnsentPackets(nil))
	described(t, controller, rows[0])
	described(t, hotkeys.NewMetrics(hotkeys.Bounds{}, nil), rows[1])
	delete(rows[0], "netcraq_build_info") // every program has this metric
	set := token.NewFileSet()
	for folder, files := range packages(t, set) {
		i := slices.IndexFunc(sections, func(s section) bool {
			return slices.ContainsFunc(s.folders, func(f string) bool { return strings.HasPrefix(folder+"/", f+"/") })
		})
		if i >= 0 {
			declared(t, set, files, rows[i])
			continue
		}
		others := map[string]metric{}
		if declared(t, set, files, others); len(others) > 0 {
			t.Errorf("%s declares metrics, but no section of the page has this folder", folder)
		}
	}
	for i, s := range sections {
		if len(rows[i]) == 0 {
			t.Errorf("%s: no metric was found in %q", s.title, s.folders)
		}
		page.WriteString("\n## " + s.title + "\n\n" + refpage.Row("metric", "labels", "meaning") +
			refpage.Row("---", "---", "---"))
		byName := func(a, b metric) int { return cmp.Compare(a.name, b.name) }
		for _, m := range slices.SortedFunc(values(rows[i]), byName) {
			page.WriteString(refpage.Row("`"+m.name+"`", m.labels, m.help))
		}
	}
	refpage.Check(t, root, "metrics.md", page.String())
}

func values(m map[string]metric) func(func(metric) bool) {
	return func(yield func(metric) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// description matches the text form of a prometheus.Desc.
var description = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*variableLabels: \{([^}]*)\}`)

// described adds the metrics that a collector describes.
func described(t *testing.T, c prometheus.Collector, rows map[string]metric) {
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
		rows[name] = metric{name, labels(strings.Split(said[3], ",")), help}
	}
	if len(rows) < 10 {
		t.Fatalf("only %d metrics were found", len(rows))
	}
}

// labels formats label names for a cell of the table.
func labels(names []string) string {
	if len(names) == 0 || names[0] == "" {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// packages returns the Go files of the programs by folder, without tests, examples and experiments.
func packages(t *testing.T, set *token.FileSet) map[string][]*ast.File {
	t.Helper()
	all := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inTree, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); inTree != "." && (strings.HasPrefix(name, ".") || name == "node_modules") ||
				slices.Contains([]string{"out", "dist", "test", "experiments", "examples"}, inTree) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err == nil {
			all[filepath.Dir(inTree)] = append(all[filepath.Dir(inTree)], file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// declared adds the metrics that a package declares. If the name of a metric contains a variable,
// described must have added the metric before. In that case, rows has a metric whose name begins
// with the constant part.
func declared(t *testing.T, set *token.FileSet, files []*ast.File, rows map[string]metric) {
	t.Helper()
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	// Other packages are not imported, which causes type errors. Nevertheless, constants get their
	// values.
	config := types.Config{Error: func(error) {}, Importer: nil, FakeImportC: true}
	folder := filepath.Dir(set.File(files[0].Pos()).Name())
	_, _ = config.Check(folder, set, files, info)
	add := func(name, help, names ast.Expr) {
		whole, known := text(info, name)
		switch {
		case !known && !slices.ContainsFunc(slices.Collect(values(rows)), func(m metric) bool {
			return whole != "" && strings.HasPrefix(m.name, whole)
		}):
			t.Errorf("%s: a metric's name, %q and more, cannot be read from the source. Make it a constant, or let\n"+
				"described read its collector", folder, whole)
		case known && (strings.HasPrefix(whole, "netcraq_") || strings.HasPrefix(whole, "etcd_monitor_")):
			meaning, _ := text(info, help)
			if meaning == "" {
				t.Errorf("%s: the metric %s has no help", folder, whole)
			}
			if _, there := rows[whole]; !there {
				rows[whole] = metric{whole, labels(list(info, files, names)), meaning}
			}
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if function.Sel.Name == "NewDesc" && len(call.Args) == 4 {
				add(call.Args[0], call.Args[1], call.Args[2])
				return true
			}
			opts, ok := call.Args[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			name, help, fixed := field(opts, "Name"), field(opts, "Help"), field(opts, "ConstLabels")
			kind, ok := opts.Type.(*ast.SelectorExpr)
			if ok && strings.HasSuffix(kind.Sel.Name, "Opts") && name != nil && help != nil {
				if strings.HasSuffix(function.Sel.Name, "Vec") && len(call.Args) > 1 {
					fixed = call.Args[1]
				}
				add(name, help, fixed)
			}
			return true
		})
	}
}

// field returns the value of a field in a composite literal.
func field(c *ast.CompositeLit, name string) ast.Expr {
	for _, e := range c.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				return pair.Value
			}
		}
	}
	return nil
}

// text returns the value of a constant string, or its beginning up to the first variable.
func text(info *types.Info, e ast.Expr) (string, bool) {
	if v := info.Types[e].Value; v != nil && v.Kind() == value.String {
		return value.StringVal(v), true
	}
	switch e := e.(type) {
	case *ast.BasicLit: // The literal is, for example, a key in a map of another package's type.
		one, err := strconv.Unquote(e.Value)
		return one, err == nil
	case *ast.BinaryExpr:
		left, whole := text(info, e.X)
		if !whole {
			return left, false
		}
		right, whole := text(info, e.Y)
		return left + right, whole
	}
	return "", false
}

// list returns the strings in a list, or the keys of a map. If the expression is a variable of the
// package, list uses the variable's value.
func list(info *types.Info, files []*ast.File, e ast.Expr) (all []string) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				element = pair.Key
			}
			if one, ok := text(info, element); ok {
				all = append(all, one)
			}
		}
	case *ast.Ident:
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && v.Names[0].Name == e.Name {
					all = list(info, files, v.Values[0])
				}
				return true
			})
		}
	}
	return all
}
