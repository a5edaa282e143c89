package compile

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/internal/boottime"
	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Hook is where in the kernel a program runs.
type Hook int

const (
	TC Hook = iota
	XDP
)

func (h Hook) String() string { return [...]string{"tc", "xdp"}[h] }

// Maps are the maps that a program uses.
type Maps struct {
	PHV, State, Ports, PacketIn, PacketOut, Buffer int
	Lookups                                        map[int]int // by Table.Index: hash tables and tries

	// resume, where it is not 0, is the map of slots between XDP and tc. magic is the switch's, number the pipeline's: see xdp_to_tc.go.
	// tap, where it is not 0, is the ring to which each frame is copied as it comes and as it goes.
	Tap int
	// Digests is the ring for digests, where the program sends any.
	Digests int

	Resume        int
	Magic, Number uint64

	// Replay, where it is not 0, is a map with ReplayBytes bytes that the frame is set to first: for a program that is run again and again on one frame.
	Replay, ReplayBytes int
}

// Settings are what a program is compiled for, besides its hook.
type Settings struct {
	CPUPort  uint32        // the port whose frames go to and come from the controller; 0 for none
	DropPort uint32        // what a program writes to egress_spec to drop a packet
	OnlyUDP  uint16        // the one UDP port whose packets the program gets; 0: it gets all frames
	Started  boottime.Time // when the switch's clock was 0
	Captured bool          // frames go into the ring behind their port's number (4 bytes), not out
	Unlocked bool          // packets take no lock
}

// translator turns a planned program into instructions for one hook.
type translator struct {
	*Plan
	ir.Writer
	Settings
	hook      Hook
	fds       Maps
	functions []*code.Function
	pipeline  *pipelineState
}

func newTranslator(p *Plan, h Hook, f Maps, s Settings) *translator {
	return &translator{Plan: p, Writer: ir.NewWriter(p.Layout, p.scratch, p.scratchEnd), Settings: s, hook: h, fds: f}
}

// Translate writes the whole program.
func Translate(p *Plan, h Hook, f Maps, s Settings) (insns asm.Instructions, err error) {
	defer ir.Catch(&err)
	t := newTranslator(p, h, f, s)
	main := t.function("ingress", t.entry)
	egress := t.function("egress", t.egress)
	all := []*code.Function{main, egress}
	if h == TC && f.Resume != 0 {
		all = append(all, t.function("headers", t.headers))
		if t.Requests.Reinjects() {
			all = append(all, t.function("leave", t.leaving))
		}
	}
	return code.Link(append(all, t.functions...))
}

// function writes a function, leaving the one that is being written alone.
func (t *translator) function(name string, write func()) *code.Function {
	outer, state := t.Function, t.pipeline
	t.Function = code.New(name)
	write()
	done := t.Function
	t.Function, t.pipeline = outer, state
	return done
}

// Return values of the functions, and of the program at tc (linux/pkt_cls.h) and XDP (linux/bpf.h).
const (
	verdictDrop   = 0
	verdictSend   = 1
	verdictPassed = xdpPass // the frame goes on at tc

	tcShot  = 2
	tcxNext = -1
	xdpDrop = 1
	xdpPass = 2
	xdpTx   = 3
)

// Loopback is the index of the loopback interface, in every network namespace: no port, and where packet-outs are run.
const Loopback = 1

// Offsets in struct __sk_buff and struct xdp_md (linux/bpf.h).
const (
	skbLen         = 0
	skbIfindex     = 40
	skbMark        = 8
	skbVLANPresent = 20
	skbVLANTCI     = 24
	skbVLANProto   = 28
	skbData        = 76
	skbDataMeta    = 140
	xdpData        = 0
	xdpDataMeta    = 8
	xdpIfindex     = 12
)

