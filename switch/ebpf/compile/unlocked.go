package compile

import (
	"runtime"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Reading without the lock. A packet that only reads registers need not keep others from them, if
// it can tell that nobody has written meanwhile. Whoever writes has the lock, and counts a version
// up before and after: it is odd while registers are being written (a sequence lock). So where a
// program is made by its paths (paths.go), and none of those behind the first register writes one,
// a packet notes the version, reads, and looks whether it still is the same:
//
//	version even? ──▶ registers are read, as they come ──▶ version the same? ──▶ …
//	      │ no                                                    │ no: the packet is put back
//	      └──────────▶ the lock, the same again ◀─────────────────┘
//
// Until that is known the packet must not do what cannot be taken back: what it counts is counted
// behind (counters ask nothing), and what it changes of itself that is asked again is kept at the
// beginning. Headers that are large are taken from the frame again, which is written much later.
// A packet whose epoch is over (lock.go) finds that out at the same place: it has not touched
// registers since, and gives the lock's way the say.
//
// A version is worth nothing unless the loads around it are in order. amd64 keeps them; on other
// processors the lock stays.

// mostUndone bounds what a packet keeps to be put back, in bytes.
const mostUndone = 96

// versionOffset is from the lock to the version.
const versionOffset = 8

// versions reports whether there are versions, which writers count up.
func (p *Plan) versions() bool { return len(p.Prog.Registers) > 0 && runtime.GOARCH == "amd64" }

// versioned reports whether packets that write count them up.
func (t *translator) versioned() bool { return t.locks() && t.versions() }

// turnVersion counts the version up, whose lock is at base. It uses R2.
func (t *translator) turnVersion(base asm.Register) {
	t.Load(asm.R2, base, versionOffset, 8)
	t.Emit(asm.Add.Imm(asm.R2, 1))
	t.Store(base, versionOffset, asm.R2, 8)
}

// unlocked is what it takes to go back from a part of the program without the lock.
type unlocked struct {
	keep   []span             // fields, which are kept
	reload []*bmv2json.Header // blocks, which are in the frame

	families []int // whose versions are looked at where there are stripes
	striped  bool  // they can be told
}

// readUnlocked gives each place where packets get the lock, and only read registers with it, a copy
// of what follows that does without. The liveness of fields is that of order. It reports whether
// there was one.
func (t *finder) readUnlocked(order []*step, live []*fieldSet) (found bool) {
	if !t.versions() {
		return false
	}
	begins := map[*step]*step{}
	for _, s := range order {
		if s.inside {
			continue
		}
		for i, n := range s.next {
			if !n.inside {
				continue
			}
			begin, seen := begins[n]
			if !seen {
				begin = t.withoutLock(n, live[n.order], order)
				begins[n] = begin
			}
			if begin != nil {
				found = true
				s.lead(i, begin)
			}
		}
	}
	return found
}

// lead makes one of a step's ways on lead to another step.
func (s *step) lead(way int, to *step) {
	from := s.next[way]
	s.next[way] = to
	o := s.table
	if o == nil {
		return
	}
	for _, list := range [][]*step{o.hit, o.missed} {
		for i := range list {
			if list[i] == from {
				list[i] = to
			}
		}
	}
	for word, n := range o.known {
		if n == from {
			o.known[word] = to
		}
	}
	for _, at := range []**step{&o.without, &o.always} {
		if *at == from {
			*at = to
		}
	}
}

// withoutLock makes the copy of the steps from one on that need the lock; nil where they cannot do
// without.
func (t *finder) withoutLock(first *step, live *fieldSet, order []*step) *step {
	changed, ok := t.changedInside(first)
	if !ok {
		return nil
	}
	u := &unlocked{}
	if !t.keepWhat(u, changed, live, first, order) {
		return nil
	}
	undo := &step{kind: stepUndo, sets: -1, undo: u, next: []*step{first}}
	type copied struct {
		s       *step
		pending string
	}
	copies, possible := map[copied]*step{}, true
	var follow func(s *step, pending []*step, names string) *step
	follow = func(s *step, pending []*step, names string) *step {
		if c, ok := copies[copied{s, names}]; ok {
			return c
		}
		var c *step
		switch {
		case !s.inside:
			to := s
			for _, k := range slices.Backward(pending) {
				count := *k
				count.inside, count.next = false, []*step{to}
				to = &count
			}
			c = &step{kind: stepValidate, sets: -1, next: []*step{to, undo}}
		case s.kind == stepPrimitive && s.primitive.Op == "count":
			possible = possible && !slices.Contains(s.reads, ir.EveryField)
			c = follow(s.next[0], append(slices.Clone(pending), s),
				names+string(rune(s.order)))
		default:
			for _, off := range t.changedBy(s) {
				for _, k := range pending {
					possible = possible && !slices.Contains(k.reads, off)
				}
			}
			same := *s
			c = &same
			c.inside, c.next = false, nil
			c.spoilt = t.Overtaken && s.kind == stepPrimitive && s.primitive.Op == "register_read"
			for _, n := range s.next {
				c.next = append(c.next, follow(n, pending, names))
			}
		}
		copies[copied{s, names}] = c
		return c
	}
	begin := &step{kind: stepUnlocked, sets: -1, undo: u}
	begin.next = []*step{follow(first, nil, ""), first}
	if !possible {
		return nil
	}
	return begin
}

// changedInside are the fields that the steps from one on change that have the lock; false where
// one of them writes a register, or does something that cannot be done again.
func (t *finder) changedInside(first *step) (changed map[int]bool, ok bool) {
	changed = map[int]bool{}
	seen := map[*step]bool{}
	for pending := []*step{first}; len(pending) > 0; {
		s := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if seen[s] || !s.inside {
			continue
		}
		seen[s] = true
		switch s.kind {
		case stepTest, stepSet:
		case stepPrimitive:
			switch s.primitive.Op {
			case "assign", "modify_field", "register_read", "count", "mark_to_drop", "drop",
				"no_op":
			default: // log_msg among them, which would be said twice
				return nil, false
			}
		default:
			return nil, false
		}
		for _, off := range t.changedBy(s) {
			if off == ir.EveryField {
				return nil, false
			}
			changed[off] = true
		}
		pending = append(pending, s.next...)
	}
	return changed, true
}

// changedBy are the fields that a step changes.
func (t *finder) changedBy(s *step) (offs []int) {
	switch s.kind {
	case stepSet:
		return []int{s.dst.Off}
	case stepTable:
		return []int{ir.EveryField}
	case stepPrimitive:
	default:
		return nil
	}
	switch q := s.primitive; q.Op {
	case "register_write", "count", "no_op", "log_msg", "truncate":
		return nil
	case "assign", "modify_field", "register_read":
		dst := q.Args[0]
		if dst.Op == bmv2json.OpField && !dst.Field.IsValidity() && !dst.Field.Field.VL {
			return []int{t.Layout.Field(dst.Field).Off}
		}
	case "mark_to_drop", "drop":
		for _, r := range []bmv2json.FieldRef{t.std.egressSpec, t.std.mcastGroup} {
			t.fieldIf(r, func(p ir.Place) { offs = append(offs, p.Off) })
		}
		return offs
	}
	return []int{ir.EveryField}
}

// keepWhat finds how what has changed is put back that is asked from the first step on: false where
// it is too much.
func (t *finder) keepWhat(u *unlocked, changed map[int]bool, live *fieldSet, first *step,
	order []*step) bool {
	room := 0
	for _, h := range t.Prog.Headers {
		block := false
		for _, f := range h.Type.Fields {
			if f.VL {
				continue
			}
			p := t.Layout.Field(bmv2json.FieldRef{Header: h, Field: f})
			switch {
			case !changed[p.Off] || !live.has(p.Off):
			case t.blocks[h]:
				block = true
			default:
				u.keep = append(u.keep, span{p.Off, p.Size})
				room += p.Size
			}
		}
		if block {
			if !t.asReceived(h, first, order) {
				return false
			}
			u.reload = append(u.reload, h)
		}
	}
	if t.lateClock {
		u.keep = append(u.keep, span{phvAsked, 8})
		room += 8
	}
	return room <= mostUndone
}

// asReceived reports whether a header's fields are those of the frame, or 0, wherever a packet
// comes to a step.
func (t *finder) asReceived(h *bmv2json.Header, at *step, order []*step) bool {
	before := make([]bool, len(order))
	before[at.order] = true
	fields := t.fieldsOf(h)
	for i, s := range slices.Backward(order) {
		for _, n := range s.next {
			before[i] = before[i] || n.order < len(order) && order[n.order] == n && before[n.order]
		}
		if !before[i] || s == at {
			continue
		}
		if s.kind == stepTable { // which itself changes nothing
			continue
		}
		for _, off := range t.changedBy(s) {
			if off == ir.EveryField || slices.Contains(fields, off) {
				return false
			}
		}
	}
	return true
}

// emitUnlocked begins to read registers without the lock, or goes to locked, where somebody has it.
// Inside is what is read.
func (t *translator) emitUnlocked(u *unlocked, inside *step, locked string) {
	begun := t.NewLabel("begun")
	if t.striped() {
		stripes := t.NewLabel("stripes")
		u.families, u.striped = inside.needs.familiesToRead()
		t.stateAddress(asm.R1, t.Mode)
		t.Load(asm.R2, asm.R1, 0, 8)
		t.Emit(asm.JNE.Imm(asm.R2, ModeOne, stripes))
		t.afterwards(func() {
			t.Bind(stripes)
			if u.striped {
				t.Emit(asm.JNE.Imm(asm.R2, ModeStripes, locked))
				t.noteVersions(u, inside, locked)
				t.Jump(begun)
			}
			t.Jump(locked)
		})
	}
	t.stateAddress(asm.R1, t.Lock)
	t.Load(asm.R2, asm.R1, versionOffset, 8)
	t.Store(code.PHV, phvVersion, asm.R2, 8)
	t.Emit(asm.And.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, locked))
	t.Bind(begun)
	at := t.undo
	for _, s := range u.keep {
		t.copySpan(at, s.off, s.size)
		at += s.size
	}
}

