package ebpf

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// The parser. Its first bytes of the frame are in the PHV (plan.frame), rEntry is the cursor and rTemp how many bytes there are. The verifier knows rTemp
// to be no more than the buffer, and so what lies before rTemp to be in the PHV.

// parse emits the parser. It leaves the cursor in phvHead, parser_error set, and the fields of every header that was not extracted 0.
func (t *translator) parse() {
	if len(t.prog.Parsers) == 0 {
		refuse("parsers", "a program without a parser")
	}
	done := "parse.done"
	p := t.prog.Parsers[0]
	label := func(s *bmv2json.ParseState) string {
		if s == nil {
			return done
		}
		return "parse." + s.Name
	}
	t.jump(label(p.Init))
	for _, s := range p.States {
		t.where = pathOfState(s)
		t.place(label(s))
		for _, o := range s.Ops {
			t.where = o.Path
			t.parserOp(o)
		}
		t.where = pathOfState(s)
		t.selectNext(s, label)
	}
	// What stops the parser jumps here with the error's number in R1.
	t.place("parse.error")
	t.setStandard(t.std.parserError, asm.R1)
	t.place(done)
	t.store(rPHV, phvHead, rEntry, 4)
	for _, h := range t.prog.Headers {
		if h.Metadata {
			continue
		}
		valid := t.newLabel("valid")
		t.load(asm.R1, rPHV, t.lay.validity(h), 1)
		t.emit(asm.JNE.Imm(asm.R1, 0, valid))
		t.zero(rPHV, t.lay.base[h.Index], t.lay.types[h.Type].size)
		t.place(valid)
	}
}

// parserError stops the parser.
func (t *translator) parserError(name string) {
	t.emit(asm.Mov.Imm(asm.R1, t.errorValue(name)))
	t.jump("parse.error")
}

// available makes sure that bytes at offset off from the cursor are there.
func (t *translator) available(off, bytes int) {
	short, ok := t.newLabel("short"), t.newLabel("there")
	t.emit(asm.JGT.Imm(rEntry, int32(max(t.frameMax-off-bytes, 0)), short))
	t.emit(asm.Mov.Reg(asm.R1, rEntry), asm.Add.Imm(asm.R1, int32(off+bytes)), asm.JLE.Reg(asm.R1, rTemp, ok))
	t.place(short)
	t.parserError("PacketTooShort")
	t.place(ok)
}

func (t *translator) parserOp(o *bmv2json.ParserOp) {
	t.begin(parserOperands(o)...)
	switch o.Kind {
	case bmv2json.ParserExtract:
		switch {
		case o.Header != nil:
			t.extract(o.Header)
		case o.Stack != nil:
			t.extractNext(o.Stack)
		default:
			refuse(o.Path, "extracting into a stack of header unions")
		}
	case bmv2json.ParserExtractVL:
		refuse(o.Path, "extracting a header of variable length")
	case bmv2json.ParserSet:
		if o.Value.Op == bmv2json.OpLookahead {
			t.available(0, (o.Value.Offset+o.Value.Width+7)/8)
			p := t.lay.field(o.Dest)
			if wide(p.width) || o.Value.Width > 64 {
				refuse(o.Path, "a look ahead over more than 64 bits")
			}
			t.storeValue(p, t.frameBits(o.Value.Offset, o.Value.Width))
			return
		}
		t.assignTo(t.lay.field(o.Dest), o.Value)
	case bmv2json.ParserVerify:
		bad, ok := t.newLabel("bad"), t.newLabel("ok")
		t.branch(t.condition(o.Cond), ok, bad, bad, 0)
		t.place(bad)
		t.compute(t.index(o.Value), 0)
		t.jump("parse.error")
		t.place(ok)
	case bmv2json.ParserAdvance:
		n, ok := constant(o.Value, 8*256+1)
		if !ok || n%8 != 0 {
			refuse(o.Path, "advancing by other than a constant number of bytes, 256 at most")
		}
		t.available(0, n/8)
		t.emit(asm.Add.Imm(rEntry, int32(n/8)))
	default:
		t.primitive(o.Primitive, "")
	}
}

