package ebpf

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/target"
)

// Benchmark runs the committed program n times on a frame from a port, as at tc or at XDP, and
// returns the time of one run. It does not send the resulting frames. The program changes the
// frame, so each run first restores it. Benchmark measures the time for restoring separately and
// subtracts it. The runs' effects on registers and counters remain.
//
// Benchmark makes several rounds of runs and returns the time of the fastest round, because other
// work on the machine only adds time.
func Benchmark(dev target.Device, xdp bool, number uint32, frame []byte, n int) (each time.Duration,
	err error) {
	return BenchmarkChanging(dev, xdp, number, frame, Changes{}, n)
}

// Changes describes which data differs from run to run of a benchmark, and which data is reset
// before each run.
type Changes struct {
	Counts []int  // offsets of four-byte numbers in the frame that each run increments
	Zeros  []Cell // register cells of at most 64 bits that are set to 0 before each run
}

// Cell identifies a cell of a register.
type Cell struct {
	Register string
	Index    int
}

// BenchmarkChanging measures as [Benchmark] does, and applies changes from run to run. It leaves
// the last frame in frame.
func BenchmarkChanging(dev target.Device, xdp bool, number uint32, frame []byte, changes Changes,
	n int) (each time.Duration, err error) {
	err = measured(dev, xdp, number, frame, changes, func(m *measurement) error {
		each, err = m.time(nil, n)
		copy(frame, m.template.Mem)
		return err
	})
	return each, err
}

// BenchmarkCPUs runs the committed program n times on each of as many CPUs as there are frames.
// Each CPU uses its own frame. BenchmarkCPUs returns how many packets all CPUs together process per
// microsecond. As in [Benchmark], each run restores the frame, and the time for restoring is
// subtracted. If count is not 0, each run increments the four-byte number at that offset of the
// frame. The last frames remain in frames.
//
// All CPUs begin each round of runs at the same moment, with real-time priority (SCHED_FIFO). The
// result is the median of the rounds in which all CPUs ran together for nine tenths of the time.
// Too few such rounds are an error.
func BenchmarkCPUs(dev target.Device, number uint32, frames [][]byte, count, n int) (rate float64,
	err error) {
	err = measured(dev, false, number, frames[0], counting(count), func(m *measurement) error {
		var programs []*ebpf.Program
		for _, frame := range frames {
			template, err := runtime.NewState(len(frame))
			if err != nil {
				return err
			}
			defer template.Close()
			copy(template.Mem, frame)
			defer func() { copy(frame, template.Mem) }() // runs before the template is closed
			one := *m
			one.maps.Replay, one.maps.ReplayBytes = template.FD(), len(frame)
			prog, err := one.program(nil)
			if err != nil {
				return err
			}
			defer prog.Close()
			programs = append(programs, prog)
		}
		rounds := max(n/roundRuns, leastRounds)
		took := make([][]run, rounds)
		for i := range took {
			took[i] = make([]run, len(frames))
		}
		errs := make([]error, len(frames))
		// the number of times a CPU has reached the start of a round, summed over all rounds
		var arrived atomic.Int64
		var done sync.WaitGroup
		for i, prog := range programs {
			done.Go(func() {
				// The goroutine never unlocks the thread, so the thread ends with it.
				goruntime.LockOSThread()
				errs[i] = first(i)
				for r := range rounds {
					arrived.Add(1)
					for arrived.Load() < int64((r+1)*len(frames)) {
					}
					began := time.Now()
					_, each, err := prog.Benchmark(frames[i], roundRuns, nil)
					took[r][i] = run{began, time.Now(), each - m.back}
					errs[i] = errors.Join(errs[i], err)
				}
			})
		}
		done.Wait()
		var rates []float64
		for _, runs := range took {
			if together(runs) {
				sum := 0.0
				for _, r := range runs {
					sum += float64(time.Microsecond) / float64(r.each)
				}
				rates = append(rates, sum)
			}
		}
		if len(rates) < rounds/4 || len(rates) == 0 {
			return errors.Join(append(errs, fmt.Errorf("the CPUs ran together in %d of %d rounds",
				len(rates), rounds))...)
		}
		slices.Sort(rates)
		rate = rates[len(rates)/2]
		return errors.Join(errs...)
	})
	return rate, err
}

