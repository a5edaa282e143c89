package programs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/tablefill"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// Engines lists the engines on which cases are measured.
var Engines = []string{"tc", "xdp", "interp"}

const cpuPort = 510

// Bench is a program with one frame, ready for measurement.
type Bench interface {
	// Run processes the frame n times, and returns the average duration.
	Run(n int) (time.Duration, error)
	io.Closer
}

// open sets up a case on an engine.
func open(c *Case, engine string) (Bench, error) {
	program, info, err := tablefill.Parse(c.Program.JSON, c.Program.P4Info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.System, err)
	}
	var b Bench
	if engine == "interp" {
		b, err = openInterpreter(c, program, info)
	} else {
		b, err = openKernel(c, engine == "xdp", program, info)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s, %s: %w", c.System, c.Kind, engine, err)
	}
	return b, nil
}

// fill sets up a pipeline's tables and registers.
func (c *Case) fill(p target.Pipeline, info *p4rt.Info) error {
	entries := c.Entries
	if c.Variant {
		entries = slices.DeleteFunc(slices.Clone(entries), func(e p4rt.Entry) bool {
			_, err := info.TableSize(e.Table)
			return err != nil
		})
	}
	if err := tablefill.Fill(p, info, entries, c.Groups); err != nil {
		return err
	}
	for cell, v := range c.Registers {
		if c.Variant && p.Program().Register(cell.Register) == nil {
			continue
		}
		if err := p.WriteRegister(cell.Register, cell.Index, v); err != nil {
			return err
		}
	}
	return nil
}

// interpreted is a case on the interpreter.
type interpreted struct {
	*Case
	p      *interp.Pipeline
	frame  []byte   // the case's frame, with the changes so far
	zero   [][]byte // the initial content of each of Changes.Zeros
	buffer interp.Buffer
}

func openInterpreter(c *Case, program *bmv2json.Program, info *p4rt.Info) (Bench, error) {
	p, err := interp.New(program, interp.Options{})
	if err != nil {
		return nil, err
	}
	if err := c.fill(p, info); err != nil {
		return nil, err
	}
	b := &interpreted{Case: c, p: p, frame: slices.Clone(c.Frame.Bytes)}
	for _, f := range c.Before {
		p.Process(time.Second, f.Port, f.Bytes)
	}
	for _, cell := range c.Changes.Zeros {
		v, err := p.ReadRegister(cell.Register, cell.Index)
		if err != nil {
			return nil, err
		}
		b.zero = append(b.zero, make([]byte, len(v)))
	}
	if outs, err := b.once(); err != nil || outs != 1 {
		return nil, fmt.Errorf("%d frames came out, want 1 (%v)", outs, err)
	}
	return b, nil
}

// once applies the changes, processes the frame, and returns the number of output frames.
func (b *interpreted) once() (int, error) {
	for _, at := range b.Changes.Counts {
		binary.BigEndian.PutUint32(b.frame[at:], binary.BigEndian.Uint32(b.frame[at:])+1)
	}
	for i, cell := range b.Changes.Zeros {
		if err := b.p.WriteRegister(cell.Register, cell.Index, b.zero[i]); err != nil {
			return 0, err
		}
	}
	b.p.ProcessInto(&b.buffer, time.Second, b.Frame.Port, b.frame)
	return len(b.buffer.Outs), nil
}

// Run measures with the changes, and subtracts the time of resetting the registers.
func (b *interpreted) Run(n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		if outs, err := b.once(); err != nil || outs != 1 {
			return 0, fmt.Errorf("%s, %s: %d frames came out, want 1 (%v)", b.System, b.Kind, outs, err)
		}
	}
	took := time.Since(start)
	start = time.Now()
	for range n {
		for i, cell := range b.Changes.Zeros {
			if err := b.p.WriteRegister(cell.Register, cell.Index, b.zero[i]); err != nil {
				return 0, err
			}
		}
	}
	return (took - time.Since(start)) / time.Duration(n), nil
}

func (b *interpreted) Close() error { return nil }

// inKernel is a case on the eBPF engine.
type inKernel struct {
	device target.Device
	space  netns.NsHandle // the network namespace of the switch's ports
	*ebpf.Prepared
}

