package emit

import (
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Emitter holds a program that is being written for one hook.
type Emitter struct {
	*memory.Plan
	ir.Writer
	Settings
	Hook      Hook
	Maps      Maps
	functions []*code.Function
	branches  bool     // set in a branch in front of whose comparisons the clock may be read
	later     []func() // functions that emit code at the end of the current function
}

// New returns an Emitter for an empty program.
func New(p *memory.Plan, h Hook, f Maps, s Settings) *Emitter {
	t := &Emitter{Plan: p, Writer: ir.NewWriter(p.Layout, p.Scratch, p.ScratchEnd), Settings: s, Hook: h,
		Maps: f}
	if p.LateClock {
		at := p.Layout.Field(p.Std.IngressTime).Off
		t.BeforeCompare = func(a, b *ir.Value) {
			if t.branches && (a.Loads(at) || b.Loads(at)) {
				t.readClock()
			}
		}
	}
	return t
}

// Link combines functions, and those that AddFunction added, into one program. The first function
// is the program's entry.
func (t *Emitter) Link(functions ...*code.Function) (asm.Instructions, error) {
	return code.Link(append(functions, t.functions...))
}