// leastRounds is the minimum number of rounds in which all CPUs ran together.
const leastRounds = 20

// run records when a CPU ran a round, and the time per packet.
type run struct {
	began, ended time.Time
	each         time.Duration
}

// together reports whether the runs overlapped for nine tenths of the time.
func together(runs []run) bool {
	// began becomes the run that started last, and ended the run that ended first
	began, ended := runs[0], runs[0]
	from, to := runs[0].began, runs[0].ended
	for _, r := range runs {
		if r.began.After(began.began) {
			began = r
		}
		if r.ended.Before(ended.ended) {
			ended = r
		}
		if r.began.Before(from) {
			from = r.began
		}
		if r.ended.After(to) {
			to = r.ended
		}
	}
	return 10*ended.ended.Sub(began.began) >= 9*to.Sub(from)
}

// first pins the thread to a CPU. It also gives the thread real-time priority if the process has
// permission.
func first(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding a thread to CPU %d: %w", cpu, err)
	}
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
		Priority: 1}, 0)
	return nil
}

// Specialise recompiles the program for the present content of its tables, without waiting until
// the tables have stopped changing. It is for measurements and tests.
func Specialise(dev target.Device) error {
	d, ok := dev.(*device)
	if !ok {
		return fmt.Errorf("a switch of another engine: %w", target.ErrInvalid)
	}
	return d.specialise(true)
}

// Stripe sets how packets lock registers. If on is set, packets lock stripes of registers,
// otherwise all registers at once. It is for measurements and tests. The error is
// [target.ErrUnsupported] if the running program does not support stripes.
func Stripe(dev target.Device, on bool) error {
	d, ok := dev.(*device)
	if !ok {
		return fmt.Errorf("a switch of another engine: %w", target.ErrInvalid)
	}
	d.swapping.Lock()
	defer d.swapping.Unlock()
	p := d.committed.Load()
	if p == nil {
		return target.ErrNoPipeline
	}
	d.stripesSet.Store(true)
	return p.SetStripes(on)
}

