package kernelload

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/wire"
)

// Where things are in the memory that the program shares with this process: one value of one map.
const (
	offStop   = 0  // 8 bytes: 1: frames that come back are not sent on
	offParked = 8  // 8 bytes: frames that came back after that
	offStray  = 16 // 8 bytes: answers to a query that had been answered, or to none
	offWrong  = 24 // 8 bytes: values or keys that are not what was asked for
	offStatus = 64 // 8 bytes for each status of each op: 2 * 32
	// the queries without what is different in each: a READ, and templateBytes on a WRITE
	offTemplate   = 640
	templateBytes = 256
	offSlots      = 4096
	slotBytes     = 64

	slotSent    = 0  // 8 bytes: nanoseconds of the kernel's monotonic clock
	slotRequest = 8  // 4 bytes: of the query that is on its way, host order
	slotKey     = 12 // 4 bytes: host order
	slotOp      = 16 // 4 bytes: the op of that query
	slotSession = 20 // 4 bytes
	slotRandom  = 24 // 8 bytes: the state of its random numbers

	maxSlots = 1024
	// drawTable KEY_IDs, 4 bytes each: the next key is one of them, each as likely
	offDraw = offSlots + maxSlots*slotBytes
	drawn   = 1 << 16

	// Histograms: for each op, fine cells of fineStep nanoseconds, then coarse ones.
	offHistogram = offDraw + 4*drawn
	cells        = 4096
	fineStep     = 100
	coarseStep   = 10_000
	sharedBytes  = offHistogram + 2*2*cells*8

	headers = 14 + 20 + 8 // of a frame, before what a protocol has
)

// Where things are in the context.
const (
	skbIfindex, skbData, skbDataEnd = 40, 76, 80
	xdpData, xdpDataEnd             = 0, 4

	tcxNext, tcShot = -1, 2
	xdpPass, xdpTx  = 2, 3
)