// Offsets in the value of the map "ports", which outlives pipelines.
const (
	MaxIfindex     = 1 << 18
	PortsByIfindex = 0                         // 4 bytes each: 1 + port number; 0: not a port
	MaxPorts       = 1 << 16                   //
	PortsIfindex   = 4 * MaxIfindex            // 4 bytes each: the interface of a port; 0: no such port
	PortsXDP       = PortsIfindex + 4*MaxPorts // 4 bytes each: the same where the interface takes frames from XDP, else 0
	PortsPassed    = PortsXDP + 4*MaxPorts     // 8 bytes: frames that XDP has handed over to tc
	PortsLost      = PortsPassed + 8           // 8 bytes: those of them that tc could not take
	PortsPrevious  = PortsLost + 8             // 8 bytes: the number of the pipeline whose programs are being replaced, 0 if none is
	PortsAny       = PortsPrevious + 8         // 4 bytes: the interface of some port, 0 if there is none
	PortsSize      = PortsAny + 8
)

// fieldIf calls use with the field's place if the program has it.
func (t *translator) fieldIf(r bmv2json.FieldRef, use func(ir.Place)) {
	if !r.IsZero() {
		use(t.Layout.Field(r))
	}
}

// setStandard stores the register into a standard field, cut to its width, if the program has it. It uses R5.
func (t *translator) setStandard(r bmv2json.FieldRef, from asm.Register) {
	t.fieldIf(r, func(p ir.Place) {
		if p.Width == p.Size*8 {
			t.Store(code.PHV, p.Off, from, p.Size)
			return
		}
		t.Emit(asm.Mov.Reg(asm.R5, from))
		t.Mask(asm.R5, ir.Ones(p.Width), len(ir.Registers)-2)
		t.Store(code.PHV, p.Off, asm.R5, p.Size)
	})
}

func (t *translator) setStandardConstant(r bmv2json.FieldRef, v uint32) {
	t.fieldIf(r, func(p ir.Place) { t.StoreConstant(code.PHV, p.Off, int32(uint64(v)&ir.Ones(p.Width)), p.Size) })
}

// stateAddress loads the address of a place in the state.
func (t *translator) stateAddress(dst asm.Register, off int) {
	t.Emit(asm.LoadMapValue(dst, t.fds.State, uint32(off)))
}

// entry is the program: a frame has come in by an interface.
func (t *translator) entry() {
	drop := "ingress.drop"
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1))
	t.restoreFrame()
	if t.hook == TC && t.fds.Resume != 0 {
		t.resumeFromXDP("ingress.done", "ingress.deparse", "ingress.leave", "ingress.send")
	}
	reinjects := t.Requests.Reinjects() && t.hook == TC && !t.Captured
	if reinjects {
		t.resumeReinjected("clone.copies", "ingress.parse", "ingress.done")
		t.StoreConstant(asm.R10, slotOnStack, 0, 8)
	}
	t.hostFilter()
	t.lookupPHV(drop)

	// The port and the length.
	ifindex := skbIfindex
	if t.hook == XDP {
		ifindex = xdpIfindex
	}
	t.Load(asm.R1, code.Ctx, ifindex, 4)
	t.Emit(asm.JGE.Imm(asm.R1, MaxIfindex, drop), asm.LSh.Imm(asm.R1, 2), asm.LoadMapValue(asm.R2, t.fds.Ports, PortsByIfindex), asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R3, asm.R2, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R3, 0, drop), asm.Sub.Imm(asm.R3, 1))
	t.Store(code.PHV, phvPort, asm.R3, 4)
	t.startRequests()
	t.startDigest()
	if t.hook == TC {
		t.takePacketOut(drop)
		if reinjects { // behind what takes a packet-out in: one that comes back is the frame that it is
			t.Bind("ingress.parse")
		}
	}
	t.recordEpoch()
	if t.hook == TC {
		t.restoreTags(drop)
	}
	t.frameLength(asm.R4)
	t.Store(code.PHV, phvLen, asm.R4, 4)
	t.Store(code.PHV, phvInLen, asm.R4, 4)

	if t.fds.Tap != 0 { // (a packet that comes back is seen again)
		t.tapFrame(tapIn, func(dst asm.Register) { t.Load(dst, code.PHV, phvPort, 4) })
		t.Load(asm.R4, code.PHV, phvLen, 4)
	}

	// A packet starts with no header valid and all metadata 0.
	t.Zero(code.PHV, t.Layout.Next&^7, t.Layout.Headers-t.Layout.Next&^7)
	t.Zero(code.PHV, phvHit, 8)
	t.Store(code.PHV, phvLength, asm.R4, 4)
	t.setStandard(t.std.packetLength, asm.R4)
	t.Load(asm.R3, code.PHV, phvPort, 4)
	t.setStandard(t.std.ingressPort, asm.R3)
	t.timestamp(t.std.ingressTime)
	if reinjects {
		t.beforeParsing()
	}

	// The bytes that the parser may look at.
	whole := t.NewLabel("whole")
	t.Load(asm.R4, code.PHV, phvLen, 4)
	t.Emit(asm.JLE.Imm(asm.R4, int32(t.frameMax), whole), asm.Mov.Imm(asm.R4, int32(t.frameMax)))
	t.Bind(whole)
	t.Emit(asm.JEq.Imm(asm.R4, 0, drop), asm.Mov.Reg(code.Temp, asm.R4))
	loaded := t.NewLabel("loaded")
	t.loadDirectly(loaded)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.frame)), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(loaded)
	t.Emit(asm.Mov.Imm(code.Entry, 0))
	t.parse()
	if reinjects {
		t.afterParsing("clone.copies")
	}
	t.verifyChecksums()

	t.runPipeline("ingress")
	t.Bind("ingress.done")
	t.afterIngress()
	if t.hook == TC && t.fds.Resume != 0 {
		t.Bind("ingress.deparse")
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
		t.CallFunction("headers")
		t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, drop))
		t.Bind("ingress.send")
		t.send(false)
		if t.Requests.Reinjects() {
			t.Bind("ingress.leave")
			t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.PHV))
			t.CallFunction("leave")
			t.Emit(asm.JEq.Imm(asm.R0, verdictDrop, drop))
			t.Jump("ingress.send")
		}
	}
	if reinjects && t.Requests.Clones {
		t.Bind("clone.copies")
		t.replicateClone()
	}

	t.Bind(drop)
	t.verdict(verdictDrop)
}

