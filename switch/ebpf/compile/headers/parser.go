package headers

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// The parser. The first bytes of the frame are in the PHV (Plan.Frame). Entry is the cursor, and
// Temp is the number of these bytes. The verifier knows that Temp is at most the buffer's size. So
// it knows that all bytes before Temp are in the PHV.

// Parse emits the parser. It leaves the cursor in PHVHead and sets parser_error. It sets all fields
// of headers that were not extracted to 0.
func (t *Headers) Parse() {
	if len(t.Prog.Parsers) == 0 {
		ir.Refuse("parsers", "a program without a parser")
	}
	done := "parse.done"
	p := t.Prog.Parsers[0]
	early := analysis.EarlyHeaders(t.Prog)
	for _, h := range t.Prog.Headers {
		if early[h] {
			t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
		}
	}
	t.clearResting()
	label := func(s *bmv2json.ParseState) string {
		if s == nil {
			return done
		}
		return "parse." + s.Name
	}
	farthest := t.FrameMax // the largest possible value of the cursor
	for h := range t.Blocks {
		farthest += t.Layout.Types[h.Type].Bytes
	}
	t.Jump(label(p.Init))
	for _, s := range p.States {
		t.Where = pathOfState(s)
		t.Bind(label(s))
		// In a loop, the verifier has to see that the cursor advances, so this does not widen its
		// bounds.
		if len(p.States) > manyHeaders && !analysis.IsCycle(s) {
			t.WidenBounds(code.Entry, farthest, "ingress.drop")
		}
		for _, o := range s.Ops {
			t.Where = o.Path
			t.parserOp(o)
		}
		t.Where = pathOfState(s)
		t.selectNext(s, label)
	}
	// Code that stops the parser jumps to parse.error with the error's number in R1.
	t.Bind("parse.error")
	t.SetStandard(t.Std.ParserError, asm.R1)
	t.Bind(done)
	t.Store(code.PHV, memory.PHVHead, code.Entry, 4)
	for _, h := range t.Prog.Headers {
		if h.Metadata || early[h] {
			continue
		}
		valid := t.NewLabel("valid")
		t.Load(asm.R1, code.PHV, t.Layout.Validity(h), 1)
		t.Emit(asm.JNE.Imm(asm.R1, 0, valid))
		t.Zero(code.PHV, t.Layout.Base[h.Index], t.Layout.Types[h.Type].Size)
		t.Bind(valid)
	}
}

// parserError emits code that stops the parser with an error.
func (t *Headers) parserError(name string) {
	t.Emit(asm.Mov.Imm(asm.R1, t.errorValue(name)))
	t.Jump("parse.error")
}

// available emits code that checks that the frame has that many bytes at offset off from the
// cursor.
//
// A parser that loops without a stack may reach the end of the buffer before the end of the frame.
// The program then drops the frame, because it cannot continue.
func (t *Headers) available(off, bytes int) {
	beyond, short, ok := t.NewLabel("beyond"), t.NewLabel("short"), t.NewLabel("there")
	t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.Add.Imm(asm.R1, int32(off+bytes)))
	t.Emit(asm.JGT.Imm(code.Entry, int32(max(t.FrameMax-off-bytes, 0)), beyond),
		asm.JLE.Reg(asm.R1, code.Temp, ok), asm.Ja.Label(short))
	t.Bind(beyond)
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.JLE.Reg(asm.R1, asm.R2, "ingress.drop"))
	t.Bind(short)
	t.parserError("PacketTooShort")
	t.Bind(ok)
}