// emitValidate goes to changed if registers have been written since, or if the packet's epoch is
// over.
func (t *translator) emitValidate(u *unlocked, changed string) {
	if t.Overtaken {
		t.Jump(changed)
		return
	}
	same, stripes := t.NewLabel("same"), t.NewLabel("stripes")
	t.Load(asm.R3, code.PHV, phvVersion, 8)
	if u.striped {
		t.Emit(asm.JEq.Imm(asm.R3, byStripes, stripes))
		t.afterwards(func() {
			t.Bind(stripes)
			for _, f := range u.families {
				t.stripeAddress(code.PHV, f, "")
				t.Load(asm.R2, asm.R1, versionOffset, 8)
				t.Load(asm.R3, code.PHV, t.heldVersion(f), 8)
				t.Emit(asm.JNE.Reg(asm.R2, asm.R3, changed))
			}
			t.Jump(same)
		})
	}
	t.stateAddress(asm.R1, t.Lock)
	t.Load(asm.R2, asm.R1, versionOffset, 8)
	t.Emit(asm.JNE.Reg(asm.R2, asm.R3, changed))
	t.Bind(same)
	t.stateAddress(asm.R1, t.Epoch)
	t.Load(asm.R2, asm.R1, OldestEpoch, 8)
	t.Load(asm.R3, code.PHV, phvEpoch, 8)
	t.Emit(asm.JGT.Reg(asm.R2, asm.R3, changed))
}

