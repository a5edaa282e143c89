package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

func (p *Pipeline) counter(name string, index int) (int, error) {
	c := p.Prog.Counter(name)
	if c == nil || c.Direct {
		return 0, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if index < 0 || index >= c.Size {
		return 0, fmt.Errorf("counter %q: cell %d of %d: %w", name, index, c.Size,
			target.ErrOutOfRange)
	}
	return p.Counters[c.Index].Off + index*16, nil
}

// ReadCounter implements [target.Pipeline].
func (p *Pipeline) ReadCounter(name string, index int) (target.CounterData, error) {
	leave, err := p.enter()
	if err != nil {
		return target.CounterData{}, err
	}
	defer leave()
	at, err := p.counter(name, index)
	if err != nil {
		return target.CounterData{}, err
	}
	return target.CounterData{Packets: p.State.Load(at), Bytes: p.State.Load(at + 8)}, nil
}

// WriteCounter implements [target.Pipeline].
func (p *Pipeline) WriteCounter(name string, index int, d target.CounterData) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	at, err := p.counter(name, index)
	if err != nil {
		return err
	}
	p.State.Store(at, d.Packets)
	p.State.Store(at+8, d.Bytes)
	return nil
}
