package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/delivery"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// replicateClone emits code that sends a clone to each port of its clone session, as multicast does
// for the replicas of a group.
func (t *translator) replicateClone() {
	t.Load(asm.R1, code.PHV, t.Requests.Session, 4)
	t.Emit(asm.JGE.Imm(asm.R1, memory.MaxSessions, "ingress.drop"), asm.Mov.Reg(code.Entry, asm.R1))
	t.Emit(asm.LSh.Imm(asm.R1, 2))
	t.StateAddress(asm.R2, t.Requests.Cuts)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 4)
	whole := t.NewLabel("whole")
	t.Emit(asm.JNE.Imm(asm.R3, 0, whole), asm.Mov.Imm(asm.R3, memory.NoCut))
	t.Bind(whole)
	t.Store(code.PHV, t.Requests.CopyCut, asm.R3, 4)
	t.Emit(asm.LSh.Imm(code.Entry, 3))
	t.StateAddress(asm.R2, t.Requests.Sessions)
	t.Emit(asm.Add.Reg(asm.R2, code.Entry))
	t.Load(asm.R3, asm.R2, 0, 8)
	t.Emit(asm.JEq.Imm(asm.R3, 0, "ingress.drop"))
	t.Store(code.PHV, memory.PHVGroup, asm.R3, 8)
	t.replicate(0)
	t.Jump("ingress.drop") // All copies have been sent, so the original packet ends here.
}

// afterIngress emits BMv2's traffic manager, which sends no copy, one copy or several copies of a
// packet through egress.
func (t *translator) afterIngress() {
	t.delivery.AfterRequests()
	last := t.NewLabel("last")
	if !t.Std.McastGroup.IsZero() {
		t.multicast(last)
	}
	spec := t.Layout.Field(t.Std.EgressSpec)
	t.Load(asm.R1, code.PHV, spec.Off, spec.Size)
	t.Emit(asm.JEq.Imm(asm.R1, int32(t.DropPort), "ingress.drop"))
	t.SetStandard(t.Std.EgressPort, asm.R1)
	t.SetStandardConstant(t.Std.InstanceType, 0)
	t.Bind(last)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("egress")
	t.Emit(asm.JEq.Imm(asm.R0, emit.VerdictDrop, "ingress.drop"))
	t.delivery.LeaveIfPassed()
	t.delivery.SendFrame(false)
}

// multicast emits code that copies a packet whose multicast group is not 0. The last copy needs no
// clone of the frame. It continues at the label last, as a packet without a group does.
func (t *translator) multicast(last string) {
	unicast, one, grp := t.NewLabel("unicast"), t.NewLabel("one"), t.Layout.Field(t.Std.McastGroup)
	t.Load(asm.R1, code.PHV, grp.Off, grp.Size)
	t.Emit(asm.JEq.Imm(asm.R1, 0, unicast))
	t.Emit(asm.JGE.Imm(asm.R1, memory.MaxGroups, "ingress.drop"), asm.LSh.Imm(asm.R1, 3))
	t.StateAddress(asm.R2, t.Groups)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 8)
	t.Store(code.PHV, memory.PHVGroup, asm.R3, 8)
	t.Load(asm.R3, code.PHV, memory.PHVGroup, 4)
	t.Emit(asm.JEq.Imm(asm.R3, 0, "ingress.drop"), asm.JEq.Imm(asm.R3, 1, one))
	// In tests, captured frames are not sent, so XDP need not clone them.
	if t.Hook == emit.XDP && !t.Captured {
		t.delivery.PassToTC(delivery.ResumeCopies, emit.XDPDrop)
	} else {
		t.SetStandardConstant(t.Std.InstanceType, instanceReplication)
		if t.Requests.Any() {
			t.StoreConstant(code.PHV, t.Requests.CopyCut, memory.NoCut, 4)
		}
		t.replicate(1)
		t.restoreSnapshot()
	}
	t.Bind(one)
	t.SetStandardConstant(t.Std.InstanceType, instanceReplication)
	if t.Requests.Any() {
		t.delivery.ClearRequests()
	}
	t.Load(asm.R1, code.PHV, memory.PHVGroup+4, 4)
	t.Load(asm.R2, code.PHV, memory.PHVGroup, 4)
	t.Emit(asm.Add.Reg(asm.R1, asm.R2), asm.Sub.Imm(asm.R1, 1))
	t.toReplica("ingress.drop")
	t.Jump(last)
	t.Bind(unicast)
}

// replicate emits code that makes the copies of a multicast group except for the last `last`
// copies. The word in PHVGroup contains the number of replicas and where they start.
func (t *translator) replicate(last int32) {
	t.headers.SettleAll()
	at := t.Snapshot
	for _, s := range t.Saved {
		t.CopyWords(code.PHV, at, code.PHV, s.Off, s.Size)
		at += s.Size
	}
	t.Store(asm.R10, -16, code.Ctx, 8)
	t.Store(asm.R10, -8, code.PHV, 8)
	t.Load(asm.R1, code.PHV, memory.PHVGroup, 4)
	t.Emit(asm.Sub.Imm(asm.R1, last))
	t.LoadFunction(asm.R2, "replica")
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	t.FunctionOnce("replica", t.replica)
}

const instanceReplication = 5

