package main

import (
	"strings"
	"testing"
)

// TestRules: violations are reported under the names of their rules, and similar permitted text is
// not reported.
func TestRules(t *testing.T) {
	wide := strings.Repeat("word ", 24)
	for _, c := range []struct{ what, name, text, finds string }{
		{"an import that goes up", "client/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/controller"`, "arrows-go-down"},
		{"one to the same floor", "etcd-monitor/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/chain"`, "arrows-go-down"},
		{"one that goes down", "controlplane/leadership/x.go", `package x; import "github.com/netcraq/netcraq/client"`, ""},
		{"a test's", "client/x_test.go", `package x; import "github.com/netcraq/netcraq/controlplane/controller"`, ""},
		{"internal's to a room", "internal/x/x.go", `package x; import "github.com/netcraq/netcraq/switch/target"`, "arrows-go-down"},
		{"a product's to a test's helper", "nodeapi/server/x.go", `package x; import "github.com/netcraq/netcraq/internal/testutil/poll"`, "testutil-is-for-tests"},
		{"a test helper's to another", "etcd-monitor/etcdtest/x.go", `package x; import "github.com/netcraq/netcraq/internal/testutil/poll"`, ""},
		{"a test's to a helper", "nodeapi/server/x_test.go", `package x; import "github.com/netcraq/netcraq/internal/testutil/poll"`, ""},
		{"one out of the switch", "switch/interp/x.go", `package x; import "github.com/netcraq/netcraq/api/wire"`, "switch-is-a-leaf"},
		{"one from the switch to the root's module", "switch/ports/x.go", `package x; import "github.com/netcraq/netcraq/internal/poll"`, "switch-is-a-leaf"},
		{"one up between the engine's rooms", "switch/ebpf/ir/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/compile"`, "ebpf-rooms"},
		{"one up between the interpreter's rooms", "switch/interp/internal/packet/x.go", `package x; import "github.com/netcraq/netcraq/switch/interp/internal/matchtables"`, "interp-rooms"},
		{"one up between the compiler's packages", "switch/ebpf/compile/paths/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/compile/locking"`, "compiler-shelf"},
		{"one from below to the compiler itself", "switch/ebpf/compile/control/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/compile"`, "compiler-shelf"},
		{"one down between them", "switch/ebpf/compile/locking/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/compile/paths"`, ""},
		{"the compiler's own", "switch/ebpf/compile/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/compile/control"`, ""},
		{"a plan that writes instructions", "switch/ebpf/compile/memory/x.go", `package x; import "github.com/cilium/ebpf/asm"`, "compiler-shelf"},
		{"a package of the compiler in no order", "switch/ebpf/compile/other/x.go", `package x; import "github.com/netcraq/netcraq/switch/ebpf/ir"`, "compiler-shelf"},
		{"a core with files", "controlplane/chain/x.go", `package x; import "os"`, "pure-core"},
		{"a plan with a clock", "cni-plugin/kube/chainplan/x.go", `package x; import "time"; var x = time.Now()`, "pure-core"},
		{"a plan that asks the API server", "cni-plugin/kube/chainplan/x.go", `package x; import "sigs.k8s.io/controller-runtime/pkg/client"`, "kube-decides-apart"},
		{"a view of nodes with reconcilers", "cni-plugin/kube/nodeview/x.go", `package x; import "github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"`, "kube-decides-apart"},
		{"a core with etcd", "client/etcd/guarded/x.go", `package x; import "go.etcd.io/etcd/client/v3"`, "pure-core"},
		{"a core with its shell", "client/etcd/guarded/x.go", `package x; import "github.com/netcraq/netcraq/client/etcd/guardedshell"`, "pure-core"},
		{"a core with a goroutine", "client/calls/x.go", `package x; func f() { go f() }`, "pure-core"},
		{"a core with a clock", "client/calls/x.go", `package x; import "time"; var x = time.Now()`, "pure-core"},
		{"a core with the clock of leases", "controlplane/chain/x.go", `package x; var x = clock.Raw()`, "pure-core"},
		{"a core with a margin", "controlplane/chain/x.go", `package x; var x = clock.Outlasts(1)`, ""},
		{"a core with a time", "client/calls/x.go", `package x; import "time"; var x = time.Second`, ""},
		{"a core's test with a clock", "client/calls/x_test.go", `package x; import "time"; var x = time.Now()`, ""},
		{"the controller's with files", "controlplane/controller/x.go", `package x; import "os"`, ""},
		{"its plan with files", "controlplane/controller/tableplan/x.go", `package x; import "os"`, "controller-rooms"},
		{"its plan with a device", "controlplane/controller/tableplan/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/controller/switches"`, "controller-rooms"},
		{"its device with the controller", "controlplane/controller/switches/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/controller"`, "controller-rooms"},
		{"the simulator's world with its trouble", "controlplane/sim/world/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/sim/trouble"`, "sim-rooms"},
		{"its judge with the world", "controlplane/sim/judge/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/sim/world"`, "sim-rooms"},
		{"its trouble with the world", "controlplane/sim/trouble/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/sim/world"`, ""},
		{"its device with the plan", "controlplane/controller/switches/x.go", `package x; import "github.com/netcraq/netcraq/controlplane/controller/tableplan"`, ""},
		{"a wide comment", "switch/target/x.go", "package x\n\n// " + wide, "line-width"},
		{"a wide statement", "switch/target/x.go", "package x\n\nvar x = f(" + strings.Repeat("a, ", 40) + ")", "line-width"},
		{"a wide string", "switch/target/x.go", "package x\n\nvar x = \"" + wide + "\"", ""},
		{"a wide address", "switch/target/x.md", "https://example.org/" + strings.Repeat("x", 100), ""},
		{"a wide paragraph", "switch/target/x.md", wide, "line-width"},
		{"a wide row", "switch/target/x.md", "| " + wide, ""},
		{"a wide listing", "switch/target/x.md", "```\n" + wide + "\n```", ""},
		{"what a tool wrote", "switch/target/x.go", "// Code generated by x. DO NOT EDIT.\n\npackage x\n\n// " + wide, ""},
		{"an apply of 81 lines", "x/x.p4", "control C() {\n apply {\n" + strings.Repeat("  if (a) { b(); }\n", 79) + " }\n}", "x/x.p4:2: p4-apply"},
		{"an apply of 80 lines", "x/x.p4", "control C() {\n apply {\n" + strings.Repeat("  if (a) { b(); }\n", 78) + " }\n}", ""},
		{"braces in a comment", "x/x.p4", "control C() {\n apply { /* } */\n" + strings.Repeat("  // }\n", 90) + " }\n}", "p4-apply"},
		{"a table without an id", "p4src/x.p4", "table t {\n}", "p4-ids: table t has no @id"},
		{"a table with one", "p4src/x.p4", "@id(0x02000001) @entry_restriction(\"a == 1;\")\n/* why; */\ntable t {\n}", ""},
		{"an action behind one that has one", "p4src/x.p4", "@id(1) action a() { }\naction b(bit<8> x) { }", "x.p4:2: p4-ids: action b"},
		{"a hidden action", "p4src/x.p4", "@hidden action b(bit<8> x) { }", ""},
		{"a register without an id", "p4src/x.p4", "REGISTER(bit<64>, 256) r;", "p4-ids: REGISTER(bit<64>, 256) r"},
		{"a counter without an id", "p4src/x.p4", "counter(SLOTS, CounterType.packets) c;", "p4-ids: counter"},
		{"a macro", "p4src/x.p4", "#define COUNTER(SIZE) \\\n counter(SIZE, CounterType.packets)\n@id(1) COUNTER(7) c;", ""},
		{"another program's", "netchain-baseline/x.p4", "table t {\n}", ""},
		{"the paper's", "p4src/paper/x.p4", "table t {\n}", ""},
		{"a word that is not used any more", "docs/x.md", "a softswitch", "words"},
		{"a longer one", "docs/x.md", "foreign", ""},
	} {
		got := strings.Join(check(c.name, []byte(c.text)), "\n")
		if c.finds == "" && got != "" || !strings.Contains(got, c.finds) {
			t.Errorf("%s: %q, want %q", c.what, got, c.finds)
		}
	}
}
