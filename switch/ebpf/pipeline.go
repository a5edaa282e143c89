package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/boottime"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// pipeline is one committed program: what runs in the kernel, and the control plane's side of it.
//
// The control plane keeps its own list of entries, groups and defaults, checks every call against it, and writes to the kernel what follows.
type pipeline struct {
	*plan
	opts    Options
	state   *state
	phv     *ebpf.Map
	lookups map[int]*ebpf.Map
	number  uint64        // of all that this switch has had
	program *ebpf.Program // at tc
	xdp     *ebpf.Program // at XDP; nil where no port may be there
	slots   *ebpf.Map     // between the two
	fds     fds
	cells   *ebpf.Program // reads and writes registers under the packets' lock

	mu       sync.Mutex
	closed   bool
	control  []*table // by Table.Index
	groups   map[uint32]*group
	sessions map[uint32]*session
	sets     map[string][][]target.FieldMatch // value sets by name, as they were given
	replicas *runs
}

type group struct {
	replicas []target.Replica
	at       int
}

func newMapIn(spec ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&spec)
	if err != nil {
		return nil, fmt.Errorf("making the map %q: %w", spec.Name, err)
	}
	return m, nil
}

// newPipeline loads a program into the kernel; no packet comes to it yet.
func newPipeline(prog *bmv2json.Program, d *device) (p *pipeline, err error) {
	defer catch(&err)
	pl := newPlan(prog)
	p = &pipeline{plan: pl, opts: d.opts, lookups: map[int]*ebpf.Map{}, groups: map[uint32]*group{}, sessions: map[uint32]*session{}, sets: map[string][][]target.FieldMatch{}, replicas: newRuns(maxReplicas)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.state, err = newState(pl.stateSize + cellsMax); err != nil {
		return p, err
	}
	if p.phv, err = newMapIn(ebpf.MapSpec{Name: "phv", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: uint32(pl.phvSize), MaxEntries: 1}); err != nil {
		return p, err
	}
	f := fds{phv: p.phv.FD(), state: p.state.m.FD(), ports: d.portMap.m.FD(), packetIn: d.packetIn.m.FD(), packetOut: d.packetOut.m.FD(), buffer: d.buffer.FD(), lookups: map[int]int{}}
	for i, t := range pl.tables {
		size := uint32(max(t.src.MaxSize, len(t.src.ConstEntries), 1))
		spec := ebpf.MapSpec{Name: "hash", Type: ebpf.Hash, KeySize: uint32(t.keyBytes), ValueSize: 8, MaxEntries: size}
		switch t.kind {
		case lookupHash:
		case lookupTrie:
			spec.Name, spec.Type, spec.Flags = "trie", ebpf.LPMTrie, unix.BPF_F_NO_PREALLOC
		default:
			continue
		}
		m, err := newMapIn(spec)
		if err != nil {
			return p, fmt.Errorf("table %s: %w", t.src.Name, err)
		}
		p.lookups[i], f.lookups[i] = m, m.FD()
	}
	if pl.digest != 0 {
		f.digests = d.digests.m.FD()
	}
	if d.tap != nil {
		f.tap = d.tap.m.FD()
	}
	p.number = d.pipelines.Add(1)
	f.number = p.number
	if d.opts.Hook != HookTC || pl.requests.again() {
		stride := (&translator{plan: pl}).handoverStride()
		if p.slots, err = newMapIn(ebpf.MapSpec{Name: "handover", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(stride * handoverSlots), MaxEntries: 1}); err != nil {
			return p, err
		}
		f.handover, f.magic, f.number = p.slots.FD(), d.magic, p.number
	}
	p.fds = f
	p.fillTables()
	if p.program, err = p.loadAt(hookTC, d.started); err != nil {
		return p, err
	}
	if d.opts.Hook != HookTC {
		if p.xdp, err = p.loadAt(hookXDP, d.started); err != nil {
			return p, err
		}
	}
	cells, err := cellsProgram(pl, f)
	if err != nil {
		return p, err
	}
	if p.cells, err = load("cells", hookTC, cells); err != nil {
		return p, err
	}
	for _, t := range pl.tables {
		p.control = append(p.control, newTable(p, t))
	}
	for _, t := range p.control {
		if err := t.start(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// loadAt translates the program for a hook and gives it to the kernel.
func (p *pipeline) loadAt(h hook, started boottime.Time) (*ebpf.Program, error) {
	insns, err := translate(p.plan, h, p.fds, p.opts, started)
	if err != nil {
		return nil, err
	}
	return load("netcraq", h, insns)
}

// load gives instructions to the kernel.
func load(name string, h hook, insns asm.Instructions) (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: insns, License: "GPL"}
	if h == hookXDP {
		spec.Type, spec.Flags = ebpf.XDP, unix.BPF_F_XDP_HAS_FRAGS // frames that are longer than a page
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) && len(v.Log) > 0 {
			// What the verifier cannot follow is a program that this engine cannot run.
			return nil, fmt.Errorf("the kernel's verifier refuses the program %q for %s (%d instructions): %w: %w", name, h, len(insns), err, target.ErrUnsupported)
		}
		return nil, fmt.Errorf("loading the program %q for %s (%d instructions): %w", name, h, len(insns), err)
	}
	return prog, nil
}

// close frees everything. Packets that are being processed keep what they use.
func (p *pipeline) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, m := range p.lookups {
		m.Close()
	}
	for _, prog := range []*ebpf.Program{p.program, p.xdp, p.cells} {
		if prog != nil {
			prog.Close()
		}
	}
	for _, m := range []*ebpf.Map{p.phv, p.slots} {
		if m != nil {
			m.Close()
		}
	}
	if p.state != nil {
		p.state.close()
	}
}

// Program implements [target.Pipeline].
func (p *pipeline) Program() *bmv2json.Program { return p.prog }

// enter takes the lock of the control plane for one call.
func (p *pipeline) enter() (leave func(), err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, fmt.Errorf("another program has been committed since: %w", target.ErrNoPipeline)
	}
	return p.mu.Unlock, nil
}

