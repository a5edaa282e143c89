package delivery

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Clones, resubmitted and recirculated packets go through the program once more. An eBPF program
// cannot go back to its start. So a copy of the frame is put in front of the port's tc ingress hook
// again (bpf_clone_redirect with BPF_F_INGRESS). The PHV of the original packet is in a slot of the
// ring that XDP and tc share (xdp_to_tc.go), and the slot's number in the frame's mark:
//
//	ingress ──▶ clone I2E: parse anew, keep a field list ──▶ egress, each replica
//	        ──▶ the cloned packet itself, after its clone: the PHV ──▶ egress
//	        ──▶ resubmit:  keep a field list, parse anew ────▶ ingress
//	egress  ──▶ clone E2E: the PHV as egress left it, a field list ──▶ egress, each replica
//	deparse ──▶ recirculate: keep a field list, parse the deparsed frame ─▶ ingress
//
// A packet's requests are kept in its PHV (memory.Requests) until its pipeline has ended; the last
// request of a kind counts. At XDP a packet with requests continues at tc. A program without such
// requests has no code for them.

const (
	// how often a packet may pass the program again; the interpreter has the same limit
	maxPasses = 4096

	// Kinds of slots, in addition to those in xdp_to_tc.go.
	reinjectCloneIngress = 16
	reinjectCloneEgress  = 17
	reinjectResubmit     = 18
	reinjectRecirculate  = 19
	reinjectOriginal     = 20

	// Values of standard_metadata.instance_type, as in BMv2.
	instanceIngressClone = 1
	instanceEgressClone  = 2
	instanceRecirculated = 4
	instanceResubmitted  = 6

	cloneIngressFlag = 1 // BPF_F_INGRESS
)

// ClearRequests emits code that clears a packet's requests, but not the count of its passes.
func (t *Delivery) ClearRequests() {
	q := &t.Requests
	if !q.Any() {
		return
	}
	t.StoreConstant(code.PHV, q.Session, 0, 4)
	t.StoreConstant(code.PHV, q.Cut, memory.NoCut, 4)
	t.StoreConstant(code.PHV, q.List, 0, 4) // this store also clears Resubmit
	t.StoreConstant(code.PHV, q.Recirc, 0, 2)
	t.StoreConstant(code.PHV, q.Cloning, 0, 1)
}

// StartRequests emits code that clears the requests and the count of passes of a packet that has
// just arrived.
func (t *Delivery) StartRequests() {
	if t.Requests.Any() {
		t.ClearRequests()
		t.StoreConstant(code.PHV, t.Requests.CopyCut, memory.NoCut, 4)
		t.StoreConstant(code.PHV, t.Requests.Passes, 0, 4)
	}
}

// EmitRequest emits a primitive that requests a clone, resubmission, recirculation or truncation.
func (t *Delivery) EmitRequest(p *bmv2json.Primitive) {
	q, arg := &t.Requests, p.Args
	number := func(e *bmv2json.Expr, mask uint64) asm.Register {
		return t.Compute(ir.And(t.Index(e), ir.Const(mask)), 0)
	}
	switch p.Op {
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress":
		t.checkFieldList(arg[1])
		t.Store(code.PHV, q.Session, number(arg[0], memory.MaxSessions-1), 4)
		t.Store(code.PHV, q.List, number(arg[1], 0xffff), 2)
		t.StoreConstant(code.PHV, q.Cloning, 1, 1)
	case "resubmit":
		t.checkFieldList(arg[0])
		t.Store(code.PHV, q.Resubmit, number(arg[0], 0xffff), 2)
	case "recirculate":
		t.checkFieldList(arg[0])
		t.Store(code.PHV, q.Recirc, number(arg[0], 0xffff), 2)
	case "truncate":
		less := t.NewLabel("longer")
		t.Compute(t.Index(arg[0]), 0)
		t.Load(asm.R2, code.PHV, q.Cut, 4)
		t.Emit(asm.JGE.Reg(asm.R1, asm.R2, less))
		t.Store(code.PHV, q.Cut, asm.R1, 4)
		t.Bind(less)
	}
}