func openKernel(c *Case, xdp bool, program *bmv2json.Program, info *p4rt.Info) (_ Bench, err error) {
	if err := ebpf.Probe(); err != nil {
		return nil, fmt.Errorf("eBPF is not available: %w", err)
	}
	b := &inKernel{}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	// The ports have their own network namespace, which lives as long as the device.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if b.space, err = netns.New(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, netns.Set(home)) }()
	if b.device, err = ebpf.New(ebpf.Options{CPUPort: cpuPort, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	if err := b.device.Commit(program); err != nil {
		return nil, err
	}
	for _, number := range []uint32{hostPort, headPort, tailPort} {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("port%d", number)},
			PeerName: fmt.Sprintf("peer%d", number)}
		if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link)); err != nil {
			return nil, err
		}
		if err := b.device.AddPort(target.Port{Number: number, Iface: link.Name}); err != nil {
			return nil, err
		}
	}
	if err := c.fill(b.device.Pipeline(), info); err != nil {
		return nil, err
	}
	for _, f := range c.Before {
		if _, err := ebpf.Benchmark(b.device, xdp, f.Port, slices.Clone(f.Bytes), 1); err != nil {
			return nil, err
		}
	}
	// Measure the program that runs once the tables have been unchanged for a moment.
	if err := ebpf.Specialise(b.device); err != nil {
		return nil, err
	}
	b.Prepared, err = ebpf.Prepare(b.device, xdp, c.Frame.Port, c.Frame.Bytes, c.Changes)
	return b, err
}

func (b *inKernel) Run(n int) (time.Duration, error) { return b.Time(n) }

func (b *inKernel) Close() (err error) {
	if b.Prepared != nil {
		err = b.Prepared.Close()
	}
	if b.device != nil {
		err = errors.Join(err, b.device.Close())
	}
	if b.space > 0 {
		err = errors.Join(err, b.space.Close())
	}
	return err
}

// Result is the duration of a case on an engine, in nanoseconds, in each round.
type Result struct {
	System string    `json:"system"`
	Kind   string    `json:"kind"`
	Engine string    `json:"engine"`
	Rounds []float64 `json:"rounds"`
}

// Row is a system's program for one kind of packet on one engine, ready to be measured.
type Row struct {
	System, Kind, Engine string
	Bench                Bench
}

// Measure measures cases on an engine, as [InTurn] does.
func Measure(cases []Case, engine string, rounds, n int, step func(done, of int)) ([]Result, error) {
	rows, err := Open(cases, engine)
	if err != nil {
		return nil, err
	}
	defer Close(rows)
	return InTurn(rows, rounds, n, step)
}

// Open sets up cases on an engine. The caller must close the rows.
func Open(cases []Case, engine string) (rows []Row, err error) {
	for i := range cases {
		b, err := open(&cases[i], engine)
		if err != nil {
			Close(rows)
			return nil, err
		}
		rows = append(rows, Row{System: cases[i].System, Kind: cases[i].Kind, Engine: engine, Bench: b})
	}
	return rows, nil
}

// Close closes the rows.
func Close(rows []Row) {
	for _, r := range rows {
		r.Bench.Close()
	}
}

// InTurn measures rows in rounds. Each round runs every row n times. Every second round takes the
// rows in reverse order, so that other work on the machine affects all rows.
func InTurn(rows []Row, rounds, n int, step func(done, of int)) ([]Result, error) {
	results := make([]Result, len(rows))
	for i, r := range rows {
		results[i] = Result{System: r.System, Kind: r.Kind, Engine: r.Engine}
	}
	for round := range rounds {
		for k := range rows {
			i := k
			if round%2 == 1 {
				i = len(rows) - 1 - k
			}
			took, err := rows[i].Bench.Run(n)
			if err != nil {
				return nil, fmt.Errorf("%s, %s, %s: %w", rows[i].System, rows[i].Kind, rows[i].Engine, err)
			}
			results[i].Rounds = append(results[i].Rounds, float64(took)/float64(time.Nanosecond))
			step(round*len(rows)+k+1, rounds*len(rows))
		}
	}
	return results, nil
}