// Overtake simulates concurrent writes for tests. If always is set, each packet that reads
// registers without the lock reads a wrong value and then detects a concurrent write. The change
// takes effect with the next [Specialise].
func Overtake(dev target.Device, always bool) error {
	d, ok := dev.(*device)
	if !ok {
		return fmt.Errorf("a switch of another engine: %w", target.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pipeline == nil {
		return fmt.Errorf("a switch without a program: %w", target.ErrInvalid)
	}
	d.pipeline.Settings.Overtaken = always
	d.pipeline.Forget()
	return nil
}

// ByPaths reports, for tests, whether the switch recompiled the program path by path and the kernel
// accepted it.
func ByPaths(dev target.Device) bool {
	d, ok := dev.(*device)
	if !ok {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pipeline != nil && d.pipeline.Maps.Paths
}

// Step is one step of a program on a packet's path.
type Step struct {
	Name string
	// Until is the time from the start of the packet to the end of the step, in nanoseconds.
	Until float64
}

// ProfileOf measures the steps of the committed program on the path of a frame. For each node on
// the path it makes n runs, as [Benchmark] does, in which the program ends at that node. Steps are
// in the order of the path, and the last step is the whole program. Ending the program has a small
// cost, so steps of a nanosecond or two are not significant. ProfileOf measures the program before
// it is compiled by paths (compile/paths), so each node exists once.
func ProfileOf(dev target.Device, xdp bool, number uint32, frame []byte, n int) (steps []Step,
	err error) {
	err = measured(dev, xdp, number, frame, Changes{}, func(m *measurement) error {
		marks, err := m.trace()
		if err != nil {
			return err
		}
		for i, k := range marks {
			took, err := m.time(&emit.TimingMarks{Stop: k.number + 1}, n)
			if err != nil {
				return err
			}
			if i > 0 {
				steps = append(steps, Step{marks[i-1].name, float64(took)})
			}
		}
		took, err := m.time(nil, n)
		steps = append(steps, Step{"(sent)", float64(took)})
		return err
	})
	return steps, err
}

// counting returns Changes that increment the number at one offset of the frame.
func counting(at int) Changes {
	if at == 0 {
		return Changes{}
	}
	return Changes{Counts: []int{at}}
}

// measurement holds a device's program, and the frame on which it is measured.
type measurement struct {
	p     *runtime.Pipeline
	maps  emit.Maps
	hook  emit.Hook
	frame []byte
	back  time.Duration // time that each run needs to restore the frame

	template *runtime.State // map that contains the original frame
}

// Prepared is a program that is measured repeatedly on one frame. Nothing else may use its device
// until Close.
type Prepared struct {
	*measurement
	d       *device
	prog    *ebpf.Program
	release func()
}

// Prepare prepares a program for [Prepared.Time], which measures as [BenchmarkChanging] does.
func Prepare(dev target.Device, xdp bool, number uint32, frame []byte, changes Changes) (p *Prepared,
	err error) {
	m, d, release, err := measure(dev, xdp, number, frame, changes)
	if err != nil {
		return nil, err
	}
	p = &Prepared{measurement: m, d: d, release: release}
	if p.prog, err = m.program(nil); err != nil {
		release()
		return nil, err
	}
	return p, nil
}

// Time runs the program n times, and returns the time of one run.
func (p *Prepared) Time(n int) (each time.Duration, err error) {
	err = p.d.netns.Do(func() error {
		each, err = fastest(p.prog, p.frame, n)
		return err
	})
	return each - p.back, err
}

// Close releases the program and the device.
func (p *Prepared) Close() error {
	defer p.release()
	return p.prog.Close()
}

// measured calls use while a device's program is prepared for a measurement.
func measured(dev target.Device, xdp bool, number uint32, frame []byte, changes Changes,
	use func(*measurement) error) error {
	m, d, release, err := measure(dev, xdp, number, frame, changes)
	if err != nil {
		return err
	}
	defer release()
	return d.netns.Do(func() error { return use(m) })
}

// measure begins a measurement. The device is locked until release is called.
func measure(dev target.Device, xdp bool, number uint32, frame []byte, changes Changes) (
	m *measurement, d *device, release func(), err error) {
	d, ok := dev.(*device)
	if !ok {
		return nil, nil, nil, fmt.Errorf("a switch of another engine: %w", target.ErrInvalid)
	}
	d.mu.Lock()
	undo := []func(){d.mu.Unlock}
	release = func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	p := d.pipeline
	if p == nil {
		return nil, nil, nil, target.ErrNoPipeline
	}
	template, err := runtime.NewState(len(frame))
	if err != nil {
		return nil, nil, nil, err
	}
	undo = append(undo, func() { template.Close() })
	copy(template.Mem, frame)
	m = &measurement{p: p, maps: p.Maps, hook: emit.TC, frame: frame, template: template}
	m.maps.Replay, m.maps.ReplayBytes, m.maps.ReplayCounts = template.FD(), len(frame), changes.Counts
	for _, c := range changes.Zeros {
		part, err := p.StatePart(c.Register, c.Index)
		if err != nil {
			return nil, nil, nil, err
		}
		m.maps.ReplayZeros = append(m.maps.ReplayZeros, part)
	}
	if xdp {
		m.hook = emit.XDP
		for _, q := range d.ports { // Frames are not sent during a measurement.
			d.PortMap.SetXDP(q.Number, q.Ifindex)
			undo = append(undo, func() { d.refresh(q) })
		}
	}
	// The kernel runs the program on the loopback interface, which normally stands for the CPU
	// port.
	d.PortMap.SetPort(1, number)
	undo = append(undo, func() { d.PortMap.SetPort(1, d.opts.CPUPort) })
	return m, d, release, d.netns.Do(func() error {
		empty, err := benchmarkEmpty(p, m.hook, emit.Maps{}, frame)
		if err != nil {
			return err
		}
		back, err := benchmarkEmpty(p, m.hook, m.maps, frame)
		m.back = max(back-empty, 0)
		copy(template.Mem, frame)
		return err
	})
}

// program compiles and loads the program with timing marks.
func (m *measurement) program(marks *emit.TimingMarks) (*ebpf.Program, error) {
	f := m.maps
	f.Timing = marks
	if marks != nil {
		f.Replay, f.Paths = 0, false
	}
	insns, _, err := compile.Translate(m.p.Plan, m.hook, f, m.p.Settings)
	if err != nil {
		return nil, err
	}
	return runtime.LoadProgram("bench", m.hook, insns)
}

// time measures the program with timing marks and returns the time of one run.
func (m *measurement) time(marks *emit.TimingMarks, n int) (time.Duration, error) {
	prog, err := m.program(marks)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	each, err := fastest(prog, m.frame, n)
	if marks != nil {
		return each, err
	}
	return each - m.back, err
}

// mark is a timing mark on the frame's path. It has a name, its index among the program's marks,
// and its position on the path.
type mark struct {
	name         string
	number, turn int
}

// trace finds the timing marks on the frame's path.
func (m *measurement) trace() ([]mark, error) {
	all := &emit.TimingMarks{}
	f := m.maps
	f.Timing, f.Paths = all, false
	if _, _, err := compile.Translate(m.p.Plan, m.hook, f, m.p.Settings); err != nil {
		return nil, err
	}
	seen, err := runtime.NewState(emit.TraceBytes(len(all.Marks)))
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	prog, err := m.program(&emit.TimingMarks{Trace: seen.FD()})
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	if _, _, err := prog.Benchmark(m.frame, 1, nil); err != nil {
		return nil, err
	}
	var marks []mark
	for i, name := range all.Marks {
		if turn := int(seen.Load(8 + 8*i)); turn > 0 {
			marks = append(marks, mark{name, i, turn})
		}
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.turn - b.turn })
	return marks, nil
}

// roundRuns is the number of runs in a round. A round takes some milliseconds.
const roundRuns = 20_000

// fastest runs a program n times in rounds. It returns the time per run of the fastest round.
func fastest(prog *ebpf.Program, frame []byte, n int) (least time.Duration, err error) {
	for n > 0 {
		_, each, err := prog.Benchmark(frame, min(n, roundRuns), nil)
		if err != nil {
			return 0, err
		}
		if least == 0 || each < least {
			least = each
		}
		n -= roundRuns
	}
	return least, nil
}

// benchmarkEmpty measures a program that only restores the frame, or does nothing.
func benchmarkEmpty(p *runtime.Pipeline, h emit.Hook, f emit.Maps,
	frame []byte) (time.Duration, error) {
	insns, err := compile.EmptyProgram(p.Plan, h, f)
	if err != nil {
		return 0, err
	}
	prog, err := runtime.LoadProgram("empty", h, insns)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	return fastest(prog, frame, 10*roundRuns)
}

// Pending reports whether frames for OnPacketIn are still undelivered. Tests use it to wait for all
// effects of a packet.
func Pending(dev target.Device) bool {
	d, ok := dev.(*device)
	return ok && d.PacketIn.Pending()
}

// Size returns the size of a loaded program as a number of eBPF instructions and as bytes of
// machine code. It does not count programs that the program tail-calls.
func Size(prog *ebpf.Program) (instructions, machineBytes int, err error) {
	info, err := prog.Info()
	if err != nil {
		return 0, 0, fmt.Errorf("the size of a program: %w", err)
	}
	insns, err := info.Instructions()
	if err != nil {
		return 0, 0, fmt.Errorf("the instructions of a program: %w", err)
	}
	machine, err := info.JitedSize()
	return len(insns), int(machine), err
}

// Size returns the size of the program, as the function [Size] does.
func (p *Prepared) Size() (instructions, machineBytes int, err error) { return Size(p.prog) }