// extract takes the header at the cursor.
func (t *translator) extract(h *bmv2json.Header) {
	if h.Union != nil {
		refuse(t.where, "a header union (%s)", h.Union.Name)
	}
	bytes := t.lay.types[h.Type].bytes
	if t.blocks[h] {
		ok := t.newLabel("there")
		t.load(asm.R2, rPHV, phvLen, 4)
		t.emit(asm.Mov.Reg(asm.R1, rEntry), asm.Add.Imm(asm.R1, int32(bytes)), asm.JLE.Reg(asm.R1, asm.R2, ok))
		t.parserError("PacketTooShort")
		t.place(ok)
		t.emit(asm.Mov.Reg(asm.R2, rEntry), asm.Mov.Reg(asm.R3, rPHV), asm.Add.Imm(asm.R3, int32(t.lay.base[h.Index])), asm.Mov.Imm(asm.R4, int32(bytes)))
		t.loadBytes()
	} else {
		t.available(0, bytes)
		t.takeFields(h.Type, t.lay.base[h.Index], rPHV)
	}
	t.emit(asm.Add.Imm(rEntry, int32(bytes)))
	t.storeConstant(rPHV, t.lay.validity(h), 1, 1)
}

// extractNext takes the header at the cursor into the next element of a stack. Each element has code of its own.
func (t *translator) extractNext(s *bmv2json.HeaderStack) {
	done, next := t.newLabel("taken"), t.lay.next+s.Index
	for i, h := range s.Headers {
		other := t.newLabel("other")
		t.load(asm.R1, rPHV, next, 1)
		t.emit(asm.JNE.Imm(asm.R1, int32(i), other))
		t.extract(h)
		t.storeConstant(rPHV, next, int32(i+1), 1)
		t.jump(done)
		t.place(other)
	}
	t.parserError("StackOutOfBounds")
	t.place(done)
}

// takeFields reads the fields of a header from the frame at the cursor.
func (t *translator) takeFields(h *bmv2json.HeaderType, base int, to asm.Register) {
	l := t.lay.types[h]
	t.emit(asm.Mov.Reg(asm.R3, rPHV), asm.Add.Reg(asm.R3, rEntry))
	for i, f := range h.Fields {
		if f.VL {
			refuse(h.Path, "a field of variable length (%s)", f.Name)
		}
		fl := l.fields[i]
		if !wide(f.Width) {
			t.readBits(asm.R1, asm.R2, t.frame, fl.bit, f.Width)
			t.store(to, base+fl.off, asm.R1, fl.size)
			continue
		}
		// Word by word, the most significant (and perhaps shorter) one first.
		n := wordsOf(f.Width)
		first := f.Width - 64*(n-1)
		for w, bit := 0, fl.bit; w < n; w++ {
			width := 64
			if w == 0 {
				width = first
			}
			if width == 64 && bit%8 == 0 {
				t.load(asm.R1, asm.R3, t.frame+bit/8, 8)
			} else {
				t.readBits(asm.R1, asm.R2, t.frame, bit, width)
				t.emit(asm.HostTo(asm.BE, asm.R1, asm.DWord))
			}
			t.store(to, base+fl.off+8*w, asm.R1, 8)
			bit += width
		}
	}
}

// readBits reads a number of up to 64 bits that starts at a bit of the memory at R3+off. It may touch up to 8 bytes after it.
func (t *translator) readBits(dst, tmp asm.Register, off, bit, width int) {
	at, in := off+bit/8, bit%8
	if in == 0 {
		switch width {
		case 8:
			t.load(dst, asm.R3, at, 1)
			return
		case 16, 32:
			t.load(dst, asm.R3, at, width/8)
			t.emit(asm.HostTo(asm.BE, dst, memSize(width/8)))
			return
		}
	}
	switch end := in + width; {
	case end <= 8:
		t.load(dst, asm.R3, at, 1)
		if end < 8 {
			t.emit(asm.RSh.Imm(dst, int32(8-end)))
		}
		if in > 0 {
			t.emit(asm.And.Imm(dst, int32(ones(width))))
		}
	case end <= 16:
		t.load(dst, asm.R3, at, 2)
		t.emit(asm.HostTo(asm.BE, dst, asm.Half))
		if end < 16 {
			t.emit(asm.RSh.Imm(dst, int32(16-end)))
		}
		if in > 0 {
			t.emit(asm.And.Imm(dst, int32(ones(width))))
		}
	case end <= 64:
		t.load(dst, asm.R3, at, 8)
		t.emit(asm.HostTo(asm.BE, dst, asm.DWord))
		if in > 0 {
			t.emit(asm.LSh.Imm(dst, int32(in)))
		}
		if width < 64 {
			t.emit(asm.RSh.Imm(dst, int32(64-width)))
		}
	default: // nine bytes
		t.load(dst, asm.R3, at, 8)
		t.emit(asm.HostTo(asm.BE, dst, asm.DWord), asm.LSh.Imm(dst, int32(in)))
		t.load(tmp, asm.R3, at+8, 1)
		t.emit(asm.RSh.Imm(tmp, int32(8-in)), asm.Or.Reg(dst, tmp))
		if width < 64 {
			t.emit(asm.RSh.Imm(dst, int32(64-width)))
		}
	}
}

