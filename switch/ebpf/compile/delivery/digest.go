package delivery

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// GenerateDigest emits the primitive generate_digest. If a program runs it several times, the last
// named list is sent.
func (t *Delivery) GenerateDigest(p *bmv2json.Primitive) {
	id := p.Args[1]
	if id.Op == bmv2json.OpConst && (!id.Const.IsInt64() ||
		t.Prog.LearnList(int(id.Const.Int64())) == nil) {
		ir.Refuse(id.Path, "a digest of learn list %s, which there is not", id.Const)
	}
	t.Store(code.PHV, t.Digest, t.Compute(ir.And(t.Index(id), ir.Const(0xffff)), 0), 2)
}

// StartDigest emits code that clears a packet's request for a digest.
func (t *Delivery) StartDigest() {
	if t.Digest != 0 {
		t.StoreConstant(code.PHV, t.Digest, 0, 2)
	}
}

// sendDigest emits code that sends the digest that ingress requested. It uses all registers but PHV
// and Ctx.
func (t *Delivery) sendDigest() {
	if t.Digest == 0 {
		return
	}
	done := t.NewLabel("sampled")
	t.Load(asm.R1, code.PHV, t.Digest, 2)
	t.Emit(asm.JEq.Imm(asm.R1, 0, done), asm.Mov.Reg(code.Entry, asm.R1))
	t.StoreConstant(code.PHV, t.Digest, 0, 2)
	t.StoreConstant(asm.R10, -4, 0, 4)
	t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Buffer), asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4))
	t.Call(asm.FnMapLookupElem)
	t.Emit(asm.JEq.Imm(asm.R0, 0, done), asm.Mov.Reg(code.Temp, asm.R0))
	t.LoadConstant(asm.R1, t.Maps.Number)
	t.Store(code.Temp, 0, asm.R1, 8)
	t.Store(code.Temp, 8, code.Entry, 8)
	for _, l := range t.Prog.LearnLists {
		other := t.NewLabel("list")
		t.Emit(asm.JNE.Imm(code.Entry, int32(l.ID), other))
		at := memory.DigestHeader
		for i, e := range l.Elements {
			n := ir.WordsOf(l.Widths[i])
			if at+8*n > memory.BufferSize {
				ir.Refuse(l.Path, "a digest of more than %d bytes", memory.BufferSize)
			}
			for w := n - 1; w >= 0; w-- {
				t.Compute(ir.And(t.Word(e, w), ir.Const(ir.Ones(min(64, l.Widths[i]-64*w)))), 0)
				t.Store(code.Temp, at, asm.R1, 8)
				at += 8
			}
		}
		t.Emit(asm.LoadMapPtr(asm.R1, t.Maps.Digests), asm.Mov.Reg(asm.R2, code.Temp),
			asm.Mov.Imm(asm.R3, int32(at)), asm.Mov.Imm(asm.R4, 0))
		t.Call(asm.FnRingbufOutput)
		t.Jump(done)
		t.Bind(other)
	}
	t.Bind(done)
}