func (t *Delivery) checkFieldList(e *bmv2json.Expr) {
	if e.Op == bmv2json.OpConst && e.Const.Sign() != 0 &&
		(!e.Const.IsInt64() || t.Prog.FieldList(int(e.Const.Int64())) == nil) {
		ir.Refuse(e.Path, "field list %s, which there is not", e.Const)
	}
}

// AfterRequests emits the code after ingress that makes the packet's clone and sends its digest. If
// the packet is resubmitted, this pass ends here.
func (t *Delivery) AfterRequests() {
	q := &t.Requests
	reinjects := q.Reinjects() && !t.Captured
	if reinjects && t.Hook == emit.XDP {
		stay := t.NewLabel("stay")
		t.Load(asm.R1, code.PHV, q.Cloning, 1)
		t.Load(asm.R2, code.PHV, q.Resubmit, 2)
		t.Emit(asm.Or.Reg(asm.R1, asm.R2), asm.JEq.Imm(asm.R1, 0, stay))
		t.PassToTC(ResumeCopies, emit.XDPDrop)
		t.Bind(stay)
	}
	if reinjects && q.Clones && t.Hook == emit.TC {
		none := t.NewLabel("unclone")
		t.Load(asm.R1, code.PHV, q.Cloning, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, none))
		t.StoreConstant(code.PHV, q.Cloning, 0, 1)
		t.reinject(reinjectCloneIngress)
		// The clone leaves first, as in BMv2. The packet itself is reinjected after the clone or,
		// if that fails, continues here.
		here := t.NewLabel("here")
		t.tryReinject(reinjectOriginal, here)
		t.Jump("ingress.drop")
		t.Bind(here)
		t.Bind(none)
	}
	t.sendDigest()
	if reinjects && q.Returns && t.Hook == emit.TC {
		on := t.NewLabel("on")
		t.Load(asm.R1, code.PHV, q.Resubmit, 2)
		t.Emit(asm.JEq.Imm(asm.R1, 0, on))
		t.reinject(reinjectResubmit)
		t.Jump("ingress.drop")
		t.Bind(on)
	}
}

// reinject emits code that puts a copy of the frame in front of the port again, with the PHV in a
// slot. If that fails, the code counts the copy as lost. It uses all registers but PHV and Ctx.
func (t *Delivery) reinject(kind int32) {
	lost, done := t.NewLabel("lost"), t.NewLabel("back")
	t.tryReinject(kind, lost)
	t.Jump(done)
	t.Bind(lost)
	t.countLostResume()
	t.Bind(done)
}

// tryReinject emits the same code as reinject, but jumps to failed if reinjection is impossible.
func (t *Delivery) tryReinject(kind int32, failed string) {
	t.Load(asm.R1, code.PHV, t.Requests.Passes, 4)
	t.Emit(asm.JGE.Imm(asm.R1, maxPasses, failed), asm.Add.Imm(asm.R1, 1))
	t.Store(code.PHV, t.Requests.Passes, asm.R1, 4)
	t.fillSlot(kind, failed)
	// The slot's number becomes a mark that no other program uses and that is never 0.
	t.Emit(asm.Mov.Reg(asm.R1, code.Entry))
	t.maskSlot(asm.R1)
	t.Store(code.Ctx, emit.SKBMark, asm.R1, 4)
	// The frame goes back to the port where it arrived. A frame from the controller has no such
	// port and goes to any port.
	port, own := t.NewLabel("port"), t.NewLabel("own")
	t.Load(asm.R2, code.Ctx, emit.SKBIfindex, 4)
	t.Emit(asm.JNE.Imm(asm.R2, 1, own))
	t.Emit(asm.LoadMapValue(asm.R2, t.Maps.Ports, memory.PortsAny))
	t.Load(asm.R2, asm.R2, 0, 4)
	t.Bind(own)
	t.Emit(asm.JNE.Imm(asm.R2, 0, port))
	t.StoreConstant(code.Temp, memory.SlotNumber, 0, 8)
	t.Jump(failed)
	t.Bind(port)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Imm(asm.R3, cloneIngressFlag))
	t.Call(asm.FnCloneRedirect)
	t.Emit(asm.Mov.Imm(asm.R1, 0))
	t.Store(code.Ctx, emit.SKBMark, asm.R1, 4)
	t.Emit(asm.JNE.Imm(asm.R0, 0, failed))
}

