package ebpf

import (
	"fmt"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// Benchmark runs the committed program n times, as it is at tc or at XDP, on a frame as if it had come in by a port, without sending what comes out, and returns what
// one run takes, the setting back of the frame before each run included. What the runs do to registers and counters stays.
func Benchmark(dev target.Device, xdp bool, number uint32, frame []byte, n int) (each time.Duration, err error) {
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
	template, err := newState(len(frame))
	if err != nil {
		return 0, err
	}
	defer template.close()
	copy(template.mem, frame)
	f := p.fds
	f.replay, f.replayLen = template.m.FD(), len(frame)
	h := hookTC
	if xdp {
		h = hookXDP
		for _, q := range d.ports { // none is really sent by
			d.setXDP(q.Number, q.ifindex)
			defer d.refresh(q)
		}
	}
	insns, err := translate(p.plan, h, f, p.opts, d.started)
	if err != nil {
		return 0, err
	}
	prog, err := load("bench", h, insns)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	// The kernel runs it on the loopback interface, which stands for the CPU port otherwise.
	d.setPort(1, number)
	defer d.setPort(1, d.opts.CPUPort)
	err = d.home.do(func() error {
		_, each, err = prog.Benchmark(frame, n, nil)
		return err
	})
	return each, err
}
