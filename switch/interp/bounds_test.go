package interp

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/target"
)

// edited returns a program after a change of its JSON.
func edited(t *testing.T, name string, edit func(root map[string]any)) *bmv2json.Program {
	t.Helper()
	text, err := os.ReadFile(programFile(name))
	must(t, err)
	var root map[string]any
	must(t, json.Unmarshal(text, &root))
	edit(root)
	text, err = json.Marshal(root)
	must(t, err)
	prog, err := bmv2json.Parse(text)
	must(t, err)
	return prog
}

// TestArraysAreBounded runs New with arrays that each have an allowed size, but need too much
// memory together. New must refuse the program before it allocates anything. A process that runs
// out of memory would end, and all its ports with it.
func TestArraysAreBounded(t *testing.T) {
	const most = 1 << 27 // the largest number of cells that bmv2json allows
	size := func(kind, name string, n int) func(root map[string]any) {
		return func(root map[string]any) {
			for _, a := range root[kind].([]any) {
				if a := a.(map[string]any); a["name"] == name {
					a["size"] = n
					return
				}
			}
			t.Fatalf("there is no %s in %s", name, kind)
		}
	}
	all := func(edits ...func(root map[string]any)) func(root map[string]any) {
		return func(root map[string]any) {
			for _, e := range edits {
				e(root)
			}
		}
	}
	// half is half of the memory limit in bytes, and cell the size of a cell
	const half, cell = 1 << 29, 8
	for _, c := range []struct {
		name, largest string
		edit          func(root map[string]any)
	}{
		{"a register", `register "I.wide"`, size("register_arrays", "I.wide", most)},
		{"counters", `counter "I.packets"`, size("counter_arrays", "I.packets", most)},
		{"meters", `meter "I.limit"`, size("meter_arrays", "I.limit", most)},
		{"two registers", `register "I.narrow"`, all(size("register_arrays", "I.narrow", half/cell),
			size("register_arrays", "I.signed", half/cell))},
		{"a register and counters", `counter "I.packets"`,
			all(size("register_arrays", "I.narrow", half/cell-1000),
				size("counter_arrays", "I.packets", half/16+1000))},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Verify(edited(t, "stateful", c.edit), Options{})
			if !errors.Is(err, target.ErrUnsupported) ||
				!strings.Contains(err.Error(), c.largest) ||
				!strings.Contains(err.Error(), "in all") {
				t.Errorf("it is refused with: %v", err)
			}
		})
	}
	must(t, Verify(edited(t, "stateful", size("register_arrays", "I.narrow", half/cell)),
		Options{}))
}

// TestFieldsAreBounded checks that New refuses a program whose packets would each need megabytes.
func TestFieldsAreBounded(t *testing.T) {
	err := Verify(edited(t, "stateful", func(root map[string]any) {
		for _, h := range root["header_types"].([]any) {
			if h := h.(map[string]any); strings.HasPrefix(h["name"].(string), "scalars") {
				for i := range 64 {
					h["fields"] = append(h["fields"].([]any),
						[]any{"large" + string(rune('A'+i)), 1 << 16, false})
				}
			}
		}
	}), Options{})
	if !errors.Is(err, target.ErrUnsupported) || !strings.Contains(err.Error(), "in all") {
		t.Errorf("it is refused with: %v", err)
	}
}

// TestCopiesAreBounded uses a group with more replicas than a packet may have copies. The surplus
// replicas must use no memory.
func TestCopiesAreBounded(t *testing.T) {
	p := load(t, "copies", Options{MaxPasses: 50})
	p.dp.Lock()
	defer p.dp.Unlock()
	p.multicast(p.get(time.Second), make([]target.Replica, 10000), packet.NoTruncation)
	if n := len(p.queue); n > 51 {
		t.Errorf("%d copies wait", n)
	}
}