// loop is the program at the client's interface: each answer becomes the next query.
//
// R6 is the context, R7 the frame, R8 the slot that the answer belongs to, R9 the time.
func loop(shared *ebpf.Map, cfg *Config) (asm.Instructions, error) {
	shape := cfg.protocol().Shape()
	in := func(off int) int16 { return int16(headers + off) }
	end := int32(headers + shape.Size)
	first, last := in(shape.Value), in(shape.Value+shape.ValueBytes-8)
	// where emits f for where a field is: it can be elsewhere in a WRITE, of which R5 is
	// wire.Write, than in a READ.
	n := 0
	var p asm.Instructions
	emit := func(in ...asm.Instruction) { p = append(p, in...) }
	// an instruction without effect to carry the label
	label := func(name string) { p = append(p, asm.Mov.Reg(asm.R0, asm.R10).WithSymbol(name)) }
	where := func(offs [2]int, f func(off int16)) {
		if offs[0] == offs[1] {
			f(in(offs[0]))
			return
		}
		n++
		write, done := fmt.Sprintf("write%d", n), fmt.Sprintf("done%d", n)
		emit(asm.JEq.Imm(asm.R5, int32(wire.Write), write))
		f(in(offs[0]))
		emit(asm.Ja.Label(done))
		label(write)
		f(in(offs[1]))
		label(done)
	}
	at := func(dst asm.Register, off int) asm.Instruction {
		return asm.LoadMapValue(dst, shared.FD(), uint32(off))
	}
	add := func(off int) asm.Instructions { // one more of a counter
		return asm.Instructions{at(asm.R1, off), asm.Mov.Imm(asm.R2, 1), increment(asm.R1, asm.R2)}
	}

	emit(asm.Mov.Reg(asm.R6, asm.R1))
	emit(frame(end, skbData, skbDataEnd, "whole")...)
	emit(asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, end), asm.FnSkbPullData.Call())
	emit(frame(end, skbData, skbDataEnd, "whole")...)
	emit(asm.Ja.Label("other"))
	label("whole")
	// Is it an answer to one of ours?
	emit(
		asm.LoadMem(asm.R1, asm.R7, 12, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, 0x0800, "other"),
		asm.LoadMem(asm.R1, asm.R7, 23, asm.Byte), asm.JNE.Imm(asm.R1, 17, "other"),
		asm.LoadMem(asm.R1, asm.R7, 34, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, int32(shape.Port), "other"),
		asm.LoadMem(asm.R1, asm.R7, 36, asm.Half), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.Sub.Imm(asm.R1, int32(cfg.FirstPort)),
		asm.JGE.Imm(asm.R1, int32(cfg.Outstanding), "other"),
		asm.JGE.Imm(asm.R1, maxSlots, "other"),
		asm.Mul.Imm(asm.R1, slotBytes), at(asm.R8, offSlots), asm.Add.Reg(asm.R8, asm.R1),
	)
	emit(asm.FnKtimeGetNs.Call(), asm.Mov.Reg(asm.R9, asm.R0))
	// Of the query that is on its way? Whoever changes the number has the answer.
	answer := shape.Answer
	if cfg.Reflected {
		answer = shape.Query
	}
	emit(asm.LoadMem(asm.R5, asm.R8, slotOp, asm.Word))
	where(answer, func(off int16) { emit(asm.LoadMem(asm.R3, asm.R7, off, asm.Word)) })
	emit(asm.HostTo(asm.BE, asm.R3, asm.Word), asm.LoadMem(asm.R4, asm.R7, in(shape.Op), asm.Byte))
	if !cfg.Reflected {
		emit(asm.Add.Imm(asm.R5, 1)) // a reply's op follows its request's
	}
	emit(
		asm.JNE.Reg(asm.R4, asm.R5, "stray"),
		asm.Mov.Reg(asm.R0, asm.R3), asm.Mov.Reg(asm.R2, asm.R3), asm.Add.Imm(asm.R2, 1),
		claim(asm.R8, asm.R2, slotRequest), asm.JNE.Reg(asm.R0, asm.R3, "stray"),
	)
	// How long did it take? R5 becomes the op's index: 0 for a READ, 1 for a WRITE.
	emit(
		asm.LoadMem(asm.R5, asm.R8, slotOp, asm.Word), asm.RSh.Imm(asm.R5, 1),
		asm.And.Imm(asm.R5, 1),
		asm.LoadMem(asm.R1, asm.R8, slotSent, asm.DWord), asm.Mov.Reg(asm.R2, asm.R9),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.Mov.Reg(asm.R3, asm.R2), asm.Div.Imm(asm.R3, fineStep),
		asm.JLT.Imm(asm.R3, cells, "fine"),
		asm.Div.Imm(asm.R2, coarseStep), asm.Mov.Imm(asm.R3, cells-1),
		asm.JGE.Imm(asm.R2, cells, "last"), asm.Mov.Reg(asm.R3, asm.R2),
		asm.Add.Imm(asm.R3, cells).WithSymbol("last"),
	)
	label("fine")
	emit(
		asm.JGE.Imm(asm.R3, 2*cells, "other"), // never: for the verifier
		asm.Mov.Reg(asm.R1, asm.R5), asm.Mul.Imm(asm.R1, 2*cells), asm.Add.Reg(asm.R3, asm.R1),
		asm.LSh.Imm(asm.R3, 3),
		at(asm.R1, offHistogram), asm.Add.Reg(asm.R1, asm.R3), asm.Mov.Imm(asm.R2, 1),
		increment(asm.R1, asm.R2),
	)
	// What did it say?
	if !cfg.Reflected {
		emit(
			asm.LoadMem(asm.R1, asm.R7, in(shape.Status), asm.Byte), asm.And.Imm(asm.R1, 31),
			asm.Mov.Reg(asm.R4, asm.R1),
			asm.Mov.Reg(asm.R3, asm.R5), asm.LSh.Imm(asm.R3, 5), asm.Add.Reg(asm.R3, asm.R1),
			asm.LSh.Imm(asm.R3, 3),
			at(asm.R1, offStatus), asm.Add.Reg(asm.R1, asm.R3), asm.Mov.Imm(asm.R2, 1),
			increment(asm.R1, asm.R2),
			asm.LoadMem(asm.R1, asm.R7, in(shape.Key), asm.Word),
			asm.HostTo(asm.BE, asm.R1, asm.Word), asm.LoadMem(asm.R2, asm.R8, slotKey, asm.Word),
			asm.JNE.Reg(asm.R1, asm.R2, "wrong"),
			asm.JNE.Imm(asm.R5, 0, "next"), asm.JNE.Imm(asm.R4, int32(wire.OK), "next"),
		)
		if shape.Length >= 0 {
			emit(asm.LoadMem(asm.R1, asm.R7, in(shape.Length), asm.Half),
				asm.HostTo(asm.BE, asm.R1, asm.Half),
				asm.JNE.Imm(asm.R1, int32(shape.ValueBytes), "wrong"))
		}
		emit(
			asm.LoadMem(asm.R1, asm.R7, first, asm.DWord),
			asm.LoadMem(asm.R3, asm.R7, last, asm.DWord), asm.JNE.Reg(asm.R1, asm.R3, "wrong"),
			asm.HostTo(asm.BE, asm.R1, asm.DWord), asm.RSh.Imm(asm.R1, 32),
			asm.JEq.Reg(asm.R1, asm.R2, "next"),
		)
		label("wrong")
		emit(add(offWrong)...)
	}
	label("next")
	emit(at(asm.R1, offStop), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
		asm.JNE.Imm(asm.R1, 0, "parked"))
	// The next query: xorshift64 (Marsaglia 2003) says what and which.
	emit(
		asm.LoadMem(asm.R1, asm.R8, slotRandom, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1), asm.LSh.Imm(asm.R2, 13), asm.Xor.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 7), asm.Xor.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R2, asm.R1), asm.LSh.Imm(asm.R2, 17), asm.Xor.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.R8, slotRandom, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, 20), asm.And.Imm(asm.R2, drawn-1),
		asm.LSh.Imm(asm.R2, 2), at(asm.R3, offDraw), asm.Add.Reg(asm.R3, asm.R2),
		asm.LoadMem(asm.R4, asm.R3, 0, asm.Word), // R4: the key
		asm.RSh.Imm(asm.R1, 40), asm.Mod.Imm(asm.R1, 100),
		asm.Mov.Imm(asm.R5, int32(wire.Read)), asm.JGE.Imm(asm.R1, int32(cfg.WritePercent),
			"chosen"), asm.Mov.Imm(asm.R5, int32(wire.Write)),
	)
	label("chosen") // R5: the op
	emit(
		asm.StoreMem(asm.R8, slotKey, asm.R4, asm.Word),
		asm.StoreMem(asm.R8, slotOp, asm.R5, asm.Word),
		asm.StoreMem(asm.R8, slotSent, asm.R9, asm.DWord),
		asm.LoadMem(asm.R3, asm.R8, slotRequest, asm.Word), // R3: the request
		// the slot's port, as it stands in the frame
		asm.LoadMem(asm.R2, asm.R7, 34+2, asm.Half),
		// R1: the template
		asm.Mov.Reg(asm.R0, asm.R5), asm.RSh.Imm(asm.R0, 1), asm.And.Imm(asm.R0, 1),
		asm.Mul.Imm(asm.R0, templateBytes), at(asm.R1, offTemplate), asm.Add.Reg(asm.R1, asm.R0),
	)
	for off, left := int16(0), shape.covered(); left > 0; {
		size, bytes := asm.DWord, 8
		for bytes > left {
			size, bytes = map[int]asm.Size{8: asm.Word, 4: asm.Half, 2: asm.Byte}[bytes], bytes/2
		}
		emit(asm.LoadMem(asm.R0, asm.R1, off, size), asm.StoreMem(asm.R7, off, asm.R0, size))
		off, left = off+int16(bytes), left-bytes
	}
	emit(
		asm.StoreMem(asm.R7, 34, asm.R2, asm.Half),
		// The value: the key and the request, first and last.
		asm.Mov.Reg(asm.R1, asm.R4), asm.LSh.Imm(asm.R1, 32), asm.Or.Reg(asm.R1, asm.R3),
		asm.HostTo(asm.BE, asm.R1, asm.DWord),
		asm.LoadMem(asm.R2, asm.R8, slotSession, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.HostTo(asm.BE, asm.R3, asm.Word),
		asm.HostTo(asm.BE, asm.R4, asm.Word), asm.StoreMem(asm.R7, in(shape.Key), asm.R4, asm.Word),
	)
	where(shape.Query, func(off int16) { emit(asm.StoreMem(asm.R7, off, asm.R3, asm.Word)) })
	emit(
		asm.JEq.Imm(asm.R5, int32(wire.Write), "put"),
		asm.Mov.Imm(asm.R1, 0), asm.Mov.Imm(asm.R2, 0), // a READ has neither
	)
	label("put")
	if shape.Session >= 0 {
		emit(asm.StoreMem(asm.R7, in(shape.Session), asm.R2, asm.Half))
	}
	emit(
		asm.StoreMem(asm.R7, first, asm.R1, asm.DWord),
		asm.StoreMem(asm.R7, last, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word), asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(), asm.Return(),
	)
	label("stray")
	emit(add(offStray)...)
	emit(asm.Mov.Imm(asm.R0, tcShot), asm.Return())
	label("parked")
	emit(add(offParked)...)
	emit(asm.Mov.Imm(asm.R0, tcShot), asm.Return())
	label("other")
	emit(asm.Mov.Imm(asm.R0, tcxNext), asm.Return())
	if len(p) > 4096 {
		return nil, fmt.Errorf("the load program has %d instructions", len(p))
	}
	return p, nil
}

