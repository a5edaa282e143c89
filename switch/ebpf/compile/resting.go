package compile

import (
	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Blocks that rest in the frame. A value of 1,024 bytes would be copied from the frame to the PHV,
// from there to a register, and back to the frame, where it stands already. Where all that a
// program does with a block's fields is to read registers into them and to write registers with
// them, each field stays in the frame until something is read into it: a register is written
// straight from the frame, and what still rests there is not written when the headers are.
//
// A block has a mask in the PHV, with a bit for each of its fields that rests: it is in the frame
// (Plan.blockAt says where), and what the PHV has in its place is nothing. What rests is taken into
// the PHV (settle) before the frame changes under it: before copies are made, each of which writes
// its headers into the same frame, and where the headers that leave are longer or shorter in all,
// or the block has another place among them.

// mostResting bounds the fields of a block that rests.
const mostResting = 16

// resting is a block that rests, and where its mask is.
type resting struct {
	header *bmv2json.Header
	mask   int
}

// planResting finds the blocks that rest.
func (p *Plan) planResting(take func(bytes int) int) {
	p.restingFields = map[int]restingField{}
	if p.Requests.any() || len(p.Prog.Parsers) != 1 || len(p.Prog.Deparsers) != 1 ||
		varbit(p.Prog.Deparsers[0]) {
		return
	}
	moved := onlyMoved(p.Prog)
	for _, h := range p.Prog.Headers {
		if !p.blocks[h] || !moved[h] || len(h.Type.Fields) > mostResting {
			continue
		}
		r := &resting{h, take(4)}
		p.resting = append(p.resting, r)
		for i, f := range p.Layout.Types[h.Type].Fields {
			p.restingFields[p.Layout.Base[h.Index]+f.Off] = restingField{r, i}
		}
	}
}

// restingField is a field of a block that rests.
type restingField struct {
	*resting
	index int
}

// all is the mask of a block of which everything is in the frame.
func (r *resting) all() int32 { return 1<<len(r.header.Type.Fields) - 1 }

// onlyMoved finds the headers of whose fields a program knows nothing but whether they are valid:
// it moves them between frame and registers.
func onlyMoved(prog *bmv2json.Program) map[*bmv2json.Header]bool {
	out := map[*bmv2json.Header]bool{}
	for _, h := range prog.Headers {
		out[h] = !h.Metadata
	}
	see := func(e *bmv2json.Expr) {
		for _, h := range possibleHeaders(e) {
			if e.Op != bmv2json.OpField || !e.Field.IsValidity() {
				out[h] = false
			}
		}
	}
	primitive := func(q *bmv2json.Primitive) {
		if q == nil {
			return
		}
		for i, a := range q.Args {
			field := a.Op == bmv2json.OpField && !a.Field.IsValidity()
			switch {
			case q.Op == "register_read" && i == 0 && field,
				q.Op == "register_write" && i == 2 && field && q.Args[0].Op == bmv2json.OpRegisterArray &&
					q.Args[0].Register.Width == a.Width,
				q.Op == "remove_header" && a.Op == bmv2json.OpHeader:
			default:
				walk(a, see)
			}
		}
	}
	of := func(r bmv2json.FieldRef) {
		if !r.IsZero() && !r.IsValidity() {
			out[r.Header] = false
		}
	}
	outsidePipelines(prog, uses{see, primitive, of, func(h *bmv2json.Header) { out[h] = false }})
	for _, q := range prog.Pipelines {
		for _, c := range q.Conditionals {
			walk(c.Expr, see)
		}
	}
	for _, a := range prog.Actions {
		for _, q := range a.Primitives {
			primitive(q)
		}
	}
	for _, d := range prog.Deparsers {
		for _, q := range d.Primitives {
			primitive(q)
		}
	}
	for _, t := range prog.Tables() {
		for _, k := range t.Keys {
			of(k.Field)
		}
	}
	return out
}

// restsIn is a header as one that may rest; nil if it does not.
func (p *Plan) restsIn(h *bmv2json.Header) *resting {
	for _, r := range p.resting {
		if r.header == h {
			return r
		}
	}
	return nil
}

// clearResting says that nothing rests: of a packet that has just come in.
func (t *translator) clearResting() {
	for _, r := range t.resting {
		t.StoreConstant(code.PHV, r.mask, 0, 4)
	}
}

// hasRead says that a field has been read into the PHV, if it is one that may rest.
func (t *translator) hasRead(dst ir.Place) {
	if f, ok := t.restingFields[dst.Off]; ok {
		t.Load(asm.R1, code.PHV, f.mask, 4)
		t.Emit(asm.And.Imm(asm.R1, f.all()&^(1<<f.index)))
		t.Store(code.PHV, f.mask, asm.R1, 4)
	}
}

// writeResting writes the cell at R2 with a field that rests and goes to done; with any other it
// goes on.
func (t *translator) writeResting(off, size int, done string) {
	f, ok := t.restingFields[off]
	if !ok {
		return
	}
	here := t.NewLabel("here")
	t.Load(asm.R1, code.PHV, f.mask, 4)
	t.Emit(asm.And.Imm(asm.R1, 1<<f.index), asm.JEq.Imm(asm.R1, 0, here),
		asm.Mov.Reg(asm.R3, asm.R2))
	t.loadField(f.resting, f.index, size)
	t.Jump(done)
	t.Bind(here)
}

// loadField loads a field that rests to where R3 points.
func (t *translator) loadField(r *resting, index, size int) {
	t.Load(asm.R2, code.PHV, t.blockAt[r.header], 4)
	if off := t.Layout.Types[r.header.Type].Fields[index].Off; off != 0 {
		t.Emit(asm.Add.Imm(asm.R2, int32(off)))
	}
	t.Emit(asm.Mov.Imm(asm.R4, int32(size)))
	t.loadBytes()
}

// settle takes what rests of a block into the PHV.
func (t *translator) settle(r *resting) {
	some, loaded, settled := t.NewLabel("some"), t.NewLabel("loaded"), t.NewLabel("settled")
	base := t.Layout.Base[r.header.Index]
	load := func(off, index, size int) {
		t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(base+off)))
		t.loadField(r, index, size)
	}
	t.Load(asm.R1, code.PHV, r.mask, 4)
	t.Emit(asm.JEq.Imm(asm.R1, 0, settled))
	fields := t.Layout.Types[r.header.Type].Fields
	if len(fields) > 1 {
		t.Emit(asm.JNE.Imm(asm.R1, r.all(), some))
	}
	load(0, 0, t.Layout.Types[r.header.Type].Bytes)
	if len(fields) > 1 {
		t.Jump(loaded)
		t.Bind(some)
		for i, f := range fields {
			not := t.NewLabel("not")
			t.Load(asm.R1, code.PHV, r.mask, 4)
			t.Emit(asm.And.Imm(asm.R1, 1<<i), asm.JEq.Imm(asm.R1, 0, not))
			load(f.Off, i, f.Size)
			t.Bind(not)
		}
		t.Bind(loaded)
	}
	t.StoreConstant(code.PHV, r.mask, 0, 4)
	t.Bind(settled)
}

