package ebpf

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/target"
)

// Benchmark runs the committed program n times, as it is at tc or at XDP, on a frame as if it had
// come in by a port, without sending what comes out, and returns what one run takes. Each run first
// sets the frame back, since an answer is no query; what that takes is measured on its own and
// taken off. What the runs do to registers and counters stays.
func Benchmark(dev target.Device, xdp bool, number uint32, frame []byte, n int) (each time.Duration,
	err error) {
	d, ok := dev.(*device)
	if !ok {
		return 0, fmt.Errorf("a switch of another engine: %w", target.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pipeline
	if p == nil {
		return 0, target.ErrNoPipeline
	}
	template, err := runtime.NewState(len(frame))
	if err != nil {
		return 0, err
	}
	defer template.Close()
	copy(template.Mem, frame)
	f := p.Maps
	f.Replay, f.ReplayBytes = template.FD(), len(frame)
	h := compile.TC
	if xdp {
		h = compile.XDP
		for _, q := range d.ports { // none is really sent by
			d.PortMap.SetXDP(q.Number, q.Ifindex)
			defer d.refresh(q)
		}
	}
	insns, err := compile.Translate(p.Plan, h, f, p.Settings)
	if err != nil {
		return 0, err
	}
	prog, err := runtime.LoadProgram("bench", h, insns)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	// The kernel runs it on the loopback interface, which stands for the CPU port otherwise.
	d.PortMap.SetPort(1, number)
	defer d.PortMap.SetPort(1, d.opts.CPUPort)
	err = d.netns.Do(func() error {
		if _, each, err = prog.Benchmark(frame, n, nil); err != nil {
			return err
		}
		empty, err := benchmarkEmpty(p, h, compile.Maps{}, frame, n)
		if err != nil {
			return err
		}
		back, err := benchmarkEmpty(p, h, f, frame, n)
		each -= max(back-empty, 0)
		return err
	})
	return each, err
}

// benchmarkEmpty measures a program that at most sets the frame back.
func benchmarkEmpty(p *runtime.Pipeline, h compile.Hook, f compile.Maps, frame []byte,
	n int) (time.Duration, error) {
	insns, err := compile.EmptyProgram(p.Plan, h, f)
	if err != nil {
		return 0, err
	}
	prog, err := runtime.LoadProgram("empty", h, insns)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	_, each, err := prog.Benchmark(frame, n, nil)
	return each, err
}

// Pending reports whether frames for OnPacketIn have left a program and were not handed over yet:
// for tests that wait for all that a packet causes.
func Pending(dev target.Device) bool {
	d, ok := dev.(*device)
	return ok && d.PacketIn.Pending()
}
