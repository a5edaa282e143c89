package ebpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/target"
)

// A packet-out is run through the program at tc by BPF_PROG_TEST_RUN, which takes frames of 15 to about 3,700 bytes: what fits in a page. So the frame lies in a map, and
// the program makes the frame that it is run on as long, and copies it there.
const (
	packetOutLength = 0 // 8 bytes; 0: there is none
	packetOutFrame  = 8
	packetOutMax    = 16000 // what the kernel lets a frame grow to at tc, less a little
	packetOutSize   = packetOutFrame + packetOutMax
	packetOutLeast  = 14 // an Ethernet header
)

// PacketOut implements [target.Device]: the program is run on the frame as if it had come in by the CPU port.
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
	if len(frame) < packetOutLeast || len(frame) > packetOutMax {
		return fmt.Errorf("packet-out of %d bytes (%d to %d): %w", len(frame), packetOutLeast, packetOutMax, target.ErrInvalid)
	}
	return d.home.do(func() error { // one at a time: the thread is one
		copy(d.packetOuts.mem[packetOutFrame:], frame)
		d.packetOuts.store(packetOutLength, uint64(len(frame)))
		defer d.packetOuts.store(packetOutLength, 0)
		start := make([]byte, 64) // the kernel looks at the type in there
		copy(start, frame)
		if _, err := p.program.Run(&ebpf.RunOptions{Data: start}); err != nil {
			return fmt.Errorf("packet-out of %d bytes: %w", len(frame), err)
		}
		return nil
	})
}

// takePacketOut makes the frame, where it has come by the CPU port, the one that PacketOut has put into the map. The port is in R3. It uses all registers but PHV and Ctx.
func (t *translator) takePacketOut(drop string) {
	if t.cpuPort == 0 {
		return
	}
	usual := t.NewLabel("usual")
	t.Emit(asm.JNE.Imm(asm.R3, int32(t.cpuPort), usual), asm.LoadMapValue(asm.R1, t.fds.packetOut, 0))
	t.Load(code.Temp, asm.R1, packetOutLength, 8)
	t.Emit(asm.JEq.Imm(code.Temp, 0, usual), asm.JGT.Imm(code.Temp, packetOutMax, drop))
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeTail)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.LoadMapValue(asm.R3, t.fds.packetOut, packetOutFrame), asm.Mov.Reg(asm.R4, code.Temp))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(usual)
}