func (t *Headers) parserOp(o *bmv2json.ParserOp) {
	t.BeginStatement(analysis.ParserOperands(o)...)
	switch o.Kind {
	case bmv2json.ParserExtract:
		switch {
		case o.Header != nil:
			t.extract(o.Header)
		case o.Stack != nil:
			t.extractNext(o.Stack.Headers, t.Layout.NextOf(o.Stack), t.extract)
		default:
			t.extractNext(analysis.UnionMembers(o), t.Layout.NextOfUnions(o.UnionStack), t.extract)
		}
	case bmv2json.ParserExtractVL:
		take := func(h *bmv2json.Header) { t.extractVarbit(h, o.Length) }
		switch {
		case o.Header != nil:
			take(o.Header)
		case o.Stack != nil:
			t.extractNext(o.Stack.Headers, t.Layout.NextOf(o.Stack), take)
		default:
			t.extractNext(analysis.UnionMembers(o), t.Layout.NextOfUnions(o.UnionStack), take)
		}
	case bmv2json.ParserSet:
		if o.Value.Op == bmv2json.OpLookahead {
			t.available(0, (o.Value.Offset+o.Value.Width+7)/8)
			p := t.Layout.Field(o.Dest)
			t.lookAhead(p, o.Value)
			return
		}
		t.AssignTo(t.Layout.Field(o.Dest), o.Value)
	case bmv2json.ParserVerify:
		bad, ok := t.NewLabel("bad"), t.NewLabel("ok")
		t.Branch(t.Condition(o.Cond), ok, bad, bad, 0)
		t.Bind(bad)
		t.Compute(t.Index(o.Value), 0)
		t.Jump("parse.error")
		t.Bind(ok)
	case bmv2json.ParserAdvance:
		t.advance(o.Value)
	default:
		t.ParserPrimitive(o.Primitive)
	}
}

// advance emits code that moves the cursor.
func (t *Headers) advance(by *bmv2json.Expr) {
	if n, ok := ir.ConstantOf(by, 8*memory.MaxAdvance+1); ok && n%8 == 0 {
		t.available(0, n/8)
		t.Emit(asm.Add.Imm(code.Entry, int32(n/8)))
		return
	}
	whole, there := t.NewLabel("whole"), t.NewLabel("there")
	t.Compute(t.Index(by), 0)
	t.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.And.Imm(asm.R2, 7), asm.JEq.Imm(asm.R2, 0, whole))
	t.parserError("ParserInvalidArgument")
	t.Bind(whole)
	t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
	t.Emit(asm.RSh.Imm(asm.R1, 3), asm.Sub.Reg(asm.R2, code.Entry),
		asm.JLE.Reg(asm.R1, asm.R2, there))
	t.parserError("PacketTooShort")
	t.Bind(there)
	t.Emit(asm.Add.Reg(code.Entry, asm.R1), asm.JGT.Imm(code.Entry, int32(t.FrameMax),
		"ingress.drop"))
}

// lookAhead emits code that stores bits of the frame into a field without moving the cursor.
func (t *Headers) lookAhead(p ir.Place, e *bmv2json.Expr) {
	if !ir.Wide(p.Width) {
		low := min(e.Width, 64)
		t.StoreValue(p, ir.FrameBits(t.Frame, e.Offset+e.Width-low, low))
		return
	}
	for i, n := 0, ir.WordsOf(p.Width); i < n; i++ {
		v := ir.Const(0)
		if width := min(64, e.Width-64*i); width > 0 {
			v = ir.FrameBits(t.Frame, e.Offset+e.Width-64*i-width, width)
		}
		t.ComputeSwapped(ir.And(v, ir.Const(ir.Ones(min(64, p.Width-64*i)))), 0)
		t.Store(code.PHV, p.Off+(n-1-i)*8, ir.Registers[0], 8)
	}
}

// extract emits code that extracts the header at the cursor.
func (t *Headers) extract(h *bmv2json.Header) {
	bytes := t.Layout.Types[h.Type].Bytes
	if t.Blocks[h] {
		ok := t.NewLabel("there")
		t.Load(asm.R2, code.PHV, memory.PHVLen, 4)
		t.Emit(asm.Mov.Reg(asm.R1, code.Entry), asm.Add.Imm(asm.R1, int32(bytes)),
			asm.JLE.Reg(asm.R1, asm.R2, ok))
		t.parserError("PacketTooShort")
		t.Bind(ok)
		t.Store(code.PHV, t.BlockAt[h], code.Entry, 4)
		if r := t.RestsIn(h); r != nil {
			t.StoreConstant(code.PHV, r.Mask, r.WholeMask(), 4)
		} else {
			t.Emit(asm.Mov.Reg(asm.R2, code.Entry), asm.Mov.Reg(asm.R3, code.PHV),
				asm.Add.Imm(asm.R3, int32(t.Layout.Base[h.Index])),
				asm.Mov.Imm(asm.R4, int32(bytes)))
			t.LoadBytes()
		}
	} else {
		t.available(0, bytes)
		t.extractFields(h.Type, t.Layout.Base[h.Index], code.PHV)
	}
	t.Emit(asm.Add.Imm(code.Entry, int32(bytes)))
	t.SetValid(h)
}

