package kernelpeers

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/experiments/programs"
	switchebpf "github.com/netcraq/netcraq/switch/ebpf"
)

// Peer is one kind of request to another store, with the store's program that answers it.
type Peer struct {
	Name, Kind string

	instructions, machineBytes int
	maps                       *ebpf.Collection
	program                    *ebpf.Program
	replay                     *replay
	reflector                  *ebpf.Program
}

// request holds everything that differs between the peers: the frame, the programs, and the
// expected answer.
type request struct {
	name, kind string
	frame      []byte
	shift      int32
	main       string
	calls      []string // the programs in map_progs_xdp, by index
	used       []string // programs that the request runs
	fill       func(*ebpf.Collection) error
	answer     []byte // part of the expected answer
}

// open loads a peer's programs and checks that they answer the request.
func (s *source) open(checkout string, r request) (_ *Peer, err error) {
	spec, err := s.compile(checkout)
	if err != nil {
		return nil, err
	}
	opened := &Peer{Name: r.name, Kind: r.kind}
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	needed := append([]string{r.main}, r.calls...)
	for name, program := range spec.Programs {
		if program.Type = ebpf.XDP; !slices.Contains(needed, name) {
			delete(spec.Programs, name)
		}
	}
	if opened.maps, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	for i, name := range r.calls {
		if err := opened.maps.Maps["map_progs_xdp"].Put(uint32(i), opened.maps.Programs[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range r.used {
		instructions, machineBytes, err := switchebpf.Size(opened.maps.Programs[name])
		if err != nil {
			return nil, err
		}
		opened.instructions += instructions
		opened.machineBytes += machineBytes
	}
	if err := r.fill(opened.maps); err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	opened.program = opened.maps.Programs[r.main]
	if err := opened.check(r); err != nil {
		return nil, fmt.Errorf("%s, %s: %w", r.name, r.kind, err)
	}
	if opened.replay, err = newReplay(r.frame, r.shift); err != nil {
		return nil, err
	}
	opened.reflector, err = reflector()
	return opened, err
}

// check runs the program once, and returns an error unless it sends the expected answer.
func (p *Peer) check(r request) error {
	out := make([]byte, 1500)
	run := ebpf.RunOptions{Data: r.frame, DataOut: out}
	action, err := p.program.Run(&run)
	if err != nil {
		return err
	}
	if action != xdpTX || !bytes.Contains(run.DataOut, r.answer) {
		return fmt.Errorf("action %d with the frame %x: no answer with %q", action, run.DataOut, r.answer)
	}
	return nil
}

// Run answers the request n times, and returns the time of one answer.
func (p *Peer) Run(n int) (time.Duration, error) {
	alone, err := p.replay.time(p.reflector, n)
	if err != nil {
		return 0, err
	}
	both, err := p.replay.time(p.program, n)
	return both - alone, err
}

// Size returns the size of the programs that run for the request: eBPF instructions, and bytes of
// machine code.
func (p *Peer) Size() (instructions, machineBytes int, err error) {
	return p.instructions, p.machineBytes, nil
}

// Row returns the peer as a row of a measurement.
func (p *Peer) Row() programs.Row {
	return programs.Row{System: p.Name, Kind: p.Kind, Engine: "xdp", Bench: p}
}

// Close frees the programs and maps.
func (p *Peer) Close() error {
	var errs []error
	if p.replay != nil {
		errs = append(errs, p.replay.Close())
	}
	if p.reflector != nil {
		errs = append(errs, p.reflector.Close())
	}
	if p.maps != nil {
		p.maps.Close()
	}
	return errors.Join(errs...)
}
