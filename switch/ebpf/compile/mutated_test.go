package compile

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/internal/mutation"
	"github.com/netcraq/netcraq/switch/interp"
)

// bases returns the programs that the tests mutate.
func bases(t testing.TB) (out [][]byte) {
	t.Helper()
	names, err := filepath.Glob("../testdata/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// take parses a program and does the part of VERIFY that needs no kernel, for both engines. The
// interpreter also processes a frame.
func take(text []byte) (accepted bool) {
	prog, err := bmv2json.Parse(text)
	if err != nil {
		return false
	}
	if p, err := interp.New(prog, interp.Options{Log: func(string) {}}); err == nil {
		p.Process(0, 1, bytes.Repeat([]byte{0x08, 0x00, 0x45, 1}, 40))
	}
	plan, err := memory.NewPlan(prog)
	if err != nil {
		return false
	}
	at := emit.Maps{PHV: 1, State: 2, Ports: 3, PacketIn: 4, PacketOut: 5, Buffer: 6, Tap: 7, Resume: 8, Digests: 9,
		Messages: 10, Lookups: map[int]int{}}
	for i := range plan.Tables {
		at.Lookups[i] = 11 + i
	}
	for _, h := range []emit.Hook{emit.TC, emit.XDP} {
		for _, paths := range []bool{false, true} {
			at.Paths = paths
			if _, _, err := Translate(plan, h, at, emit.Settings{CPUPort: 510, DropPort: 511}); err != nil {
				return false
			}
		}
	}
	_, err = CellsProgram(plan, at)
	return err == nil
}

// tryMutated mutates a program and passes it to take. A panic fails the test.
func tryMutated(t *testing.T, base []byte, seed uint64) (accepted bool) {
	t.Helper()
	var doc any
	if err := json.Unmarshal(base, &doc); err != nil {
		t.Fatal(err)
	}
	mutation.Document(doc, rand.New(rand.NewPCG(seed, 0)))
	text, err := json.Marshal(doc)
	if err != nil { // The mutation made the document contain itself.
		return false
	}
	defer func() {
		if fault := recover(); fault != nil {
			t.Errorf("seed %d: %v\n%s", seed, fault, debug.Stack())
		}
	}()
	return take(text)
}

var mutatedPrograms = flag.Int("mutated-programs", 0, "how many programs TestMutatedPrograms makes; 0: as many as go into 2 s")

// TestMutatedPrograms checks that each mutated program is either translated or refused with an
// error.
func TestMutatedPrograms(t *testing.T) {
	all := bases(t)
	tried, accepted := 0, 0
	more := func(end time.Time) bool {
		if *mutatedPrograms > 0 {
			return tried < *mutatedPrograms
		}
		return time.Now().Before(end) || tried < 10*len(all)
	}
	for end := time.Now().Add(2 * time.Second); more(end); tried++ {
		if tryMutated(t, all[tried%len(all)], uint64(tried)) {
			accepted++
		}
	}
	if accepted == 0 || accepted == tried {
		t.Errorf("of %d mutated programs %d were accepted", tried, accepted)
	}
	t.Logf("%d mutated programs, %d accepted", tried, accepted)
}

// FuzzPrograms does what TestMutatedPrograms does, without a time limit.
func FuzzPrograms(f *testing.F) {
	all := bases(f)
	for i := range all {
		f.Add(uint64(i), uint8(i))
	}
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) { tryMutated(t, all[int(which)%len(all)], seed) })
}

// TestMalformedPrograms checks that NewPlan validates the data that it plans with.
func TestMalformedPrograms(t *testing.T) {
	const program = `{"__meta__": {"version": [2, 23]},
		"header_types": [{"name": "s", "id": 0, "fields": [["egress_spec", 9, false], ["%s", 9, false]]}],
		"headers": [{"name": "standard_metadata", "id": 0, "header_type": "s", "metadata": true}],
		"register_arrays": [{"name": "r", "id": 0, "bitwidth": 9, "size": 4}],
		"parsers": [{"name": "parser", "id": 0, "init_state": "s", "parse_states": [{"name": "s", "id": 0,
			"parser_ops": [], "transition_key": [], "transitions": [{"type": "default", "value": null, "mask": null, "next_state": null}]}]}],
		"deparsers": [{"name": "deparser", "id": 0, "order": []}],
		"actions": [{"name": "a", "id": 0, "runtime_data": [], "primitives": [%s]}],
		"pipelines": [{"name": "ingress", "id": 0, "init_table": "t", "conditionals": [], "tables": [{"name": "t", "id": 0,
			"match_type": "exact", "type": "simple", "key": [], "actions": ["a"], "next_tables": {"a": null},
			"max_size": 4}]}, {"name": "egress", "id": 1, "init_table": null, "conditionals": [], "tables": []}]}`
	const field = `{"type": "field", "value": ["standard_metadata", "egress_spec"]}`
	const array, number = `{"type": "register_array", "value": "r"}`, `{"type": "hexstr", "value": "0x1"}`
	call := func(op string, args ...string) string {
		return fmt.Sprintf(`{"op": %q, "parameters": [%s]}`, op, strings.Join(args, ", "))
	}
	for name, is := range map[string]struct{ port, primitive, want string }{
		"nothing wrong":               {"egress_port", call("register_read", field, array, number), ""},
		"assign with one":             {"egress_port", call("assign", field), "assign with 1 arguments"},
		"modify_field with one":       {"egress_port", call("modify_field", field), "modify_field with 1 arguments"},
		"register_read with none":     {"egress_port", call("register_read"), "register_read with 0 arguments"},
		"register_read of no array":   {"egress_port", call("register_read", field, number, number), "as argument 1"},
		"register_write to no array":  {"egress_port", call("register_write", number, number, number), "as argument 0"},
		"a program without this port": {"other", call("no_op"), "without standard_metadata.egress_port"},
	} {
		t.Run(name, func(t *testing.T) {
			prog, err := bmv2json.Parse(fmt.Appendf(nil, program, is.port, is.primitive))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := memory.NewPlan(prog); (err == nil) != (is.want == "") || err != nil &&
				!strings.Contains(err.Error(), is.want) {
				t.Errorf("%v, want %q", err, is.want)
			}
		})
	}
}
