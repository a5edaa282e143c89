package ebpf

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/target"
)

// PacketOut implements [target.Device]. It runs the program on the frame as if the frame had
// arrived at the CPU port.
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
	if len(frame) < memory.PacketOutLeast || len(frame) > memory.PacketOutMax {
		return fmt.Errorf("packet-out of %d bytes (%d to %d): %w", len(frame),
			memory.PacketOutLeast, memory.PacketOutMax, target.ErrInvalid)
	}
	// Packet-outs run one at a time, because there is a single thread.
	return d.netns.Do(func() error {
		copy(d.PacketOuts.Mem[memory.PacketOutFrame:], frame)
		d.PacketOuts.Store(memory.PacketOutLength, uint64(len(frame)))
		defer d.PacketOuts.Store(memory.PacketOutLength, 0)
		start := make([]byte, 64) // The kernel reads the EtherType from these bytes.
		copy(start, frame)
		if _, err := p.TC.Run(&ebpf.RunOptions{Data: start}); err != nil {
			return fmt.Errorf("packet-out of %d bytes: %w", len(frame), err)
		}
		return nil
	})
}
