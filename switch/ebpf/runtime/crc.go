package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

var _ target.CRCSetter = (*Pipeline)(nil)

// SetCRC implements [target.CRCSetter]. A packet computes with parameters of before or after.
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
			return nil // no packet comes to it
		}
		// The other copy was the current one, until a change that a packet may have begun before.
		WaitForPackets()
		next := 1 - int(p.State.Load(at))
		memory.FillCRC(p.State.Mem, at, next, width, memory.CRC(c))
		p.State.Store(at, uint64(next))
		return nil
	}
	return fmt.Errorf("calculation %q: %w", name, target.ErrNotFound)
}
