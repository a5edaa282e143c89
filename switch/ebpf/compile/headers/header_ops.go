package headers

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// SetValid emits code that makes a header valid and the other members of its union invalid.
func (t *Headers) SetValid(h *bmv2json.Header) {
	t.StoreConstant(code.PHV, t.Layout.Validity(h), 1, 1)
	if h.Union != nil {
		for _, other := range h.Union.Headers {
			if other != h {
				t.StoreConstant(code.PHV, t.Layout.Validity(other), 0, 1)
			}
		}
	}
}

// AddHeader emits setValid() of P4. If the header was invalid, all its fields become 0.
func (t *Headers) AddHeader(h *bmv2json.Header) {
	done := t.NewLabel("was")
	t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
	t.Emit(asm.JNE.Imm(asm.R1, 0, done))
	t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
	t.SetValid(h)
	t.adjustPacketLength(h, 1)
	t.Bind(done)
}

// RemoveHeader emits setInvalid() of P4.
func (t *Headers) RemoveHeader(h *bmv2json.Header) {
	if h.Metadata {
		return
	}
	if t.ReadsPacketLength() {
		done := t.NewLabel("was")
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JEq.Imm(asm.R1, 0, done))
		t.adjustPacketLength(h, -1)
		t.Bind(done)
	}
	t.StoreConstant(code.PHV, t.Layout.Validity(h), 0, 1)
}

// adjustPacketLength emits code that updates packet_length in egress for a header that is added
// (sign is 1) or removed (sign is -1).
func (t *Headers) adjustPacketLength(h *bmv2json.Header, sign int) {
	if !t.ReadsPacketLength() {
		return
	}
	l := t.Layout.Types[h.Type]
	t.Load(asm.R1, code.PHV, memory.PHVLength, 4)
	t.Emit(asm.Add.Imm(asm.R1, int32(sign*l.Bytes)))
	if h.Type.VL >= 0 {
		t.Load(asm.R2, code.PHV, t.Layout.Base[h.Index]+l.VarbitLength, 2)
		if sign < 0 {
			t.Emit(asm.Neg.Imm(asm.R2, 0))
		}
		t.Emit(asm.Add.Reg(asm.R1, asm.R2))
	}
	t.Store(code.PHV, memory.PHVLength, asm.R1, 4)
}

// AssignHeader emits code that copies a header with its validity. Both headers have the same type.
func (t *Headers) AssignHeader(dst, src *bmv2json.Header) {
	if dst == src {
		return
	}
	if dst.Type != src.Type {
		ir.Refuse(t.Where, "copying a header of type %s to one of type %s", src.Type.Name,
			dst.Type.Name)
	}
	size := t.Layout.Types[dst.Type].Size
	if src.Metadata {
		t.CopyWords(code.PHV, t.Layout.Base[dst.Index], code.PHV, t.Layout.Base[src.Index], size)
		if !dst.Metadata {
			t.SetValid(dst)
		}
		return
	}
	invalid, done := t.NewLabel("invalid"), t.NewLabel("copied")
	t.Load(asm.R1, code.PHV, t.Layout.Validity(src), 1)
	t.Emit(asm.JEq.Imm(asm.R1, 0, invalid))
	if !dst.Metadata {
		t.SetValid(dst)
	}
	t.CopyWords(code.PHV, t.Layout.Base[dst.Index], code.PHV, t.Layout.Base[src.Index], size)
	t.Jump(done)
	t.Bind(invalid)
	if !dst.Metadata {
		t.StoreConstant(code.PHV, t.Layout.Validity(dst), 0, 1)
	}
	t.Bind(done)
}

// AssignUnion emits code that copies the members of a union one by one. Valid members become valid
// in the destination.
func (t *Headers) AssignUnion(dst, src []*bmv2json.Header) {
	for i := range min(len(dst), len(src)) {
		t.AssignHeader(dst[i], src[i])
	}
}

// AssignStack emits code that copies a header stack, element by element.
func (t *Headers) AssignStack(p *bmv2json.Primitive) {
	dst, to := t.StackElements(p.Args[0])
	src, from := t.StackElements(p.Args[1])
	if len(dst) != len(src) {
		ir.Refuse(p.Path, "copying a stack of %d elements to one of %d", len(src), len(dst))
	}
	t.Load(asm.R1, code.PHV, from, 1)
	t.Store(code.PHV, to, asm.R1, 1)
	for i := range dst {
		t.AssignUnion(dst[i], src[i])
	}
}

// ShiftStack emits push_front or pop_front by a constant.
func (t *Headers) ShiftStack(p *bmv2json.Primitive) {
	elements, next := t.StackElements(p.Args[0])
	size := len(elements)
	by, ok := ir.ConstantOf(p.Args[1], 256)
	if !ok {
		ir.Refuse(p.Path, "%s by a number that is not constant", p.Op)
	}
	by = min(by, size)
	if by == 0 {
		return
	}
	move := func(dst, src []*bmv2json.Header) {
		for i := range dst {
			t.Load(asm.R1, code.PHV, t.Layout.Validity(src[i]), 1)
			t.Store(code.PHV, t.Layout.Validity(dst[i]), asm.R1, 1)
			t.CopyWords(code.PHV, t.Layout.Base[dst[i].Index], code.PHV,
				t.Layout.Base[src[i].Index], t.Layout.Types[dst[i].Type].Size)
		}
	}
	invalidate := func(list []*bmv2json.Header) {
		for _, h := range list {
			t.StoreConstant(code.PHV, t.Layout.Validity(h), 0, 1)
		}
	}
	end := t.NewLabel("count")
	if p.Op == "push" {
		for i := size - 1; i >= by; i-- {
			move(elements[i], elements[i-by])
		}
		for i := range by {
			invalidate(elements[i])
		}
		t.Load(asm.R1, code.PHV, next, 1)
		t.Emit(asm.Add.Imm(asm.R1, int32(by)), asm.JLE.Imm(asm.R1, int32(size), end),
			asm.Mov.Imm(asm.R1, int32(size)))
	} else {
		for i := range size - by {
			move(elements[i], elements[i+by])
		}
		for i := size - by; i < size; i++ {
			invalidate(elements[i])
		}
		t.Load(asm.R1, code.PHV, next, 1)
		t.Emit(asm.Sub.Imm(asm.R1, int32(by)), asm.JSGE.Imm(asm.R1, 0, end), asm.Mov.Imm(asm.R1, 0))
	}
	t.Bind(end)
	t.Store(code.PHV, next, asm.R1, 1)
}
