package kernelpeers

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// These are actions of XDP programs.
const (
	xdpAborted = 0
	xdpTX      = 3
)

// replay is an XDP program that restores the original frame, and then calls another program.
type replay struct {
	program  *ebpf.Program
	template *ebpf.Map // holds the original frame
	next     *ebpf.Map // holds the program that is called
}

// newReplay loads a replay. shift is the number of bytes by which the called program moves the
// beginning of the frame towards lower addresses. A program that moves the beginning must also
// change the frame's length, because from the length, replay sees whether the program has already
// run.
func newReplay(frame []byte, shift int32) (_ *replay, err error) {
	r := &replay{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	r.template, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(frame)),
		MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("the map of the frame: %w", err)
	}
	if err := r.template.Put(uint32(0), frame); err != nil {
		return nil, err
	}
	r.next, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("the map of the next program: %w", err)
	}
	length := int32(len(frame))
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R4, asm.R6, 0, asm.Word), // loads xdp_md.data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // loads xdp_md.data_end
		asm.Sub.Reg(asm.R3, asm.R4),
		asm.Mov.Imm(asm.R7, 0), // R7 is the number of bytes by which this frame was moved
		asm.JEq.Imm(asm.R3, length, "shifted"),
		asm.Mov.Imm(asm.R7, shift),
		// The program moves the frame's end first, because a frame must never be shorter than its
		// Ethernet header.
		asm.Mov.Reg(asm.R2, asm.R7).WithSymbol("shifted"),
		asm.Add.Imm(asm.R2, length),
		asm.Sub.Reg(asm.R2, asm.R3),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.FnXdpAdjustTail.Call(),
		asm.JNE.Imm(asm.R0, 0, "abort"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.FnXdpAdjustHead.Call(),
		asm.JNE.Imm(asm.R0, 0, "abort"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.LoadMapValue(asm.R3, r.template.FD(), 0),
		asm.Mov.Imm(asm.R4, length),
		asm.FnXdpStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "abort"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, r.next.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, xdpAborted).WithSymbol("abort"),
		asm.Return(),
	}
	r.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Name: "replay", Type: ebpf.XDP, Instructions: insns, License: "GPL"})
	if err != nil {
		return nil, fmt.Errorf("the program that puts the frame back: %w", err)
	}
	return r, nil
}

// time runs a program n times on the frame, in ten parts. It returns the time of one run in the
// fastest part, including the replay's time.
func (r *replay) time(program *ebpf.Program, n int) (least time.Duration, err error) {
	if err := r.next.Put(uint32(0), program); err != nil {
		return 0, err
	}
	var frame []byte
	if err := r.template.Lookup(uint32(0), &frame); err != nil {
		return 0, err
	}
	for range 10 {
		action, each, err := r.program.Benchmark(frame, max(1, n/10), nil)
		if err != nil {
			return 0, err
		}
		if action != xdpTX {
			return 0, fmt.Errorf("the program's last action was %d, not XDP_TX", action)
		}
		if least == 0 || each < least {
			least = each
		}
	}
	return least, nil
}

// Close frees the program and the maps.
func (r *replay) Close() error {
	return errors.Join(r.program.Close(), r.template.Close(), r.next.Close())
}

// reflector returns a program that sends every frame back unchanged. Its measured time is therefore
// the time of the replay.
func reflector() (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{Name: "reflector", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpTX), asm.Return()}})
}
