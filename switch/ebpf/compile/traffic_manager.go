package compile

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
)

// afterIngress is BMv2's traffic manager: copies, one copy or none, each through egress.
func (t *translator) afterIngress() {
	t.afterRequests()
	last := t.NewLabel("last")
	if !t.std.mcastGroup.IsZero() {
		t.multicast(last)
	}
	spec := t.Layout.Field(t.std.egressSpec)
	t.Load(asm.R1, code.PHV, spec.Off, spec.Size)
	t.Emit(asm.JEq.Imm(asm.R1, int32(t.DropPort), "ingress.drop"))
	t.setStandard(t.std.egressPort, asm.R1)
	t.setStandardConstant(t.std.instanceType, 0)
	t.Bind(last)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("egress")
	t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, "ingress.drop"))
	t.leaveIfPassed()
	t.send(false)
}

// multicast makes the copies of a packet whose group is not 0. The last of them needs no clone of
// the frame: it goes on at the label last, as the one copy of a packet without a group does.
func (t *translator) multicast(last string) {
	unicast, one, grp := t.NewLabel("unicast"), t.NewLabel("one"), t.Layout.Field(t.std.mcastGroup)
	t.Load(asm.R1, code.PHV, grp.Off, grp.Size)
	t.Emit(asm.JEq.Imm(asm.R1, 0, unicast))
	t.Emit(asm.JGE.Imm(asm.R1, MaxGroups, "ingress.drop"), asm.LSh.Imm(asm.R1, 3))
	t.stateAddress(asm.R2, t.Groups)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 8)
	t.Store(code.PHV, phvGroup, asm.R3, 8)
	t.Load(asm.R3, code.PHV, phvGroup, 4)
	t.Emit(asm.JEq.Imm(asm.R3, 0, "ingress.drop"), asm.JEq.Imm(asm.R3, 1, one))
	if t.hook == XDP && !t.Captured { // captured frames are not sent, so XDP need not clone any
		t.passToTC(resumeCopies, xdpDrop)
	} else {
		t.setStandardConstant(t.std.instanceType, instanceReplication)
		if t.Requests.any() {
			t.StoreConstant(code.PHV, t.Requests.copyCut, noCut, 4)
		}
		t.replicate(1)
		t.restoreSnapshot()
	}
	t.Bind(one)
	t.setStandardConstant(t.std.instanceType, instanceReplication)
	if t.Requests.any() {
		t.clearRequests()
	}
	t.Load(asm.R1, code.PHV, phvGroup+4, 4)
	t.Load(asm.R2, code.PHV, phvGroup, 4)
	t.Emit(asm.Add.Reg(asm.R1, asm.R2), asm.Sub.Imm(asm.R1, 1))
	t.toReplica("ingress.drop")
	t.Jump(last)
	t.Bind(unicast)
}

// replicate makes the copies that the word in phvGroup says, but for the last ones: how many
// replicas there are, and where they start.
func (t *translator) replicate(last int32) {
	t.settleAll()
	at := t.snapshot
	for _, s := range t.saved {
		t.CopyWords(code.PHV, at, code.PHV, s.off, s.size)
		at += s.size
	}
	t.Store(asm.R10, -16, code.Ctx, 8)
	t.Store(asm.R10, -8, code.PHV, 8)
	t.Load(asm.R1, code.PHV, phvGroup, 4)
	t.Emit(asm.Sub.Imm(asm.R1, last))
	t.LoadFunction(asm.R2, "replica")
	t.Emit(asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnLoop)
	for _, f := range t.functions {
		if f.Name == "replica" {
			return
		}
	}
	t.once("replica", t.replica)
}

const instanceReplication = 5

// replica makes one copy: the function that bpf_loop calls with the copy's number and the two words
// that multicast left on the stack.
func (t *translator) replica() {
	next := "replica.next"
	t.Emit(asm.Mov.Reg(code.Entry, asm.R1))
	t.Load(code.Ctx, asm.R2, 0, 8)
	t.Load(code.PHV, asm.R2, 8, 8)
	t.restoreSnapshot()
	if t.Requests.any() {
		t.clearRequests()
		t.Load(asm.R1, code.PHV, t.Requests.copyCut, 4)
		t.Store(code.PHV, t.Requests.cut, asm.R1, 4)
	}
	t.Load(asm.R1, code.PHV, phvGroup+4, 4)
	t.Emit(asm.Add.Reg(asm.R1, code.Entry))
	t.toReplica(next)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
	t.CallFunction("egress")
	t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, next))
	t.send(true)
	t.Bind(next)
	t.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

