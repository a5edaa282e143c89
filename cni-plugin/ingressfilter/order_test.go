package ingressfilter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
)

// TestFirst reattaches a filter to another plugin's interface, which has the frame filter, the
// switch's program and the other plugin's program. The filter must come after the first two,
// because before the switch's program it would drop packets that are for the switch. It must come
// before the third program.
func TestFirst(t *testing.T) {
	r := newRoute(t)
	r.node.Do(func() error {
		index := r.node.Index("ncq")
		names := []string{framefilter.Name, attach.SwitchProgram, name, "theirs"}
		for _, n := range names {
			if n == name { // simulates that someone has removed the filter
				continue
			}
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: n, Type: ebpf.SchedCLS, License: "Apache-2.0",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
			if err != nil {
				return err
			}
			defer p.Close()
			if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: index, Program: p,
				Attach: ebpf.AttachTCXIngress, Anchor: link.Tail()}); err != nil {
				return fmt.Errorf("attaching %s: %w", n, err)
			}
		}
		if err := Attach(index, Rules{Port: netcraq, Place: First}); err != nil {
			return err
		}
		var want []ebpf.ProgramID
		for _, n := range names {
			id, err := attach.Named(index, n)
			if err != nil || len(id) != 1 {
				return fmt.Errorf("programs called %s: %v, %w", n, id, err)
			}
			want = append(want, id[0])
		}
		got, err := attach.Named(index, names...)
		if !slices.Equal(got, want) {
			t.Errorf("frames meet the programs %v, not %v", got, want)
		}
		return err
	})
}