// maskSlot emits code that turns the low 31 bits of a slot's number into a frame mark, or a frame
// mark back into these bits.
func (t *Delivery) maskSlot(r asm.Register) {
	t.Emit(asm.Xor.Imm(r, int32(t.Maps.Magic&0x7fffffff)), asm.And.Imm(r, 0x7fffffff),
		asm.Or.Imm32(r, -1<<31))
}

// ResumeReinjected emits the beginning of tc for programs in which packets return. A frame with the
// mark of a slot continues at one of three labels. Any other frame continues after this code. At
// copies and ended, the packet's PHV is restored. At parse, the frame must still be parsed. There,
// Temp points to the slot with the sender's PHV, Entry is the slot's kind, and the PHV has only the
// port and the number of passes. If the program clones nothing, only parse is used, and the label
// copies need not exist.
func (t *Delivery) ResumeReinjected(copies, parse, ended string) {
	plain, egressClone, rest := t.NewLabel("unmarked"), t.NewLabel("egressClone"),
		t.NewLabel("rest")
	t.Load(code.Entry, code.Ctx, emit.SKBMark, 4)
	t.Emit(asm.JEq.Imm(code.Entry, 0, plain))
	t.maskSlot(code.Entry)
	t.Emit(asm.And.Imm(code.Entry, 0x7fffffff))
	t.Emit(asm.Mov.Reg(code.Temp, code.Entry), asm.Sub.Imm(code.Temp, 1),
		asm.And.Imm(code.Temp, memory.ResumeSlots-1), asm.Mul.Imm(code.Temp, int32(t.SlotStride())))
	t.Emit(asm.LoadMapValue(asm.R1, t.Maps.Resume, 0), asm.Add.Reg(code.Temp, asm.R1))
	t.Load(asm.R0, code.Temp, memory.SlotNumber, 8)
	t.Emit(asm.JEq.Imm(asm.R0, slotBusy, plain), asm.Mov.Reg(asm.R1, asm.R0),
		asm.And.Imm(asm.R1, 0x7fffffff), asm.JNE.Reg(asm.R1, code.Entry, plain))
	t.Load(asm.R1, code.Temp, memory.SlotKind, 4)
	// Lower kinds belong to frames with a metadata cookie, which ResumeFromXDP restores.
	t.Emit(asm.JLT.Imm(asm.R1, reinjectCloneIngress, plain))
	t.Emit(asm.Mov.Reg(asm.R3, asm.R0), asm.Mov.Imm(asm.R2, slotBusy),
		code.Atomic(asm.CmpXchg, code.Temp, asm.R2, memory.SlotNumber), asm.JNE.Reg(asm.R0, asm.R3, plain))
	t.Emit(asm.Mov.Imm(asm.R1, 0))
	t.Store(code.Ctx, emit.SKBMark, asm.R1, 4)
	t.Store(asm.R10, SlotOnStack, code.Temp, 8)
	t.LookupPHV("ingress.drop")
	t.Load(code.Temp, asm.R10, SlotOnStack, 8)
	t.Load(code.Entry, code.Temp, memory.SlotKind, 4)
	if t.Requests.Clones {
		t.Emit(asm.JEq.Imm(code.Entry, reinjectCloneEgress, egressClone),
			asm.JEq.Imm(code.Entry, reinjectOriginal, rest))
	}
	for _, f := range []int{memory.PHVPort, t.Requests.Passes} {
		t.Load(asm.R1, code.Temp, memory.SlotPHV+f, 4)
		t.Store(code.PHV, f, asm.R1, 4)
	}
	t.ClearRequests()
	t.StartDigest()
	t.StoreConstant(code.PHV, t.Requests.CopyCut, memory.NoCut, 4)
	t.Jump(parse)

	if t.Requests.Clones {
		// This is a clone of a packet after egress. Its PHV has only the metadata of the field
		// list.
		t.Bind(egressClone)
		t.readSlot()
		t.restoreFieldList(instanceEgressClone, t.Requests.List)
		t.RestoreTags("ingress.drop")
		t.Jump(copies)

		// This is the original packet, after its clone was made in ingress.
		t.Bind(rest)
		t.readSlot()
		t.freeSlot()
		t.RestoreTags("ingress.drop")
		t.Jump(ended)
	}
	t.Bind(plain)
}

