package runtime

import (
	"fmt"

	"github.com/netcraq/netcraq/switch/target"
)

// counter returns the offsets of a counter cell's copies. The control plane's own copy is the last.
func (p *Pipeline) counter(name string, index int) ([]int, error) {
	c := p.Prog.Counter(name)
	if c == nil || c.Direct {
		return nil, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if index < 0 || index >= c.Size {
		return nil, fmt.Errorf("counter %q: cell %d of %d: %w", name, index, c.Size,
			target.ErrOutOfRange)
	}
	return p.Counters[c.Index].Copies(index), nil
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
	return p.counted(at), nil
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
	packets, rest := at[:len(at)-1], at[len(at)-1]
	of := p.counted(packets)
	p.State.Store(rest, d.Packets-of.Packets)
	p.State.Store(rest+8, d.Bytes-of.Bytes)
	return nil
}

// counted returns the sum of a counter cell's copies.
func (p *Pipeline) counted(copies []int) (sum target.CounterData) {
	for _, at := range copies {
		sum.Packets += p.State.Load(at)
		sum.Bytes += p.State.Load(at + 8)
	}
	return sum
}