// lookupPHV makes PHV this CPU's PHV.
func (t *translator) lookupPHV(drop string) {
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.fds.PHV), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, drop), asm.Mov.Reg(code.PHV, asm.R0))
}

// verdict ends the program.
func (t *translator) verdict(v int) {
	ret := tcShot
	if t.hook == XDP {
		ret = xdpDrop
	}
	if v != verdictDrop {
		panic("a program that sends says how")
	}
	t.Emit(asm.Mov.Imm(asm.R0, int32(ret)), asm.Return())
}

// frameLength puts the frame's length into dst.
func (t *translator) frameLength(dst asm.Register) {
	if t.hook == TC {
		t.Load(dst, code.Ctx, skbLen, 4)
		return
	}
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	t.Call(fnXDPGetBuffLen)
	t.Emit(asm.Mov.Reg(dst, asm.R0))
}

// restoreTags puts the 802.1Q tags back into the frame that the kernel has taken out on its way to tc: the program sees the frame as it was on the wire.
func (t *translator) restoreTags(drop string) {
	none, done := t.NewLabel("untagged"), t.NewLabel("tagged")
	const tags, addresses = -24, -40 // on the stack
	t.Emit(asm.Mov.Imm(code.Temp, 0))
	for i := range 2 { // popping a tag takes the next one out of the frame
		t.Load(asm.R1, code.Ctx, skbVLANPresent, 4)
		if i == 0 {
			t.Emit(asm.JEq.Imm(asm.R1, 0, none))
		} else {
			t.Emit(asm.JEq.Imm(asm.R1, 0, done))
		}
		t.Load(asm.R1, code.Ctx, skbVLANProto, 4)
		t.Store(asm.R10, tags+4*i, asm.R1, 2)
		t.Load(asm.R1, code.Ctx, skbVLANTCI, 4)
		t.Emit(asm.HostTo(asm.BE, asm.R1, asm.Half))
		t.Store(asm.R10, tags+4*i+2, asm.R1, 2)
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
		t.Call(asm.FnSkbVlanPop)
		t.Emit(asm.JNE.Imm(asm.R0, 0, drop), asm.Add.Imm(code.Temp, 4))
	}
	t.Load(asm.R1, code.Ctx, skbVLANPresent, 4)
	t.Emit(asm.JNE.Imm(asm.R1, 0, drop)) // a third tag
	t.Bind(done)
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Imm(asm.R3, 0))
	t.Call(asm.FnSkbChangeHead)
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Reg(asm.R2, code.Temp), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, addresses), asm.Mov.Imm(asm.R4, 12))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Emit(asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, addresses), asm.Mov.Imm(asm.R4, 12))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	one := t.NewLabel("one")
	t.Emit(asm.Mov.Imm(asm.R4, 4), asm.JEq.Imm(code.Temp, 4, one), asm.Mov.Imm(asm.R4, 8))
	t.Bind(one)
	t.Emit(asm.Mov.Imm(asm.R2, 12), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, tags))
	t.storeBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(none)
}

