package ebpf

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

func (p *pipeline) counter(name string, index int) (int, error) {
	c := p.Prog.Counter(name)
	if c == nil || c.Direct {
		return 0, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if index < 0 || index >= c.Size {
		return 0, fmt.Errorf("counter %q: cell %d of %d: %w", name, index, c.Size, target.ErrOutOfRange)
	}
	return p.Counters[c.Index].Off + index*16, nil
}

// ReadCounter implements [target.Pipeline].
func (p *pipeline) ReadCounter(name string, index int) (target.CounterData, error) {
	leave, err := p.enter()
	if err != nil {
		return target.CounterData{}, err
	}
	defer leave()
	at, err := p.counter(name, index)
	if err != nil {
		return target.CounterData{}, err
	}
	return target.CounterData{Packets: p.state.load(at), Bytes: p.state.load(at + 8)}, nil
}

// WriteCounter implements [target.Pipeline].
func (p *pipeline) WriteCounter(name string, index int, d target.CounterData) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	at, err := p.counter(name, index)
	if err != nil {
		return err
	}
	p.state.store(at, d.Packets)
	p.state.store(at+8, d.Bytes)
	return nil
}