// settleAll does it for all blocks.
func (t *translator) settleAll() {
	for _, r := range t.resting {
		t.settle(r)
	}
}

// settleElsewhere takes a block into the PHV that is to leave from another place than it rests at:
// Entry is where it leaves.
func (t *translator) settleElsewhere(h *bmv2json.Header) {
	r := t.restsIn(h)
	if r == nil {
		return
	}
	there := t.NewLabel("there")
	t.Load(asm.R1, code.PHV, t.blockAt[h], 4)
	t.Emit(asm.JEq.Reg(asm.R1, code.Entry, there))
	t.settle(r)
	t.Bind(there)
}

// ifResting goes to rests where a block that leaves from where it is rests as a whole. What rests
// of another is settled.
func (t *translator) ifResting(h *bmv2json.Header, rests string) {
	r := t.restsIn(h)
	if r == nil {
		return
	}
	t.Load(asm.R1, code.PHV, r.mask, 4)
	t.Emit(asm.JEq.Imm(asm.R1, r.all(), rests))
	if len(h.Type.Fields) > 1 {
		t.settle(r)
	}
}

// reload makes a block's fields those of the frame again, as when it was extracted, or 0 if it is
// not valid.
func (t *translator) reload(h *bmv2json.Header, drop string) {
	absent := t.NewLabel("absent")
	if r := t.restsIn(h); r != nil { // again, as when it was extracted
		t.StoreConstant(code.PHV, r.mask, r.all(), 4)
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JNE.Imm(asm.R1, 0, absent))
		t.StoreConstant(code.PHV, r.mask, 0, 4)
		t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
		t.Bind(absent)
		return
	}
	t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
	t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
	t.Emit(asm.JEq.Imm(asm.R1, 0, absent))
	t.Load(asm.R2, code.PHV, t.blockAt[h], 4)
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Imm(asm.R3, int32(t.Layout.Base[h.Index])),
		asm.Mov.Imm(asm.R4, int32(t.Layout.Types[h.Type].Bytes)))
	t.loadBytes()
	t.Emit(asm.JNE.Imm(asm.R0, 0, drop))
	t.Bind(absent)
}
