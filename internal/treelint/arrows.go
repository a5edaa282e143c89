package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/netcraq/netcraq/"

// floors lists the top-level folders, the lowest first. Shipped code imports only from lower floors
// and from its own folder. internal/ is open to all of them.
var floors = [][]string{
	{"api"},
	{"p4src"},
	{"switch", "client"},
	{"streams"},
	{"controlplane", "etcd-monitor", "nodeapi", "pipelets"},
	// netcraq dev runs a controller, the node API and a gateway in one process. So commands are on
	// a higher floor than these parts, like the node agents.
	{"cni-plugin", "cmd"},
	{"netchain-baseline"},
	{"experiments"},
	{"examples", "test"},
}

// arrowRule limits a folder's imports of project packages or, if pure is set, of any package.
type arrowRule struct {
	name string
	in   []string // the folders, including their subfolders
	may  []string // all project packages that these folders may import
	pure bool     // also forbids files, networks, processes, goroutines and clocks in these folders
}

var arrowRules = []arrowRule{
	{name: "examples-use-the-libraries", in: []string{"examples"}, may: []string{"client"}},
	{name: "api-imports-nothing", in: []string{"api"}, may: []string{"api"}},
	{name: "switch-is-a-leaf", in: []string{"switch"}, may: []string{"switch", "api/buildinfo", "api/clock", "api/gunzip"}},
	{
		name: "target-is-a-contract",
		in:   []string{"switch/target"},
		may:  []string{"switch/target", "switch/bmv2json"},
	},
	{name: "ebpf-rooms", in: []string{"switch/ebpf/asm"}, may: []string{"switch/ebpf/asm"}},
	{
		name: "ebpf-rooms",
		in:   []string{"switch/ebpf/ir"},
		may: []string{
			"switch/ebpf/asm",
			"switch/ebpf/ir",
			"switch/bmv2json",
			"switch/interval",
			"switch/target",
		},
	},
	{
		name: "ebpf-rooms",
		in:   []string{"switch/ebpf/compile"},
		may: []string{"switch/ebpf/asm", "switch/ebpf/ir", "switch/ebpf/compile",
			"switch/bmv2json", "switch/interval", "switch/udpmatch", "api/clock"},
	},
	{
		name: "ebpf-rooms",
		in:   []string{"switch/ebpf/runtime"},
		may: []string{"switch/ebpf/ir", "switch/ebpf/compile", "switch/ebpf/runtime",
			"switch/bmv2json", "switch/target"},
	},
	{
		name: "ebpf-rooms",
		in:   []string{"switch/ebpf/attach"},
		may:  []string{"switch/ebpf/attach", "switch/offload", "switch/netlinkdump"},
	},
	{
		name: "interp-rooms",
		in:   []string{"switch/interp/internal/wideint", "switch/interp/internal/refusal"},
		may: []string{"switch/interp/internal/wideint", "switch/interp/internal/refusal",
			"switch/interval", "switch/target"},
	},
	{
		name: "interp-rooms",
		in:   []string{"switch/interp/internal/packet"},
		may: []string{"switch/interp/internal/packet", "switch/interp/internal/wideint",
			"switch/bmv2json"},
	},
	{
		name: "interp-rooms",
		in: []string{"switch/interp/internal/arrays", "switch/interp/internal/calculation",
			"switch/interp/internal/matchtables", "switch/interp/internal/packetevents"},
		may: []string{"switch/interp/internal/arrays", "switch/interp/internal/calculation",
			"switch/interp/internal/packet", "switch/interp/internal/refusal",
			"switch/interp/internal/matchtables", "switch/interp/internal/wideint",
			"switch/bmv2json", "switch/target"},
	},
	{
		name: "interp-rooms",
		in:   []string{"switch/interp/internal/expression"},
		may: []string{"switch/interp/internal/arrays", "switch/interp/internal/expression",
			"switch/interp/internal/packet", "switch/interp/internal/refusal",
			"switch/interp/internal/wideint", "switch/bmv2json", "switch/interval"},
	},
	{
		name: "pure-core",
		in: []string{
			"controlplane/chain",
			"controlplane/keyspace",
			"controlplane/placement/policy",
			"client/calls",
			"client/etcd/guarded",
			"nodeapi/watch/watchrules",
			"pipelets/exactlyonce",
			"streams/ledger",
			"switch/interp",
			"switch/interval",
		},
		may: []string{
			"api",
			"controlplane/chain",
			"controlplane/keyspace",
			"controlplane/placement/policy",
			"client/calls",
			"client/etcd/etcderrors",
			"client/etcd/guarded",
			"client/etcd/placement",
			"client/etcd/readsource",
			"client/etcd/reserved",
			"client/etcd/seal",
			"client/etcd/slotcodec",
			"nodeapi/store",
			"nodeapi/watch/watchrules",
			"pipelets/exactlyonce",
			"streams/ledger",
			"switch",
		},
		pure: true,
	},
	{name: "controller-takes-what-it-is-given", in: []string{"controlplane/controller"},
		may: []string{
			"api",
			"controlplane/chain",
			"controlplane/controller",
			"controlplane/keyspace",
			"controlplane/p4rt",
			"controlplane/sessions",
			"controlplane/topology",
			"internal",
		}},
	{
		name: "controller-rooms",
		in:   []string{"controlplane/controller/tableplan"},
		may: []string{"api/wire", "controlplane/chain", "controlplane/controller/tableplan", "controlplane/keyspace",
			"controlplane/p4rt", "controlplane/topology"},
		pure: true,
	},
	{
		name: "controller-rooms",
		in:   []string{"controlplane/controller/program"},
		may: []string{"api/wire", "controlplane/controller/tableplan", "controlplane/controller/program",
			"controlplane/keyspace", "controlplane/p4rt", "controlplane/topology"},
		pure: true,
	},
	{
		name: "controller-rooms",
		in:   []string{"controlplane/controller/saved"},
		may: []string{"api/wire", "controlplane/chain", "controlplane/controller/saved", "controlplane/keyspace",
			"controlplane/sessions", "controlplane/topology", "internal/atomicfile"},
	},
	{
		name: "controller-rooms",
		in:   []string{"controlplane/controller/observe"},
		may:  []string{"api/admin", "controlplane/chain", "controlplane/controller/observe", "internal/buildmetric"},
	},
	{
		name: "controller-rooms",
		in:   []string{"controlplane/controller/switches"},
		may: []string{"api", "controlplane/chain", "controlplane/controller/tableplan", "controlplane/controller/program",
			"controlplane/controller/switches", "controlplane/keyspace", "controlplane/p4rt", "controlplane/topology"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/rules", "controlplane/sim/clockwork", "controlplane/sim/logbook"},
		may:  []string{"api/wire"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/coroutine"},
		may:  []string{"controlplane/sim/clockwork"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/judge"},
		may:  []string{"api/wire", "internal/linearizable"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/mutants"},
		may:  []string{"controlplane/sim/judge", "controlplane/sim/rules"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/compiled"},
		may:  []string{"api/wire", "controlplane/p4rt", "p4src", "switch/bmv2json", "switch/target"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/shapes"},
		may: []string{"api/wire", "controlplane/controller/tableplan", "controlplane/sim/compiled",
			"controlplane/topology"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/world"},
		may: []string{"api/wire", "client/calls", "controlplane/chain", "controlplane/controller/tableplan",
			"controlplane/controller/program", "controlplane/controller/saved", "controlplane/etcdstore",
			"controlplane/keyspace", "controlplane/p4rt", "controlplane/sessions", "controlplane/sim/clockwork",
			"controlplane/sim/compiled", "controlplane/sim/coroutine",
			"controlplane/sim/judge", "controlplane/sim/logbook", "controlplane/sim/rules", "controlplane/sim/shapes",
			"controlplane/sim/world", "controlplane/topology", "switch/interp", "switch/target"},
	},
	{
		name: "sim-rooms",
		in:   []string{"controlplane/sim/trouble"},
		may: []string{"api", "client/calls", "controlplane/chain", "controlplane/keyspace", "controlplane/sim/clockwork",
			"controlplane/sim/compiled", "controlplane/sim/judge", "controlplane/sim/logbook", "controlplane/sim/rules",
			"controlplane/sim/shapes", "controlplane/sim/world", "controlplane/topology"},
	},
	{
		name: "gateway-asks-by-the-node",
		in:   []string{"etcd-monitor"},
		may:  []string{"api", "client", "etcd-monitor", "internal"},
	},
	{
		name: "node-api-asks-by-the-client",
		in:   []string{"nodeapi"},
		may:  []string{"api", "client", "internal", "nodeapi", "streams"},
	},
	{
		name: "pipelets-ask-by-clients",
		in:   []string{"pipelets"},
		may:  []string{"api", "client", "internal", "pipelets"},
	},
	{
		name: "kube-decides-apart",
		in:   []string{"cni-plugin/kube/chainplan"},
		may: []string{"api", "client/etcd/placement", "cni-plugin/api", "cni-plugin/kube/chainplan",
			"cni-plugin/kube/nodeview", "controlplane/placement/policy"},
		pure: true,
	},
	{
		name: "kube-decides-apart",
		in: []string{"cni-plugin/kube/netplan", "cni-plugin/kube/nodeclaims", "cni-plugin/kube/nodeview",
			"cni-plugin/kube/adminrights"},
		may: []string{"api", "cni-plugin/agentapi", "cni-plugin/api", "cni-plugin/fabric", "cni-plugin/kube/netplan",
			"cni-plugin/kube/nodeclaims", "cni-plugin/kube/nodeview", "cni-plugin/nodeswitch", "cni-plugin/podroutes",
			"controlplane/adminserver", "controlplane/topology", "nodeapi/authority", "p4src"},
	},
	{
		name: "streams-know-no-keys",
		in:   []string{"streams"},
		may:  []string{"api", "internal", "streams"},
	},
}

// shelf is a folder whose packages are ordered. Each package imports only packages earlier in the
// list. The folder's own package comes last, and may import all packages of the list.
type shelf struct {
	in       string
	packages []string
	// decide is the number of packages, counted from the first, that only return plain data. They
	// may not import writers, which the other packages use to write instructions.
	decide  int
	writers []string
}

var shelves = []shelf{{
	in: "switch/ebpf/compile",
	packages: []string{
		"analysis", "affine", "known", "memory", "paths",
		"emit", "locking", "hashing", "delivery", "headers", "externs", "tables", "control",
	},
	decide:  5,
	writers: []string{"github.com/cilium/ebpf/asm", module + "switch/ebpf/asm"},
}}

// wrong returns the error for an import in one of a shelf's packages, or "" if the import is
// permitted.
func (s shelf) wrong(from, imported string) string {
	at := func(folder string) int {
		rest, ok := strings.CutPrefix(folder, s.in)
		switch {
		case !ok || rest != "" && rest[0] != '/':
			return -1
		case rest == "":
			return len(s.packages)
		}
		part, _, _ := strings.Cut(rest[1:], "/")
		if i := slices.Index(s.packages, part); i >= 0 {
			return i
		}
		return len(s.packages) + 1 // the package is not in the list yet
	}
	own := at(from)
	to, ours := strings.CutPrefix(imported, module)
	switch {
	case own < 0:
		return ""
	case own > len(s.packages):
		return "and has no place yet in the order of " + s.in
	case ours && at(to) > own:
		return "which comes after it in the order of " + s.in
	case slices.Contains(s.writers, imported) && own < s.decide:
		return "and is to yield data, from which others write instructions"
	}
	return ""
}

// impure lists packages that a pure core may not import.
var impure = []string{
	"net",
	"net/http",
	"os",
	"os/exec",
	"syscall",
	"go.etcd.io/etcd/client/v3",
	"golang.org/x/sys/unix",
	"google.golang.org/grpc",
	"k8s.io/client-go/rest",
	"sigs.k8s.io/controller-runtime/pkg/client",
}

// clocks lists functions of packages time and clock that a pure core may not use, because its
// caller passes the time.
var clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Raw", "Since", "Sleep", "Tick", "Until"}

// checkImports reports each import that leads to a higher floor, or that a rule of the folder
// forbids. Tests may import anything.
func checkImports(name string, text []byte) (out []string) {
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ImportsOnly)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", name, err)}
	}
	from := path.Dir(name)
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		line := fset.Position(spec.Pos()).Line
		complain := func(rule, why string) {
			out = append(
				out,
				fmt.Sprintf(
					"%s:%d: %s: imports %s, %s",
					name,
					line,
					rule,
					strings.TrimPrefix(imported, module),
					why,
				),
			)
		}
		to, ours := strings.CutPrefix(imported, module)
		if ours && goesUp(from, to) {
			complain("arrows-go-down", "which stands on its floor or above")
		}
		if ours && inside(to, "internal/testutil") && !helpsTests(from) {
			complain("testutil-is-for-tests", "which only tests and packages named *test import")
		}
		for _, s := range shelves {
			if why := s.wrong(from, imported); why != "" {
				complain("compiler-shelf", why)
			}
		}
		for _, r := range arrowRules {
			switch {
			case !slices.ContainsFunc(r.in, func(room string) bool { return inside(from, room) }):
			case ours && !slices.ContainsFunc(r.may, func(room string) bool { return inside(to, room) }):
				complain(r.name, "and may import only "+strings.Join(r.may, ", "))
			case r.pure && slices.Contains(impure, imported):
				complain(r.name, "and is without files, networks and processes")
			}
		}
	}
	if slices.ContainsFunc(arrowRules, func(r arrowRule) bool {
		return r.pure && slices.ContainsFunc(r.in, func(room string) bool { return inside(from, room) })
	}) {
		out = append(out, checkPure(name, text)...)
	}
	return out
}

// checkPure reports each goroutine that a pure core starts, and each use of a clock.
func checkPure(name string, text []byte) (out []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, 0)
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", name, err)}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		complain := func(what string) {
			out = append(out, fmt.Sprintf("%s:%d: pure-core: %s", name, fset.Position(n.Pos()).Line, what))
		}
		switch n := n.(type) {
		case *ast.GoStmt:
			complain("starts a goroutine, which its shell is to do")
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && (x.Name == "time" || x.Name == "clock") && slices.Contains(clocks, n.Sel.Name) {
				complain("looks at a clock, of which its shell is to tell it")
			}
		}
		return true
	})
	return out
}

// goesUp reports whether an import leads to another folder of the same floor, or to a higher floor.
func goesUp(from, to string) bool {
	top := func(p string) string { first, _, _ := strings.Cut(p, "/"); return first }
	a, b := top(from), top(to)
	if a == b || b == "internal" {
		return false
	}
	floor := func(folder string) int {
		return slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, folder) })
	}
	if a == "internal" {
		return floor(b) != 0
	}
	return floor(b) >= floor(a) && floor(a) >= 0
}

// helpsTests reports whether a folder's non-test files are helpers of tests.
func helpsTests(folder string) bool {
	return inside(folder, "test") || inside(folder, "internal/testutil") || strings.HasSuffix(folder, "test")
}

// inside reports whether folder is room or below it.
func inside(folder, room string) bool { return folder == room || strings.HasPrefix(folder, room+"/") }