// ReadsQueueDepth reports whether the program asks how many packets wait at a port.
func (p *Plan) ReadsQueueDepth() bool {
	return slices.ContainsFunc(p.depths(), p.Reads)
}

// depths are the fields that say so: the queue that a packet joins is as it was when it left it.
func (p *Plan) depths() []bmv2json.FieldRef {
	var out []bmv2json.FieldRef
	for _, r := range []bmv2json.FieldRef{p.std.enqDepth, p.std.deqDepth} {
		if !r.IsZero() {
			out = append(out, r)
		}
	}
	return out
}

// queueDepths sets those that the program reads, from what was last counted at the packet's port.
func (t *translator) queueDepths() {
	if !t.ReadsQueueDepth() {
		return
	}
	known, done := t.NewLabel("depth"), t.NewLabel("depths")
	port := t.Layout.Field(t.std.egressPort)
	t.Load(asm.R1, code.PHV, port.Off, port.Size)
	t.Emit(asm.JLT.Imm(asm.R1, MaxPorts, known), asm.Mov.Imm(asm.R1, 0))
	t.Jump(done)
	t.Bind(known)
	t.Emit(asm.LSh.Imm(asm.R1, 2), asm.LoadMapValue(asm.R2, t.maps.Ports, PortsDepth),
		asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R1, asm.R2, 0, 4)
	t.Bind(done)
	for _, r := range t.depths() {
		if t.Reads(r) {
			t.setStandard(r, asm.R1)
		}
	}
}

// restoreSnapshot puts back what the egress of a copy before has changed.
func (t *translator) restoreSnapshot() {
	at := t.snapshot
	for _, s := range t.saved {
		t.CopyWords(code.PHV, s.off, code.PHV, at, s.size)
		at += s.size
	}
}

// toReplica makes the packet the copy of the replica whose number is in R1: its port and its
// instance.
func (t *translator) toReplica(none string) {
	t.Emit(asm.JGE.Imm(asm.R1, MaxReplicas, none), asm.LSh.Imm(asm.R1, 3))
	t.stateAddress(asm.R2, t.Replicas)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R1, asm.R2, 0, 4)
	t.setStandard(t.std.egressPort, asm.R1)
	t.Load(asm.R1, asm.R2, 4, 2)
	t.setStandard(t.std.egressRid, asm.R1)
}

// egress is the function that takes one copy through the egress pipeline and writes its headers
// into the frame.
func (t *translator) egress() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	// A packet waits behind the program, where the port's interface has a queue: none has waited.
	t.timestamp(t.std.enqTimestamp)
	for _, r := range []bmv2json.FieldRef{t.std.deqTimedelta, t.std.queue} {
		if !r.IsZero() && t.Reads(r) {
			t.setStandardConstant(r, 0)
		}
	}
	t.queueDepths()
	t.timestamp(t.std.egressTime)
	// Not the port that drops, so that it drops only if egress says so.
	t.setStandardConstant(t.std.egressSpec, t.DropPort+1)
	t.Load(asm.R1, code.PHV, phvLength, 4)
	t.setStandard(t.std.packetLength, asm.R1)
	t.mark("(egress begins)")
	t.runPipeline("egress")
	t.mark("(egress is over)")
	t.finishEgress("egress.drop")
}

// finishEgress ends a function that the egress pipeline has been run for: the clone that it asked
// for, its verdict, checksums and headers.
func (t *translator) finishEgress(drop string) {
	t.afterEgressPipeline()
	spec := t.Layout.Field(t.std.egressSpec)
	t.Load(asm.R1, code.PHV, spec.Off, spec.Size)
	t.Emit(asm.JEq.Imm(asm.R1, int32(t.DropPort), drop))
	t.updateChecksums()
	if t.Name == "egress" {
		t.mark("(checksums are updated)")
	}
	t.deparse(drop)
	if t.Name == "egress" {
		t.mark("(headers are written)")
	}
	t.afterDeparsing(drop)
	t.Emit(asm.Mov.Imm(asm.R0, verdictSend), asm.Return())
	t.Bind(drop)
	t.Emit(asm.Mov.Imm(asm.R0, verdictDrop), asm.Return())
}

// afterEgress is the function at tc that goes on where XDP left a packet after the egress pipeline.
func (t *translator) afterEgress() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	t.finishEgress("leave.drop")
}