// frame makes R7 the frame's first byte and goes on at a label if there are as many bytes as that.
func frame(bytes int32, data, end int16, whole string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R7, asm.R6, data, asm.Word), asm.LoadMem(asm.R2, asm.R6, end, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, bytes), asm.JLE.Reg(asm.R3, asm.R2, whole),
	}
}

// increment adds src to the 64-bit word at dst, atomically.
func increment(dst, src asm.Register) asm.Instruction {
	return asm.AddAtomic.Mem(dst, src, asm.DWord, 0)
}

// claim puts src into the 32-bit word at base+off if that is R0, atomically; R0 is what was there.
// (The constant is the operation's code: cilium/ebpf v0.22.0 encodes what stands there.)
func claim(base, src asm.Register, off int16) asm.Instruction {
	in := asm.CmpXchg.Mem(base, src, asm.Word, off)
	in.Constant = int64(asm.CmpXchg >> 8)
	return in
}

// reflector is the least that a switch can do with a query: it goes back to where it came from,
// with the addresses swapped.
func reflector(xdp bool) asm.Instructions {
	data, end := int16(skbData), int16(skbDataEnd)
	if xdp {
		data, end = xdpData, xdpDataEnd
	}
	p := append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
		frame(headers, data, end, "whole")...)
	p = append(p, asm.Ja.Label("other"), asm.LoadMem(asm.R1, asm.R7, 12,
		asm.Half).WithSymbol("whole"), asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, 0x0800, "other"), asm.LoadMem(asm.R1, asm.R7, 23, asm.Byte),
		asm.JNE.Imm(asm.R1, 17, "other"))
	swap := func(a, b int16, size asm.Size) {
		p = append(p, asm.LoadMem(asm.R1, asm.R7, a, size), asm.LoadMem(asm.R2, asm.R7, b, size),
			asm.StoreMem(asm.R7, a, asm.R2, size), asm.StoreMem(asm.R7, b, asm.R1, size))
	}
	swap(0, 6, asm.Word)
	swap(4, 10, asm.Half)
	swap(26, 30, asm.Word)
	swap(34, 36, asm.Half)
	pass := int32(tcxNext)
	if xdp {
		pass = xdpPass
		p = append(p, asm.Mov.Imm(asm.R0, xdpTx), asm.Return())
	} else {
		p = append(p, asm.LoadMem(asm.R1, asm.R6, skbIfindex, asm.Word), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(), asm.Return())
	}
	return append(p, asm.Mov.Imm(asm.R0, pass).WithSymbol("other"), asm.Return())
}