// Helpers that work on the packet's bytes differ in name only.
const fnXDPGetBuffLen = asm.FnXdpGetBuffLen

// loadBytes reads R4 bytes at R2 of the frame to R3; storeBytes writes them.
func (t *translator) loadBytes() {
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	if t.hook == TC {
		t.Call(asm.FnSkbLoadBytes)
	} else {
		t.Call(asm.FnXdpLoadBytes)
	}
}

func (t *translator) storeBytes() {
	t.Emit(asm.Mov.Reg(asm.R1, code.Ctx))
	if t.hook == TC {
		t.Emit(asm.Mov.Imm(asm.R5, 0))
		t.Call(asm.FnSkbStoreBytes)
	} else {
		t.Call(asm.FnXdpStoreBytes)
	}
}

// timestamp stores the switch's clock, in microseconds, into a field if the program reads it.
func (t *translator) timestamp(r bmv2json.FieldRef) {
	if r.IsZero() || !t.Reads(r) {
		return
	}
	t.Call(asm.FnKtimeGetBootNs)
	t.LoadConstant(asm.R1, uint64(t.Started))
	t.Emit(asm.Sub.Reg(asm.R0, asm.R1), asm.Div.Imm(asm.R0, 1000))
	t.setStandard(r, asm.R0)
}

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

// multicast makes the copies of a packet whose group is not 0. The last of them needs no clone of the frame: it goes on at the label last, as the one copy of a packet without a group does.
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

// replicate makes the copies that the word in phvGroup says, but for the last ones: how many replicas there are, and where they start.
func (t *translator) replicate(last int32) {
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
	t.functions = append(t.functions, t.function("replica", t.replica))
}

const instanceReplication = 5

// replica makes one copy: the function that bpf_loop calls with the copy's number and the two words that multicast left on the stack.
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

// restoreSnapshot puts back what the egress of a copy before has changed.
func (t *translator) restoreSnapshot() {
	at := t.snapshot
	for _, s := range t.saved {
		t.CopyWords(code.PHV, s.off, code.PHV, at, s.size)
		at += s.size
	}
}

// toReplica makes the packet the copy of the replica whose number is in R1: its port and its instance.
func (t *translator) toReplica(none string) {
	t.Emit(asm.JGE.Imm(asm.R1, MaxReplicas, none), asm.LSh.Imm(asm.R1, 3))
	t.stateAddress(asm.R2, t.Replicas)
	t.Emit(asm.Add.Reg(asm.R2, asm.R1))
	t.Load(asm.R1, asm.R2, 0, 4)
	t.setStandard(t.std.egressPort, asm.R1)
	t.Load(asm.R1, asm.R2, 4, 2)
	t.setStandard(t.std.egressRid, asm.R1)
}

// egress is the function that takes one copy through the egress pipeline and writes its headers into the frame.
func (t *translator) egress() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	// There are no queues: a packet that enters one has left it.
	t.timestamp(t.std.enqTimestamp)
	for _, r := range []bmv2json.FieldRef{t.std.enqDepth, t.std.deqTimedelta, t.std.deqDepth, t.std.queue} {
		if !r.IsZero() && t.Reads(r) {
			t.setStandardConstant(r, 0)
		}
	}
	t.timestamp(t.std.egressTime)
	// Not the port that drops, so that it drops only if egress says so.
	t.setStandardConstant(t.std.egressSpec, t.DropPort+1)
	t.Load(asm.R1, code.PHV, phvLength, 4)
	t.setStandard(t.std.packetLength, asm.R1)
	t.runPipeline("egress")
	t.leave("egress.drop")
}

