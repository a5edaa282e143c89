package udpmatch

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// MaxTags is how many tags in the frame are looked through. A frame with more is dropped.
const MaxTags = 4

// StackBytes is how many bytes of the stack the code uses, from Match.Stack upwards.
const StackBytes = 24

// Match says what is looked for, and where the code goes on.
type Match struct {
	XDP  bool         // at XDP; else at tc
	Ctx  asm.Register // the program's context. It stays; all other registers are used
	A, B asm.Register // two of R6 to R9 that are not Ctx

	Both []uint16 // UDP ports: packets to or from these
	To   []uint16 // and packets to these, which are never plain: they are dropped

	// Untagged has all tagged frames dropped, whatever is in them.
	Untagged bool

	Stack  int16  // where StackBytes of the stack are, below the frame pointer, a multiple of 8
	Prefix string // begins the names of the code's own labels

	// Plain, Drop and Pass are the labels where it goes on. The code never runs off its end. Plain
	// is not used where Both is empty.
	Plain, Drop, Pass string
}

// Offsets in struct __sk_buff and struct xdp_md (linux/bpf.h).
const (
	skbVLANPresent = 20
	skbData        = 76
	xdpData        = 0
)

// Offsets in a frame, and in an IPv4 header (RFC 791).
const (
	etherType    = 12
	etherLength  = 14
	tagLength    = 4
	ipVersion    = 0 // and the header's length, in words
	ipFragment   = 6 // flags and offset
	ipProtocol   = 9
	ipLength     = 20
	plainVersion = 0x45
	protocolUDP  = 17
	udpLength    = 8

	moreFragments  = 0x2000
	fragmentOffset = 0x1fff
)

// tags are the Ethernet types of tags: 802.1Q, 802.1ad, and what was used for the latter before.
// Linux takes the first two off, other switches all.
var tags = []uint16{0x8100, 0x88a8, 0x9100}