// byStripes is the version of who reads by stripes: none that the one lock has while nobody writes.
const byStripes = 1

// noteVersions notes the versions of the stripes that a packet reads, or goes to locked, where
// somebody has one.
func (t *translator) noteVersions(u *unlocked, inside *step, locked string) {
	t.StoreConstant(code.PHV, phvVersion, byStripes, 8)
	t.Facts, t.Params, t.Constants = inside.facts, nil, nil
	for _, f := range u.families {
		t.findStripe(f, inside.needs.of[f].base, locked)
		t.stateAddress(asm.R3, t.families[f].stripes)
		t.Emit(asm.Add.Reg(asm.R3, asm.R1))
		t.Load(asm.R2, asm.R3, versionOffset, 8)
		t.Store(code.PHV, t.heldVersion(f), asm.R2, 8)
		t.Emit(asm.And.Imm(asm.R2, 1), asm.JNE.Imm(asm.R2, 0, locked))
	}
}

// spoil changes what a packet has read from a register, which it then finds out (Overtaken).
func (t *translator) spoil(q *bmv2json.Primitive) {
	p := t.Layout.Field(q.Args[0].Field)
	at, size := p.Off, p.Size
	if ir.Wide(p.Width) { // big-endian
		at, size = p.Off+p.Size-1, 1
	}
	t.Load(asm.R1, code.PHV, at, size)
	t.Emit(asm.Xor.Imm(asm.R1, int32(uint64(q.Args[1].Register.Index+1)&ir.Ones(min(p.Width, 8)))))
	t.Store(code.PHV, at, asm.R1, size)
}

// restoreKept makes what a packet has kept what it was when it began to read.
func (t *translator) restoreKept(u *unlocked) {
	at := t.undo
	for _, s := range u.keep {
		t.copySpan(s.off, at, s.size)
		at += s.size
	}
}

// copySpan copies within the PHV what need not lie at a word's border.
func (t *translator) copySpan(to, from, size int) {
	for size > 0 {
		n := 8
		for n > size {
			n /= 2
		}
		t.Load(asm.R1, code.PHV, from, n)
		t.Store(code.PHV, to, asm.R1, n)
		to, from, size = to+n, from+n, size-n
	}
}
