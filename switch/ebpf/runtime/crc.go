package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

var _ target.CRCSetter = (*Pipeline)(nil)

// SetCRC implements [target.CRCSetter]. A packet uses either the old or the new parameters, never a
// mixture.
func (p *Pipeline) SetCRC(name string, c target.CRC) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	for _, k := range p.Prog.Calculations {
		if k.Name != name {
			continue
		}
		at, width := p.CustomCRC(k)
		switch {
		case width == 0:
			return fmt.Errorf("calculation %q is %s, which has no parameters: %w", name, k.Algo,
				target.ErrInvalid)
		case at < 0:
			return nil // no packet uses this calculation
		}
		// A packet that began before the last change may still be using the other copy.
		WaitForPackets()
		next := 1 - int(p.State.Load(at))
		memory.FillCRC(p.State.Mem, at, next, width, memory.CRC(c))
		p.State.Store(at, uint64(next))
		return nil
	}
	return fmt.Errorf("calculation %q: %w", name, target.ErrNotFound)
}
