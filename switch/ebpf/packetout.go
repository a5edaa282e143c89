package ebpf

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile"
	"github.com/netcraq/netcraq/switch/target"
)

// PacketOut implements [target.Device]: the program is run on the frame as if it had come in by the
// CPU port.
func (d *device) PacketOut(frame []byte) error {
	d.mu.Lock()
	p := d.pipeline
	d.mu.Unlock()
	if p == nil {
		return fmt.Errorf("packet-out: %w", target.ErrNoPipeline)
	}
	if d.opts.CPUPort == 0 {
		return fmt.Errorf("packet-out: the switch has no CPU port: %w", target.ErrInvalid)
	}
	if len(frame) < compile.PacketOutLeast || len(frame) > compile.PacketOutMax {
		return fmt.Errorf("packet-out of %d bytes (%d to %d): %w", len(frame),
			compile.PacketOutLeast, compile.PacketOutMax, target.ErrInvalid)
	}
	return d.netns.Do(func() error { // one at a time: the thread is one
		copy(d.PacketOuts.Mem[compile.PacketOutFrame:], frame)
		d.PacketOuts.Store(compile.PacketOutLength, uint64(len(frame)))
		defer d.PacketOuts.Store(compile.PacketOutLength, 0)
		start := make([]byte, 64) // the kernel looks at the type in there
		copy(start, frame)
		if _, err := p.TC.Run(&ebpf.RunOptions{Data: start}); err != nil {
			return fmt.Errorf("packet-out of %d bytes: %w", len(frame), err)
		}
		return nil
	})
}
