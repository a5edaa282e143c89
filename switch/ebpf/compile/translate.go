package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/api/clock"
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

// Maps are the maps that a program uses, as file descriptors.
type Maps struct {
	PHV, State, Ports, PacketIn, PacketOut, Buffer int

	Lookups map[int]int // by Table.Index: hash tables and tries
	// by Table.Index: what tables hold, where comparisons are to take the place of a map
	Known map[int]Known
	// Paths has ingress written by what is known where packets come along (paths.go).
	Paths   bool
	Digests int // the ring for digests, where the program sends any
	// Messages is the ring for what the program says, where it says anything.
	Messages int
	// Tap, where it is not 0, is the ring to which each frame is copied as it comes and as it goes.
	Tap int

	// Resume, where it is not 0, is the map of slots between XDP and tc. Magic is the switch's,
	// Number the pipeline's: see xdp_to_tc.go.
	Resume        int
	Magic, Number uint64

	// Replay, where it is not 0, is a map with ReplayBytes bytes that the frame is set to first:
	// for a program that is run again and again on one frame. Where ReplayCount is not 0, the
	// number of four bytes there is one more each time.
	Replay, ReplayBytes, ReplayCount int

	// Profile, where it is not nil, makes the program one that is measured in parts.
	Profile *Profile
}

// Settings are what a program is compiled for, besides its hook.
type Settings struct {
	CPUPort  uint32     // the port whose frames go to and come from the controller; 0 for none
	DropPort uint32     // what a program writes to egress_spec to drop a packet
	OnlyUDP  uint16     // the one UDP port whose packets the program gets; 0: it gets all frames
	Mark     uint32     // that frames get which are sent at tc; 0: they keep theirs
	Started  clock.Time // when the switch's clock was 0
	Captured bool       // frames go into the ring behind their port's number (4 bytes), not out
	Unlocked bool       // packets take no lock
	// For tests: who reads registers without the lock is told that they have been written, always,
	// and has read something else than what there is.
	Overtaken bool
	// For tests: programs made by their paths are such as the kernel's verifier refuses.
	Refused bool
}

// translator turns a planned program into instructions for one hook.
type translator struct {
	*Plan
	ir.Writer
	Settings
	hook      Hook
	maps      Maps
	functions []*code.Function
	byPaths   bool // ingress is written by its paths
	// what is called for a primitive in the parser
	parserPrimitive func(*bmv2json.Primitive)
	pipeline        *pipelineState
	steps           []*step   // ingress, where its paths have been found
	live            *fieldSet // what ingress reads before it sets it; nil: all
	later           []func()  // what is emitted at the end of the steps
	branches        bool      // the statement is a branch in front of whose comparisons the clock may be read
}

func newTranslator(p *Plan, h Hook, f Maps, s Settings) *translator {
	t := &translator{Plan: p, Writer: ir.NewWriter(p.Layout, p.scratch, p.scratchEnd),
		Settings: s, hook: h, maps: f}
	t.parserPrimitive = func(q *bmv2json.Primitive) { t.primitive(q, "") }
	if p.lateClock {
		at := p.Layout.Field(p.std.ingressTime).Off
		t.BeforeCompare = func(a, b *ir.Value) {
			if t.branches && (a.Loads(at) || b.Loads(at)) {
				t.readClock()
			}
		}
	}
	return t
}

// Translate writes the whole program. Striped is whether it knows stripes, and seldom takes all of
// them: then it may run in any mode (stripes.go), otherwise in ModeOne.
func Translate(p *Plan, h Hook, f Maps, s Settings) (insns asm.Instructions, striped bool,
	err error) {
	defer ir.Catch(&err)
	for variants := mostVariants; ; variants /= 2 {
		insns, striped, err = translate(p, h, f, s, variants)
		// A program that is made by its paths can become longer than a jump reaches.
		if err != nil || !f.Paths || len(insns) <= farthestJump || variants == 1 {
			return insns, striped, err
		}
	}
}

// translate writes the program, with so many variants of a place at most.
func translate(p *Plan, h Hook, f Maps, s Settings, variants int) (insns asm.Instructions, striped bool,
	err error) {
	t := newTranslator(p, h, f, s)
	if f.Paths {
		t.steps, t.live = findPaths(p, "ingress", PathOptions{Variants: variants, Known: f.Known,
			Unlocked: s.Unlocked, Overtaken: s.Overtaken})
		t.byPaths = t.steps != nil
		striped = t.striped() && stripesFit(t.steps)
	}
	main := t.function("ingress", t.entry)
	egress := t.function("egress", t.egress)
	all := []*code.Function{main, egress}
	if h == TC && f.Resume != 0 {
		all = append(all, t.function("headers", t.headers))
		if t.Requests.Reinjects() {
			all = append(all, t.function("leave", t.afterEgress))
		}
	}
	insns, err = code.Link(append(all, t.functions...))
	return insns, striped, err
}

// function writes a function, leaving the one that is being written alone.
func (t *translator) function(name string, write func()) *code.Function {
	outer := t.Function
	t.Function = code.New(name)
	write()
	done := t.Function
	t.Function = outer
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

// fieldIf calls use with the field's place if the program has it.
func (p *Plan) fieldIf(r bmv2json.FieldRef, use func(ir.Place)) {
	if !r.IsZero() {
		use(p.Layout.Field(r))
	}
}

// setStandard stores the register into a standard field, cut to its width, if the program has it.
// It uses R5.
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
	t.fieldIf(r, func(p ir.Place) {
		t.StoreConstant(code.PHV, p.Off,
			int32(uint64(v)&ir.Ones(p.Width)), p.Size)
	})
}

// stateAddress loads the address of a place in the state.
func (t *translator) stateAddress(dst asm.Register, off int) {
	t.Emit(asm.LoadMapValue(dst, t.maps.State, uint32(off)))
}

// lookupPHV makes PHV this CPU's PHV.
func (t *translator) lookupPHV(drop string) {
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.maps.PHV), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
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

func (t *translator) errorValue(name string) int32 {
	for _, e := range t.Prog.Errors {
		if e.Name == name {
			return int32(e.Value)
		}
	}
	return 0
}

// widenBounds takes from the verifier what it knows of a register, by way of memory, and says
// that it is no more than most (it goes to never if it is). Where many paths meet that differ in a
// number only, it would follow all of them to the end.
func (t *translator) widenBounds(r asm.Register, most int, never string) {
	t.Store(code.PHV, phvSpill, r, 8)
	t.Load(r, code.PHV, phvSpill, 8)
	t.Emit(asm.JGT.Imm(r, int32(most), never))
}