// SlotOnStack is the stack offset that holds the slot's address while the packet is parsed again.
const SlotOnStack = -64

// restoreFieldList emits code that clears the metadata except for the fields of a field list, sets
// the instance type, and frees the slot at Temp. The number of the field list is in the slot's PHV
// at offset list.
func (t *Delivery) restoreFieldList(instance uint32, list int) {
	t.Zero(code.PHV, t.Layout.Meta, t.Layout.Headers-t.Layout.Meta)
	t.restoreFields(list)
	t.SetStandardConstant(t.Std.InstanceType, instance)
	t.freeSlot()
}

// readSlot emits code that copies the PHV from the slot at Temp.
func (t *Delivery) readSlot() {
	t.Emit(asm.Mov.Reg(asm.R1, code.PHV), asm.Mov.Imm(asm.R2, int32(t.PHVBytes)),
		asm.Mov.Reg(asm.R3, code.Temp), asm.Add.Imm(asm.R3, memory.SlotPHV))
	t.Call(asm.FnProbeReadKernel)
	t.Emit(asm.JNE.Imm(asm.R0, 0, "ingress.drop"))
}

func (t *Delivery) freeSlot() {
	t.Emit(asm.Mov.Imm(asm.R1, 0), code.Atomic(asm.Xchg, code.Temp, asm.R1, memory.SlotNumber))
}

// restoreFields emits code that copies the fields of a field list from the slot at Temp. The list
// is known only at run time.
func (t *Delivery) restoreFields(list int) {
	for _, l := range t.Prog.FieldLists {
		other := t.NewLabel("list")
		t.Load(asm.R1, code.Temp, memory.SlotPHV+list, 2)
		t.Emit(asm.JNE.Imm(asm.R1, int32(l.ID), other))
		for _, f := range l.Fields {
			if f.IsValidity() || f.Field.VL {
				ir.Refuse(l.Path, "a field list with %s", f)
			}
			p := t.Layout.Field(f)
			for off := 0; off < p.Size; off += 8 {
				n := min(8, p.Size-off)
				t.Load(asm.R2, code.Temp, memory.SlotPHV+p.Off+off, n)
				t.Store(code.PHV, p.Off+off, asm.R2, n)
			}
		}
		t.Bind(other)
	}
}