// ---- multicast ----

// SetMulticastGroup implements [target.Pipeline].
func (p *pipeline) SetMulticastGroup(id uint32, replicas []target.Replica) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	if id == 0 || id >= maxGroups {
		return fmt.Errorf("multicast group %d: ids are 1 to %d: %w", id, maxGroups-1, target.ErrInvalid)
	}
	old := p.groups[id]
	word := p.plan.groups + int(id)*8
	if replicas == nil {
		if old == nil {
			return fmt.Errorf("multicast group %d: %w", id, target.ErrNotFound)
		}
		p.state.store(word, 0)
		delete(p.groups, id)
		p.replicas.give(old.at)
		return nil
	}
	g := &group{replicas: slices.Clone(replicas)}
	var ok bool
	if g.at, ok = p.replicas.take(max(len(replicas), 1)); !ok {
		return fmt.Errorf("multicast group %d: no room for %d replicas: %w", id, len(replicas), target.ErrFull)
	}
	for i, r := range replicas {
		p.state.store(p.plan.replicas+(g.at+i)*8, uint64(r.Port)|uint64(r.Instance)<<32)
	}
	p.state.store(word, uint64(len(replicas))|uint64(g.at)<<32)
	p.groups[id] = g
	if old != nil {
		p.replicas.give(old.at)
	}
	return nil
}

// MulticastGroups implements [target.Pipeline].
func (p *pipeline) MulticastGroups() map[uint32][]target.Replica {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint32][]target.Replica{}
	for id, g := range p.groups {
		out[id] = slices.Clone(g.replicas)
	}
	return out
}

// ---- registers ----

// cellsMax is how many bytes of registers one run of the cells program moves.
const cellsMax = 2048

// cellsHeader precedes the cells in what the cells program is given: offset and length (4 bytes each), 1 to write, and padding.
const cellsHeader = 16

// cellsProgram is a small program that copies between the state and the data that it is run with, under the packets' locks: so that the control plane's reads and
// writes of registers and meters are whole, seen from packets.
func cellsProgram(p *plan, f fds) (insns asm.Instructions, err error) {
	defer catch(&err)
	t := &translator{plan: p, fds: f}
	main := t.function("cells", func() {
		read, done, unlock, fail := "cells.read", "cells.done", "cells.unlock", "cells.fail"
		t.emit(asm.Mov.Reg(rCtx, asm.R1), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -32), asm.Mov.Imm(asm.R4, cellsHeader))
		t.loadBytes()
		t.emit(asm.JNE.Imm(asm.R0, 0, fail))
		t.load(asm.R8, asm.R10, -32, 4)
		t.load(asm.R9, asm.R10, -28, 4)
		t.emit(asm.JGT.Imm(asm.R8, int32(p.stateSize), fail), asm.JEq.Imm(asm.R9, 0, fail), asm.JGT.Imm(asm.R9, cellsMax, fail))
		t.stateAddress(asm.R6, 0)
		t.emit(asm.Add.Reg(asm.R6, asm.R8))
		t.acquire(p.lock, fail)
		t.acquire(p.meterLock, unlock)
		t.load(asm.R1, asm.R10, -24, 1)
		t.emit(asm.Mov.Imm(asm.R2, cellsHeader), asm.Mov.Reg(asm.R3, asm.R6), asm.Mov.Reg(asm.R4, asm.R9), asm.JEq.Imm(asm.R1, 0, read))
		t.loadBytes()
		t.jump(done)
		t.place(read)
		t.storeBytes()
		t.place(done)
		t.emit(asm.Mov.Reg(asm.R8, asm.R0))
		t.release(p.meterLock)
		t.release(p.lock)
		t.emit(asm.Mov.Reg(asm.R0, asm.R8), asm.Return())
		t.place(unlock)
		t.release(p.lock)
		t.place(fail)
		t.emit(asm.Mov.Imm(asm.R0, -1), asm.Return())
	})
	return assemble(append([]*code{main}, t.functions...))
}