// extractNext emits code that extracts the header at the cursor into the next element of a stack.
// The stack's element count is at next. Each element has its own code.
func (t *Headers) extractNext(elements []*bmv2json.Header, next int,
	take func(*bmv2json.Header)) {
	done := t.NewLabel("taken")
	for i, h := range elements {
		other := t.NewLabel("other")
		t.Load(asm.R1, code.PHV, next, 1)
		t.Emit(asm.JNE.Imm(asm.R1, int32(i), other))
		take(h)
		t.StoreConstant(code.PHV, next, int32(i+1), 1)
		t.Jump(done)
		t.Bind(other)
	}
	t.parserError("StackOutOfBounds")
	t.Bind(done)
}

// extractFields emits code that reads the fields of a header from the frame at the cursor.
func (t *Headers) extractFields(h *bmv2json.HeaderType, base int, to asm.Register) {
	if h.VL >= 0 {
		ir.Refuse(h.Path, "extracting a header of variable length (%s) without a length", h.Name)
	}
	t.extractFieldRange(h, 0, len(h.Fields), base, to)
}

// extractFieldRange emits code that reads the fields [first, last) of a header at the cursor. It
// uses their offsets in a header whose field of variable length is empty.
func (t *Headers) extractFieldRange(h *bmv2json.HeaderType, first, last, base int,
	to asm.Register) {
	l := t.Layout.Types[h]
	t.Emit(asm.Mov.Reg(asm.R3, code.PHV), asm.Add.Reg(asm.R3, code.Entry))
	for i, f := range h.Fields[:last] {
		if i < first {
			continue
		}
		fl := l.Fields[i]
		if !ir.Wide(f.Width) {
			t.readBits(asm.R1, asm.R2, t.Frame, fl.Bit, f.Width)
			t.Store(to, base+fl.Off, asm.R1, fl.Size)
			continue
		}
		// Read word by word. The first word is the most significant, and may be shorter.
		n := ir.WordsOf(f.Width)
		first := f.Width - 64*(n-1)
		for w, bit := 0, fl.Bit; w < n; w++ {
			width := 64
			if w == 0 {
				width = first
			}
			if width == 64 && bit%8 == 0 {
				t.Load(asm.R1, asm.R3, t.Frame+bit/8, 8)
			} else {
				t.readBits(asm.R1, asm.R2, t.Frame, bit, width)
				t.Emit(asm.HostTo(asm.BE, asm.R1, asm.DWord))
			}
			t.Store(to, base+fl.Off+8*w, asm.R1, 8)
			bit += width
		}
	}
}

// readBits emits code that reads a number of up to 64 bits that starts at a bit of the memory at
// R3+off. The code may read up to 8 bytes after the number.
func (t *Headers) readBits(dst, tmp asm.Register, off, bit, width int) {
	at, in := off+bit/8, bit%8
	if in == 0 {
		switch width {
		case 8:
			t.Load(dst, asm.R3, at, 1)
			return
		case 16, 32:
			t.Load(dst, asm.R3, at, width/8)
			t.Emit(asm.HostTo(asm.BE, dst, code.SizeOf(width/8)))
			return
		}
	}
	switch end := in + width; {
	case end <= 8:
		t.Load(dst, asm.R3, at, 1)
		if end < 8 {
			t.Emit(asm.RSh.Imm(dst, int32(8-end)))
		}
		if in > 0 {
			t.Emit(asm.And.Imm(dst, int32(ir.Ones(width))))
		}
	case end <= 16:
		t.Load(dst, asm.R3, at, 2)
		t.Emit(asm.HostTo(asm.BE, dst, asm.Half))
		if end < 16 {
			t.Emit(asm.RSh.Imm(dst, int32(16-end)))
		}
		if in > 0 {
			t.Emit(asm.And.Imm(dst, int32(ir.Ones(width))))
		}
	case end <= 64:
		t.Load(dst, asm.R3, at, 8)
		t.Emit(asm.HostTo(asm.BE, dst, asm.DWord))
		if in > 0 {
			t.Emit(asm.LSh.Imm(dst, int32(in)))
		}
		if width < 64 {
			t.Emit(asm.RSh.Imm(dst, int32(64-width)))
		}
	default: // the number spans nine bytes
		t.Load(dst, asm.R3, at, 8)
		t.Emit(asm.HostTo(asm.BE, dst, asm.DWord), asm.LSh.Imm(dst, int32(in)))
		t.Load(tmp, asm.R3, at+8, 1)
		t.Emit(asm.RSh.Imm(tmp, int32(8-in)), asm.Or.Reg(dst, tmp))
		if width < 64 {
			t.Emit(asm.RSh.Imm(dst, int32(64-width)))
		}
	}
}