// BeforeParsing emits code that sets the initial state of a packet that is parsed again. It runs
// before the parser.
func (t *Delivery) BeforeParsing() {
	plain, back := t.NewLabel("first"), t.NewLabel("cameBack")
	t.Load(asm.R1, asm.R10, SlotOnStack, 8)
	t.Emit(asm.JEq.Imm(asm.R1, 0, plain), asm.Mov.Reg(code.Temp, asm.R1))
	t.Load(code.Entry, code.Temp, memory.SlotKind, 4)
	t.Load(asm.R4, code.PHV, memory.PHVLen, 4)
	t.SetStandard(t.Std.PacketLength, asm.R4)
	if t.Requests.Clones {
		t.Emit(asm.JEq.Imm(code.Entry, reinjectCloneIngress, plain))
	}
	t.SetStandardConstant(t.Std.IngressPort, 0) // The port is 0 unless a field list contains it.
	t.FieldIf(t.Std.IngressTime, func(p ir.Place) { t.StoreConstant(code.PHV, p.Off, 0, p.Size) })
	if t.Requests.Returns {
		recirculated := t.NewLabel("recirculated")
		t.Emit(asm.JEq.Imm(code.Entry, reinjectRecirculate, recirculated))
		t.restoreFields(t.Requests.Resubmit)
		t.SetStandardConstant(t.Std.InstanceType, instanceResubmitted)
		t.Jump(back)
		t.Bind(recirculated)
		t.restoreFields(t.Requests.Recirc)
		t.SetStandardConstant(t.Std.InstanceType, instanceRecirculated)
		t.Bind(back)
		t.Load(asm.R4, code.PHV, memory.PHVLen, 4)
		t.SetStandard(t.Std.PacketLength, asm.R4)
		t.freeSlot()
	}
	t.Bind(plain)
}

// AfterParsing emits code that sends an ingress clone on to egress after the clone has been parsed
// again.
func (t *Delivery) AfterParsing(copies string) {
	if !t.Requests.Clones {
		return
	}
	on := t.NewLabel("on")
	t.Load(asm.R1, asm.R10, SlotOnStack, 8)
	t.Emit(asm.JEq.Imm(asm.R1, 0, on), asm.Mov.Reg(code.Temp, asm.R1))
	t.Load(asm.R1, code.Temp, memory.SlotKind, 4)
	t.Emit(asm.JNE.Imm(asm.R1, reinjectCloneIngress, on))
	t.Load(asm.R1, code.Temp, memory.SlotPHV+t.Requests.Session, 4)
	t.Store(code.PHV, t.Requests.Session, asm.R1, 4)
	t.restoreFieldList(instanceIngressClone, t.Requests.List)
	t.Jump(copies)
	t.Bind(on)
}

// AfterEgressPipeline emits code that makes the clone that egress requested. At XDP, a packet for
// which egress requested anything continues at tc.
func (t *Delivery) AfterEgressPipeline() {
	q := &t.Requests
	if !q.Reinjects() || t.Captured {
		return
	}
	if t.Hook == emit.XDP {
		stay := t.NewLabel("stay")
		t.Load(asm.R1, code.PHV, q.Cloning, 1)
		t.Load(asm.R2, code.PHV, q.Recirc, 2)
		t.Emit(asm.Or.Reg(asm.R1, asm.R2), asm.JEq.Imm(asm.R1, 0, stay))
		t.PassToTC(resumeAfterEgress, emit.VerdictDrop)
		t.Bind(stay)
		return
	}
	if q.Clones {
		none := t.NewLabel("unclone")
		t.Load(asm.R1, code.PHV, q.Cloning, 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, none))
		t.StoreConstant(code.PHV, q.Cloning, 0, 1)
		t.reinject(reinjectCloneEgress)
		t.Bind(none)
	}
}

// AfterDeparsing emits code that ends this pass of a packet that is recirculated.
func (t *Delivery) AfterDeparsing(drop string) {
	q := &t.Requests
	if !q.Returns || t.Captured || t.Hook == emit.XDP {
		return
	}
	on := t.NewLabel("on")
	t.Load(asm.R1, code.PHV, q.Recirc, 2)
	t.Emit(asm.JEq.Imm(asm.R1, 0, on))
	t.reinject(reinjectRecirculate)
	t.Jump(drop)
	t.Bind(on)
}