// move copies cells between the state and data, whose first cellsHeader bytes are for the program.
func (p *pipeline) move(off int, data []byte, write bool) error {
	n := len(data) - cellsHeader
	binary.NativeEndian.PutUint32(data, uint32(off))
	binary.NativeEndian.PutUint32(data[4:], uint32(n))
	data[8] = 0
	if write {
		data[8] = 1
	}
	out := data
	if write {
		out = nil
	}
	ret, err := p.cells.Run(&ebpf.RunOptions{Data: data, DataOut: out})
	if err != nil {
		return fmt.Errorf("moving cells of a register: %w", err)
	}
	if ret != 0 {
		return errLocked
	}
	return nil
}

// errLocked: a packet has kept the registers for longer than any takes, so the CPU that it is on stands still.
var errLocked = errors.New("the registers stayed locked")

// Barrier gives packets barrierGrace, longer than any takes that is not kept waiting, looks whether the registers are free for barrierLooks, and then takes the lock itself, until barrierPatience is over.
const (
	barrierGrace    = 50 * time.Microsecond
	barrierLooks    = time.Millisecond
	barrierPatience = time.Second
)

// Barrier implements [target.Pipeline]; control.go says how.
func (p *pipeline) Barrier() error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	if len(p.prog.Registers) == 0 {
		return nil // no packet has a lock to wait for
	}
	epoch := atomic.AddUint64(p.state.word(p.epoch), 1)
	for began := time.Now(); time.Since(began) < barrierGrace; {
		runtime.Gosched()
	}
	for oldest := p.state.word(p.epoch + oldestEpoch); ; {
		now := atomic.LoadUint64(oldest)
		if now >= epoch || atomic.CompareAndSwapUint64(oldest, now, epoch) {
			break
		}
	}
	// That the lock is free is as good as having had it: whoever takes it later sees which epoch is the oldest.
	began := time.Now()
	for time.Since(began) < barrierLooks {
		if p.state.load(p.lock) == 0 {
			return nil
		}
		runtime.Gosched()
	}
	data := make([]byte, cellsHeader+8)
	for {
		err := p.move(p.epoch, data, false) // what it reads is of no interest
		if !errors.Is(err, errLocked) || time.Since(began) > barrierPatience {
			return err
		}
	}
}