// leave ends a function that the egress pipeline has been run for: the clone that it asked for, its verdict, checksums and headers.
func (t *translator) leave(drop string) {
	t.afterEgressPipeline()
	spec := t.Layout.Field(t.std.egressSpec)
	t.Load(asm.R1, code.PHV, spec.Off, spec.Size)
	t.Emit(asm.JEq.Imm(asm.R1, int32(t.DropPort), drop))
	t.updateChecksums()
	t.deparse(drop)
	t.afterDeparsing(drop)
	t.Emit(asm.Mov.Imm(asm.R0, verdictSend), asm.Return())
	t.Bind(drop)
	t.Emit(asm.Mov.Imm(asm.R0, verdictDrop), asm.Return())
}

// leaving is the function at tc that goes on where XDP left a packet after the egress pipeline.
func (t *translator) leaving() {
	t.Emit(asm.Mov.Reg(code.Ctx, asm.R1), asm.Mov.Reg(code.PHV, asm.R2))
	t.leave("leave.drop")
}

// send gives the frame to the port in egress_port: the controller, or an interface. A copy is sent at once and the frame stays; the last is handed over.
func (t *translator) send(copied bool) {
	done, toPort, uncut := t.NewLabel("sent"), t.NewLabel("port"), t.NewLabel("uncut")
	end := func() {
		t.Bind(uncut)
		if !copied {
			t.verdict(verdictDrop)
		}
	}
	t.loadEgressPort(asm.R8)
	restore := t.truncateFrame(copied, uncut)
	if t.Captured {
		t.sendToRing(t.fds.PacketIn, func() { t.Store(asm.R0, 0, asm.R8, 4) }, 4)
		restore()
		end()
		return
	}
	if t.CPUPort != 0 {
		t.Emit(asm.JNE.Imm(asm.R8, int32(t.CPUPort), toPort))
		t.sendToRing(t.fds.PacketIn, func() {}, 0)
		t.Jump(done)
	}
	t.Bind(toPort)
	if t.hook == XDP {
		t.sendFromXDP(done)
		t.Bind(done)
		end()
		return
	}
	t.tapFrame(TapOut, t.loadEgressPort)
	if t.fds.Tap != 0 {
		t.loadEgressPort(asm.R8)
	}
	t.Emit(asm.JGE.Imm(asm.R8, MaxPorts, done), asm.LSh.Imm(asm.R8, 2), asm.LoadMapValue(asm.R1, t.fds.Ports, PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R8, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R8, 0, done))
	clone := func() {
		t.Emit(asm.Mov.Reg(asm.R1, code.Ctx), asm.Mov.Reg(asm.R2, asm.R8), asm.Mov.Imm(asm.R3, 0))
		t.Call(asm.FnCloneRedirect)
		t.Jump(done)
	}
	if copied {
		clone()
		t.Bind(done)
		restore()
		end()
		return
	}
	// A packet-out is run without a device under it that could carry a redirect out.
	received := t.NewLabel("received")
	t.Load(asm.R1, code.PHV, phvPort, 4)
	t.Emit(asm.JNE.Imm(asm.R1, int32(t.CPUPort), received))
	clone()
	t.Bind(received)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(done)
	end()
}

