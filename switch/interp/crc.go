package interp

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/target"
)

// SetCRC implements [target.CRCSetter].
func (p *Pipeline) SetCRC(name string, c target.CRC) error {
	p.cp.Lock()
	defer p.cp.Unlock()
	for i, src := range p.src.Calculations {
		if src.Name != name {
			continue
		}
		fn := calculation.CustomCRC(src.Algo, c)
		if fn == nil {
			return fmt.Errorf("calculation %q is %s, which has no parameters: %w", name, src.Algo,
				target.ErrInvalid)
		}
		p.dp.Lock()
		defer p.dp.Unlock()
		p.ref.Calculations[i].SetHash(fn)
		return nil
	}
	return fmt.Errorf("calculation %q: %w", name, target.ErrNotFound)
}