// selectNext emits the transitions of a parser state.
func (t *Headers) selectNext(s *bmv2json.ParseState, label func(*bmv2json.ParseState) string) {
	var parts []*ir.Value // the parts of the key, up to 64 bits each; wide parts are split
	var widths []int      // width of each part in bits
	for i, k := range s.Key {
		w := s.KeyWidths[i]
		switch {
		case k.Op == bmv2json.OpLookahead:
			t.available(0, (k.Offset+k.Width+7)/8)
			for bit := 0; bit < w; bit += 64 {
				n := min(64, w-bit)
				parts, widths = append(parts, ir.FrameBits(t.Frame, k.Offset+bit, n)),
					append(widths, n)
			}
			continue
		case k.Op == bmv2json.OpStackField || k.Op == bmv2json.OpUnionStackField:
			ok := t.NewLabel("element")
			t.Load(asm.R1, code.PHV, t.PlaceOf(k).Next, 1)
			t.Emit(asm.JNE.Imm(asm.R1, 0, ok))
			t.parserError("StackOutOfBounds")
			t.Bind(ok)
		}
		u := *k
		u.Signed = false
		first := w - 64*(ir.WordsOf(w)-1)
		for j := ir.WordsOf(w) - 1; j >= 0; j-- {
			n := 64
			if j == ir.WordsOf(w)-1 {
				n = first
			}
			parts, widths = append(parts, ir.And(t.Word(&u, j), ir.Const(ir.Ones(n)))),
				append(widths, n)
		}
	}
	// If there are several defaults, the last default counts, and it is tried after all other
	// cases. p4c writes a case that matches everything (_, or a full range) as a further default,
	// and BMv2 has room for only one default.
	otherwise := (*bmv2json.ParseState)(nil)
	for _, tr := range s.Transitions {
		t.Where = tr.Path
		if tr.Kind == bmv2json.TransDefault {
			otherwise = tr.Next
			continue
		}
		masks := fullMasks(widths)
		if tr.Mask != nil {
			masks = ir.SplitKey(tr.Mask, s.KeyWidths)
		}
		if tr.Kind == bmv2json.TransValueSet {
			t.inSet(tr, parts, masks, label(tr.Next))
			continue
		}
		c := ir.Always
		values := ir.SplitKey(tr.Value, s.KeyWidths)
		for i, p := range parts {
			c = ir.AndCondition(c, ir.Compare(ir.CmpEq, ir.And(p, ir.Const(masks[i])),
				ir.Const(values[i]&masks[i]), false))
		}
		miss := t.NewLabel("case")
		t.Branch(c, label(tr.Next), miss, miss, 0)
		t.Bind(miss)
	}
	t.Jump(label(otherwise))
}

func fullMasks(widths []int) (out []uint64) {
	for _, w := range widths {
		out = append(out, ir.Ones(w))
	}
	return out
}

func pathOfState(s *bmv2json.ParseState) string {
	return fmt.Sprintf("%s (state %s)", s.Path,
		s.Name)
}

func (t *Headers) errorValue(name string) int32 {
	for _, e := range t.Prog.Errors {
		if e.Name == name {
			return int32(e.Value)
		}
	}
	return 0
}