// replica emits the function that makes one copy. bpf_loop calls it with the copy's number and a
// pointer to the two words that replicate left on the stack.
func (t *translator) replica() {
	next := "replica.next"
	t.Emit(asm.Mov.Reg(code.Entry, asm.R1))
	t.Load(code.Ctx, asm.R2, 0, 8)
	t.Load(code.PHV, asm.R2, 8, 8)
	t.restoreSnapshot()
	if t.Requests.Any() {
		t.delivery.ClearRequests()
		t.Load(asm.R1, code.PHV, t.Requests.CopyCut, 4)
		t.Store(code.PHV, t.Requests.Cut, asm.R1, 4)
	}
	t.Load(asm.R1, code.PHV, memory.PHVGroup+4, 4)
	t.Emit(asm.Add.Reg(asm.R1, code.Entry))
	t.toReplica(next)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("egress")
	t.Emit(asm.JEq.Imm(asm.R0, emit.VerdictDrop, next))
	t.delivery.SendFrame(true)
	t.Bind(next)
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// queueDepths emits code that sets the queue depths that the program reads. It uses the last count
// for the packet's port.
func (t *translator) queueDepths() {
	if !t.ReadsQueueDepth() {
		return
	}
	known, done := t.NewLabel("depth"), t.NewLabel("depths")
	port := t.Layout.Field(t.Std.EgressPort)
	t.Load(asm.R1, code.PHV, port.Off, port.Size)
	t.Emit(asm.JLT.Imm(asm.R1, memory.MaxPorts, known), asm.Mov.Imm(asm.R1, 0))
	t.Jump(done)
	t.Bind(known)
	t.Emit(asm.LSh.Imm(asm.R1, 2), asm.LoadMapValue(asm.R2, t.Maps.Ports, memory.PortsDepth),
		asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R1, asm.R2, 0, 4)
	t.Bind(done)
	for _, r := range t.QueueDepths() {
		if t.Reads(r) {
			t.SetStandard(r, asm.R1)
		}
	}
}

// restoreSnapshot emits code that restores the fields that the egress of the previous copy changed.
func (t *translator) restoreSnapshot() {
	at := t.Snapshot
	for _, s := range t.Saved {
		t.CopyWords(code.PHV, s.Off, code.PHV, at, s.Size)
		at += s.Size
	}
}

// toReplica emits code that turns the packet into the copy of the replica whose number is in R1. It
// sets the egress port and the instance.
func (t *translator) toReplica(none string) {
	t.Emit(asm.JGE.Imm(asm.R1, memory.MaxReplicas, none), asm.LSh.Imm(asm.R1, 3))
	t.StateAddress(asm.R2, t.Replicas)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R1, asm.R2, 0, 4)
	t.SetStandard(t.Std.EgressPort, asm.R1)
	t.Load(asm.R1, asm.R2, 4, 2)
	t.SetStandard(t.Std.EgressRid, asm.R1)
}

// egress emits the function that passes one copy through the egress pipeline and writes the copy's
// headers into the frame.
func (t *translator) egress() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	// Packets wait only after the program, in the queue of the port's interface. So the queueing
	// time is 0 here.
	t.StoreTimestamp(t.Std.EnqTimestamp)
	for _, r := range []bmv2json.FieldRef{t.Std.DeqTimedelta, t.Std.Queue} {
		if !r.IsZero() && t.Reads(r) {
			t.SetStandardConstant(r, 0)
		}
	}
	t.queueDepths()
	t.StoreTimestamp(t.Std.EgressTime)
	// The initial port differs from the drop port, so the packet is dropped only if egress says so.
	t.SetStandardConstant(t.Std.EgressSpec, t.DropPort+1)
	t.Load(asm.R1, code.PHV, memory.PHVLength, 4)
	t.SetStandard(t.Std.PacketLength, asm.R1)
	t.control.PutMark("(egress begins)")
	t.control.RunPipeline("egress")
	t.control.PutMark("(egress is over)")
	t.finishEgress("egress.drop")
}

// finishEgress emits the end of a function that has run the egress pipeline. It handles the
// requested clone, the drop verdict, checksums and headers.
func (t *translator) finishEgress(drop string) {
	t.delivery.AfterEgressPipeline()
	spec := t.Layout.Field(t.Std.EgressSpec)
	t.Load(asm.R1, code.PHV, spec.Off, spec.Size)
	t.Emit(asm.JEq.Imm(asm.R1, int32(t.DropPort), drop))
	t.hashes.UpdateChecksums()
	if t.Name == "egress" {
		t.control.PutMark("(checksums are updated)")
	}
	t.headers.Deparse(drop)
	if t.Name == "egress" {
		t.control.PutMark("(headers are written)")
	}
	t.delivery.AfterDeparsing(drop)
	t.Emit(asm.Mov.Imm(asm.R0, emit.VerdictSend), asm.Return())
	t.Bind(drop)
	t.Emit(asm.Mov.Imm(asm.R0, emit.VerdictDrop), asm.Return())
}

// afterEgress emits the function at tc that continues a packet that XDP passed on after the egress
// pipeline.
func (t *translator) afterEgress() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	t.finishEgress("leave.drop")
}

// writeHeaders emits the function at tc that writes the headers of a frame that passed egress at
// XDP.
func (t *translator) writeHeaders() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	t.headers.Deparse("headers.drop")
	t.Emit(asm.Mov.Imm(asm.R0, emit.VerdictSend), asm.Return())
	t.Bind("headers.drop")
	t.Emit(asm.Mov.Imm(asm.R0, emit.VerdictDrop), asm.Return())
}