func (p *pipeline) register(name string, first, count int) (*bmv2json.Register, arrayPlan, error) {
	r := p.prog.Register(name)
	if r == nil {
		return nil, arrayPlan{}, fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	if first < 0 || count < 0 || count > r.Size || first > r.Size-count {
		return nil, arrayPlan{}, fmt.Errorf("register %q: cells %d to %d of %d: %w", name, first, first+count-1, r.Size, target.ErrOutOfRange)
	}
	return r, p.registers[r.Index], nil
}

// encodeCell writes a value as a cell keeps it: a number in host order, or a padded big-endian string.
func encodeCell(cell, value []byte) {
	if len(cell) > 8 || len(cell) == 8 && len(value) > 8 {
		clear(cell)
		copy(cell[len(cell)-len(value):], value)
		return
	}
	var b [8]byte
	copy(b[8-len(value):], value)
	v := binary.BigEndian.Uint64(b[:])
	switch len(cell) {
	case 1:
		cell[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(cell, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(cell, uint32(v))
	default:
		binary.NativeEndian.PutUint64(cell, v)
	}
}

// appendCell is its inverse: it appends what a cell holds.
func appendCell(to, cell []byte, width int) []byte {
	n := (width + 7) / 8
	if wide(width) {
		return append(to, cell[len(cell)-n:]...)
	}
	var v uint64
	switch len(cell) {
	case 1:
		v = uint64(cell[0])
	case 2:
		v = uint64(binary.NativeEndian.Uint16(cell))
	case 4:
		v = uint64(binary.NativeEndian.Uint32(cell))
	default:
		v = binary.NativeEndian.Uint64(cell)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return append(to, b[8-n:]...)
}

// ReadRegister implements [target.Pipeline].
func (p *pipeline) ReadRegister(name string, index int) ([]byte, error) {
	cells, err := p.ReadRegisters(name, index, 1)
	if err != nil {
		return nil, err
	}
	return cells[0], nil
}

// ReadRegisters implements [target.Pipeline].
func (p *pipeline) ReadRegisters(name string, first, count int) ([][]byte, error) {
	leave, err := p.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	r, a, err := p.register(name, first, count)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, 0, count)
	values := make([]byte, 0, count*((r.Width+7)/8)) // of all: one for each would take longer than reading them
	buffer := make([]byte, cellsHeader+min(cellsMax, count*a.cell))
	for each := cellsMax / a.cell; count > 0; {
		n := min(count, each)
		data := buffer[:cellsHeader+n*a.cell]
		if err := p.move(a.off+first*a.cell, data, false); err != nil {
			return nil, fmt.Errorf("register %q: %w", name, err)
		}
		for b := data[cellsHeader:]; len(b) > 0; b = b[a.cell:] {
			from := len(values)
			values = appendCell(values, b[:a.cell], r.Width)
			out = append(out, values[from:len(values):len(values)])
		}
		first, count = first+n, count-n
	}
	return out, nil
}

// WriteRegister implements [target.Pipeline].
func (p *pipeline) WriteRegister(name string, index int, value []byte) error {
	return p.writeCells(name, index, 1, value)
}

// FillRegister implements [target.Pipeline].
func (p *pipeline) FillRegister(name string, value []byte) error {
	r := p.prog.Register(name)
	if r == nil {
		return fmt.Errorf("register %q: %w", name, target.ErrNotFound)
	}
	return p.writeCells(name, 0, r.Size, value)
}

func (p *pipeline) writeCells(name string, first, count int, value []byte) error {
	leave, err := p.enter()
	if err != nil {
		return err
	}
	defer leave()
	r, a, err := p.register(name, first, count)
	if err != nil {
		return err
	}
	if err := checkBytes(value, r.Width); err != nil {
		return fmt.Errorf("register %q: %w", name, err)
	}
	data := make([]byte, cellsHeader+min(count, cellsMax/a.cell)*a.cell)
	for i := cellsHeader; i < len(data); i += a.cell {
		encodeCell(data[i:i+a.cell], value)
	}
	for count > 0 {
		n := min(count, cellsMax/a.cell)
		if err := p.move(a.off+first*a.cell, data[:cellsHeader+n*a.cell], true); err != nil {
			return fmt.Errorf("register %q: %w", name, err)
		}
		first, count = first+n, count-n
	}
	return nil
}

// ---- counters ----

func (p *pipeline) counter(name string, index int) (int, error) {
	c := p.prog.Counter(name)
	if c == nil || c.Direct {
		return 0, fmt.Errorf("counter %q: %w", name, target.ErrNotFound)
	}
	if index < 0 || index >= c.Size {
		return 0, fmt.Errorf("counter %q: cell %d of %d: %w", name, index, c.Size, target.ErrOutOfRange)
	}
	return p.counters[c.Index].off + index*16, nil
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

// ---- what no program that this engine takes can have ----

func none(kind, name string) error { return fmt.Errorf("%s %q: %w", kind, name, target.ErrNotFound) }

// SetMember implements [target.Pipeline]; so do the others below. A program with such a construct has been refused.
func (p *pipeline) SetMember(profile string, _ uint32, _ *target.ActionCall, _ bool) error {
	return none("action profile", profile)
}
func (p *pipeline) DeleteMember(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *pipeline) Members(profile string) (map[uint32]target.ActionCall, error) {
	return nil, none("action profile", profile)
}
func (p *pipeline) SetGroup(profile string, _ uint32, _ []target.WeightedMember, _ bool) error {
	return none("action profile", profile)
}
func (p *pipeline) DeleteGroup(profile string, _ uint32) error {
	return none("action profile", profile)
}
func (p *pipeline) Groups(profile string) (map[uint32][]target.WeightedMember, error) {
	return nil, none("action profile", profile)
}