// frameBits is a number at a bit offset from the cursor; its bytes must have been found available.
func (t *translator) frameBits(bit, width int) *value {
	in, at := bit%8, t.frame+bit/8
	if in+width > 64 {
		refuse(t.where, "a look ahead at %d bits that do not start on a byte", width)
	}
	v := &value{op: vFrame, off: at, size: 8, swapped: true, max: ^uint64(0)}
	return shrValue(shlValue(v, uint64(in)), uint64(64-width))
}

// selectNext emits a state's transitions.
func (t *translator) selectNext(s *bmv2json.ParseState, label func(*bmv2json.ParseState) string) {
	var parts []*value // of up to 64 bits each, the wide ones cut up
	var widths []int   // in bits
	for i, k := range s.Key {
		w := s.KeyWidths[i]
		switch {
		case k.Op == bmv2json.OpLookahead:
			t.available(0, (k.Offset+k.Width+7)/8)
			for bit := 0; bit < w; bit += 64 {
				n := min(64, w-bit)
				parts, widths = append(parts, t.frameBits(k.Offset+bit, n)), append(widths, n)
			}
			continue
		case k.Op == bmv2json.OpStackField:
			ok := t.newLabel("element")
			t.load(asm.R1, rPHV, t.lay.next+k.Stack.Index, 1)
			t.emit(asm.JNE.Imm(asm.R1, 0, ok))
			t.parserError("StackOutOfBounds")
			t.place(ok)
		}
		u := *k
		u.Signed = false
		first := w - 64*(wordsOf(w)-1)
		for j := wordsOf(w) - 1; j >= 0; j-- {
			n := 64
			if j == wordsOf(w)-1 {
				n = first
			}
			parts, widths = append(parts, andValue(t.word(&u, j), konst(ones(n)))), append(widths, n)
		}
	}
	for _, tr := range s.Transitions {
		t.where = tr.Path
		if tr.Kind == bmv2json.TransDefault {
			t.jump(label(tr.Next))
			return
		}
		masks := fullMasks(widths)
		if tr.Mask != nil {
			masks = splitKey(tr.Mask, s.KeyWidths)
		}
		if tr.Kind == bmv2json.TransValueSet {
			t.inSet(tr, parts, masks, label(tr.Next))
			continue
		}
		c := always
		values := splitKey(tr.Value, s.KeyWidths)
		for i, p := range parts {
			c = andCondition(c, compare(cmpEq, andValue(p, konst(masks[i])), konst(values[i]&masks[i]), false))
		}
		miss := t.newLabel("case")
		t.branch(c, label(tr.Next), miss, miss, 0)
		t.place(miss)
	}
	t.jump(label(nil))
}

// splitKey takes apart a concatenation of parts, each padded to whole bytes, into words.
func splitKey(b []byte, widths []int) (out []uint64) {
	for _, w := range widths {
		n := (w + 7) / 8
		part := make([]byte, wordsOf(w)*8)
		copy(part[len(part)-n:], b[:n])
		b = b[n:]
		for ; len(part) > 0; part = part[8:] {
			out = append(out, binary.BigEndian.Uint64(part))
		}
	}
	return out
}

func fullMasks(widths []int) (out []uint64) {
	for _, w := range widths {
		out = append(out, ones(w))
	}
	return out
}