// sendFromXDP sends the frame by the port in R8: back by its own interface, by another one that takes frames from XDP, or through tc.
func (t *translator) sendFromXDP(nowhere string) {
	other, up := t.NewLabel("other"), t.NewLabel("up")
	t.Emit(asm.JGE.Imm(asm.R8, MaxPorts, nowhere), asm.LSh.Imm(asm.R8, 2), asm.LoadMapValue(asm.R1, t.fds.Ports, PortsXDP), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, up))
	if t.fds.Tap != 0 {
		t.tapFrame(TapOut, t.loadEgressPort)
		t.loadEgressPort(asm.R8)
		t.Emit(asm.LSh.Imm(asm.R8, 2), asm.LoadMapValue(asm.R1, t.fds.Ports, PortsXDP), asm.JGE.Imm(asm.R8, 4*MaxPorts, nowhere), asm.Add.Reg(asm.R1, asm.R8))
		t.Load(asm.R2, asm.R1, 0, 4)
	}
	t.Load(asm.R1, code.Ctx, xdpIfindex, 4)
	t.Emit(asm.JNE.Reg(asm.R1, asm.R2, other), asm.Mov.Imm(asm.R0, xdpTx), asm.Return())
	t.Bind(other)
	t.Emit(asm.Mov.Reg(asm.R1, asm.R2), asm.Mov.Imm(asm.R2, 0))
	t.Call(asm.FnRedirect)
	t.Emit(asm.Return())
	t.Bind(up)
	t.Emit(asm.LoadMapValue(asm.R1, t.fds.Ports, PortsIfindex), asm.Add.Reg(asm.R1, asm.R8))
	t.Load(asm.R2, asm.R1, 0, 4)
	t.Emit(asm.JEq.Imm(asm.R2, 0, nowhere))
	t.passToTC(resumeSend, xdpDrop)
}

func (t *translator) loadEgressPort(dst asm.Register) {
	egress := t.Layout.Field(t.std.egressPort)
	t.Load(dst, code.PHV, egress.Off, egress.Size)
}

// What precedes a frame in the tap's ring: the port and the direction, 4 bytes each, and the clock (boottime), 8 bytes.
const (
	TapHeader = 16
	tapIn     = 0
	TapOut    = 1
)

// tapFrame copies the frame to the tap, if there is one. It uses all registers but PHV and Ctx.
func (t *translator) tapFrame(direction int32, port func(dst asm.Register)) {
	if t.fds.Tap == 0 {
		return
	}
	t.sendToRing(t.fds.Tap, func() {
		port(asm.R1)
		t.Store(asm.R0, 0, asm.R1, 4)
		t.StoreConstant(asm.R0, 4, direction, 4)
		t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
		t.Call(asm.FnKtimeGetBootNs)
		t.Store(code.Entry, 8, asm.R0, 8)
		t.Emit(asm.Mov.Reg(asm.R0, code.Entry))
	}, TapHeader)
}

// sendToRing puts the frame into a ring, from which the process takes packet-ins or the tap's frames, after before bytes that first writes at R0. It is lost if the
// ring is full.
func (t *translator) sendToRing(ring int, first func(), before int) {
	no := t.NewLabel("lost")
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.fds.Buffer), asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, no))
	first()
	t.Emit(asm.Mov.Reg(code.Entry, asm.R0))
	t.Load(code.Temp, code.PHV, phvLen, 4)
	t.Emit(asm.JEq.Imm(code.Temp, 0, no), asm.JGT.Imm(code.Temp, int32(BufferSize-before), no))
	t.Emit(asm.Mov.Reg(asm.R3, code.Entry), asm.Add.Imm(asm.R3, int32(before)), asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R4, code.Temp))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, no), asm.Add.Imm(code.Temp, int32(before)))
	t.Emit(asm.LoadMapPtr(asm.R1, ring), asm.Mov.Reg(asm.R2, code.Entry), asm.Mov.Reg(asm.R3, code.Temp), asm.Mov.Imm(asm.R4, 0))
	t.Call(asm.FnRingbufOutput)
	t.Bind(no)
}

// BufferSize is the longest frame that can go to the controller, or whose headers can change in size at tc.
const BufferSize = 16 << 10

func (t *translator) errorValue(name string) int32 {
	for _, e := range t.Prog.Errors {
		if e.Name == name {
			return int32(e.Value)
		}
	}
	return 0
}

func (t *translator) String() string { return fmt.Sprintf("%s for %s", t.Prog.Name, t.hook) }

// widenBounds makes the verifier forget what it knows of a register, by way of memory, and says that it is no more than most (it goes to never if it is). Where many paths meet that differ
// in a number only, it would follow all of them to the end.
func (t *translator) widenBounds(r asm.Register, most int, never string) {
	t.Store(code.PHV, phvForget, r, 8)
	t.Load(r, code.PHV, phvForget, 8)
	t.Emit(asm.JGT.Imm(r, int32(most), never))
}