// network is a number of two bytes as a program loads it from a frame.
func network(v uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

// writer is where instructions and labels go.
type writer struct {
	*Match
	emit  func(...asm.Instruction)
	place func(label string)
}

// Write writes the code: emit gets instructions, place a label for the next one.
//
// Nearly all frames have their headers in the linear part, no tag and no options. Those are decided
// with a few direct reads; the others by [writer.thorough].
func (m Match) Write(emit func(...asm.Instruction), place func(label string)) {
	w := writer{&m, emit, place}
	data, tagged := int16(skbData), w.label("thorough")
	if m.XDP {
		data = xdpData
	}
	if m.Untagged {
		tagged = m.Drop
	}
	w.emit(
		asm.LoadMem(asm.R2, m.Ctx, data, asm.Word),
		asm.LoadMem(asm.R3, m.Ctx, data+4, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R2), asm.Add.Imm(asm.R1, etherLength+ipLength+udpLength),
		asm.JGT.Reg(asm.R1, asm.R3, w.label("thorough")))
	if !m.XDP {
		w.emit(asm.LoadMem(asm.R1, m.Ctx, skbVLANPresent, asm.Word), asm.JNE.Imm(asm.R1, 0, tagged))
	}
	w.emit(asm.LoadMem(asm.R1, asm.R2, etherType, asm.Half))
	w.emit(asm.JEq.Imm(asm.R1, network(0x0800), w.label("ip")))
	for _, tag := range tags {
		w.emit(asm.JEq.Imm(asm.R1, network(tag), tagged))
	}
	w.emit(asm.Ja.Label(m.Pass))
	w.place(w.label("ip"))
	w.emit(
		asm.LoadMem(asm.R1, asm.R2, etherLength+ipProtocol, asm.Byte),
		asm.JNE.Imm(asm.R1, protocolUDP, m.Pass),
		asm.LoadMem(asm.R1, asm.R2, etherLength+ipVersion, asm.Byte),
		asm.JNE.Imm(asm.R1, plainVersion, w.label("thorough")),
		asm.LoadMem(asm.R1, asm.R2, etherLength+ipFragment, asm.Half),
		asm.And.Imm(asm.R1, network(moreFragments|fragmentOffset)),
		asm.JNE.Imm(asm.R1, 0, w.label("thorough")),
		asm.LoadMem(asm.R1, asm.R2, etherLength+ipLength, asm.Half),
		asm.LoadMem(asm.R2, asm.R2, etherLength+ipLength+2, asm.Half))
	w.ports(m.Plain)
	w.emit(asm.Ja.Label(m.Pass))
	w.place(w.label("thorough"))
	w.thorough()
}

// ports compares source and destination, in R1 and R2.
func (w *writer) ports(named string) {
	for _, p := range w.Both {
		w.emit(asm.JEq.Imm(asm.R1, network(p), named), asm.JEq.Imm(asm.R2, network(p), named))
	}
	for _, p := range w.To {
		w.emit(asm.JEq.Imm(asm.R2, network(p), w.Drop))
	}
}

// thorough is for frames with tags, options, fragments, or headers that are not in the linear part.
// A is where it is in the frame, B is not 0 where the packet is not plain.
func (w *writer) thorough() {
	w.emit(asm.Mov.Imm(w.A, etherType), asm.Mov.Imm(w.B, 0))
	if !w.XDP {
		if w.Untagged { // a frame may be here for another reason
			w.emit(asm.LoadMem(asm.R1, w.Ctx, skbVLANPresent, asm.Word),
				asm.JNE.Imm(asm.R1, 0, w.Drop))
		} else {
			w.emit(asm.LoadMem(w.B, w.Ctx, skbVLANPresent, asm.Word))
		}
	}
	ip, depth := w.label("inside"), MaxTags
	if w.Untagged {
		depth = 0
	}
	for i := 0; i <= depth; i++ {
		tagged := w.label("tag" + string(rune('0'+i)))
		if i == depth {
			tagged = w.Drop
		}
		w.load(0, 2)
		w.emit(asm.LoadMem(asm.R1, asm.R10, w.Stack, asm.Half))
		for _, tag := range tags {
			w.emit(asm.JEq.Imm(asm.R1, network(tag), tagged))
		}
		w.emit(asm.JNE.Imm(asm.R1, network(0x0800), w.Pass))
		if i == depth {
			break
		}
		w.emit(asm.Ja.Label(ip))
		w.place(tagged)
		w.emit(asm.Add.Imm(w.A, tagLength), asm.Mov.Imm(w.B, 1))
	}
	w.place(ip)
	w.load(2, ipLength)
	w.emit(
		asm.LoadMem(asm.R1, asm.R10, w.Stack+ipProtocol, asm.Byte),
		asm.JNE.Imm(asm.R1, protocolUDP, w.Pass),
		asm.LoadMem(asm.R1, asm.R10, w.Stack+ipFragment, asm.Half),
		asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, network(fragmentOffset)),
		asm.JNE.Imm(asm.R2, 0, w.Pass),
		asm.And.Imm(asm.R1, network(moreFragments)), asm.Or.Reg(w.B, asm.R1),
		asm.LoadMem(asm.R1, asm.R10, w.Stack+ipVersion, asm.Byte),
		// 4 and at least 5 words: else it is no IPv4, and whoever takes it for some is not to get
		// it.
		asm.JLT.Imm(asm.R1, plainVersion, w.Drop), asm.JGT.Imm(asm.R1, 0x4f, w.Drop),
		asm.Sub.Imm(asm.R1, 0x40), asm.LSh.Imm(asm.R1, 2), asm.Add.Reg(w.A, asm.R1),
		asm.Sub.Imm(asm.R1, ipLength), asm.Or.Reg(w.B, asm.R1))
	w.load(2, 4)
	w.emit(asm.LoadMem(asm.R1, asm.R10, w.Stack, asm.Half),
		asm.LoadMem(asm.R2, asm.R10, w.Stack+2, asm.Half))
	w.ports(w.label("named"))
	w.emit(asm.Ja.Label(w.Pass))
	if len(w.Both) == 0 {
		return
	}
	w.place(w.label("named"))
	w.emit(asm.JNE.Imm(w.B, 0, w.Drop), asm.Ja.Label(w.Plain))
}

// load reads n bytes of the frame, from A and an offset on, to the stack. Where there are not so
// many the frame is dropped: the kernel would not take it for a packet either.
func (w *writer) load(offset, n int32) {
	fn := asm.FnSkbLoadBytes
	if w.XDP {
		fn = asm.FnXdpLoadBytes
	}
	w.emit(
		asm.Mov.Reg(asm.R1, w.Ctx), asm.Mov.Reg(asm.R2, w.A), asm.Add.Imm(asm.R2, offset),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(w.Stack)), asm.Mov.Imm(asm.R4, n),
		fn.Call(), asm.JNE.Imm(asm.R0, 0, w.Drop))
}

func (w *writer) label(name string) string { return w.Prefix + "." + name }
