package vm

import (
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/expression"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/wideint"
	"github.com/netcraq/netcraq/switch/interval"
)

// primitive creates the steps of a primitive. do is the primitive's compiled form.
func (l *lowering) primitive(p *bmv2json.Primitive, do expression.Statement, next *step) *step {
	l.used = 0
	var s *step
	switch p.Op {
	case "no_op":
		return next
	case "assign", "modify_field":
		s = l.assign(p.Args[0], p.Args[1], next)
	case "mark_to_drop", "drop":
		s = next
		for _, f := range []packet.Field{l.c.MulticastGroup, l.c.EgressSpec} {
			v := uint64(0)
			if f == l.c.EgressSpec {
				v = uint64(l.c.DropPort)
			}
			if f.Mask != 0 {
				s = &step{op: opSet, a: uint16(f.Lane), k: v & f.Mask, next: s}
			}
		}
	case "count":
		s = l.withLane(p.Args[1], 64, func(lane int) *step {
			return &step{op: opCount, a: uint16(lane), k: uint64(p.Args[0].Counter.Index), next: next}
		})
	case "register_read":
		s = l.registerRead(p, next)
	case "register_write":
		s = l.registerWrite(p, next)
	}
	if s == nil {
		return &step{op: opDo, do: do, effects: l.effectsOf(p), next: next}
	}
	return s
}

// plainLane returns the lane of a destination of at most 64 bits that has a fixed lane.
func (l *lowering) plainLane(e *bmv2json.Expr) (lane int, mask uint64, ok bool) {
	if e.Op != bmv2json.OpField || e.Field.IsValidity() || e.Field.Field.VL || e.Width > 64 {
		return 0, 0, false
	}
	return l.c.PlaceOf(e).Lane, wideint.TopMask(e.Width), true
}

// assign creates the steps of dst = src. It returns nil if that needs a closure.
func (l *lowering) assign(dst, src *bmv2json.Expr, next *step) *step {
	if src.Type == bmv2json.TypeBool {
		src = &bmv2json.Expr{Op: bmv2json.OpBoolToData, Right: src, Path: src.Path}
	}
	lane, mask, ok := l.plainLane(dst)
	if !ok {
		return l.assignWide(dst, src, next)
	}
	if src.Op == bmv2json.OpConst {
		return &step{op: opSet, a: uint16(lane), k: interval.Word(src.Const, 0) & mask, next: next}
	}
	if from, ok := l.c.FixedLane(src); ok && src.Width > dst.Width {
		return &step{op: opMask, a: uint16(lane), b: uint32(from), k: mask, next: next}
	}
	if interval.OfExpr(src).Within(interval.Unsigned(dst.Width)) {
		return l.store(lane, src, 64, next)
	}
	masked := &step{op: opMask, a: uint16(lane), b: uint32(lane), k: mask, next: next}
	return l.store(lane, src, dst.Width, masked)
}

// assignWide does what assign does, for a field of several lanes. The source is another such field,
// or a constant.
func (l *lowering) assignWide(dst, src *bmv2json.Expr, next *step) *step {
	n := wideint.Lanes(dst.Width)
	if dst.Op != bmv2json.OpField || dst.Field.IsValidity() || dst.Field.Field.VL || n > mostLanes {
		return nil
	}
	lane := l.c.PlaceOf(dst).Lane
	switch {
	case src.Op == bmv2json.OpConst:
		for i := range n {
			k := interval.Word(src.Const, i)
			if i == n-1 {
				k &= wideint.TopMask(dst.Width)
			}
			next = &step{op: opSet, a: uint16(lane + i), k: k, next: next}
		}
		return next
	case src.Op == bmv2json.OpField && !src.Field.IsValidity() && src.Width == dst.Width:
		from := l.c.PlaceOf(src).Lane
		for i := range n {
			next = &step{op: opCopy, a: uint16(lane + i), b: uint32(from + i), next: next}
		}
		return next
	}
	return nil
}

func (l *lowering) registerRead(p *bmv2json.Primitive, next *step) *step {
	a := l.c.Registers[p.Args[1].Register.Index]
	lane, _, ok := l.plainLane(p.Args[0])
	if !ok || a.Lanes != 1 || a.Signed || a.Width > p.Args[0].Width {
		return nil
	}
	return l.withLane(p.Args[2], 64, func(i int) *step {
		return &step{op: opRead, a: uint16(lane), b: uint32(i),
			k: uint64(p.Args[1].Register.Index), next: next}
	})
}

func (l *lowering) registerWrite(p *bmv2json.Primitive, next *step) *step {
	r := p.Args[0].Register
	a, src := l.c.Registers[r.Index], p.Args[2]
	if a.Lanes != 1 || !interval.OfExpr(src).Within(interval.Unsigned(a.Width)) {
		return nil
	}
	return l.withLane(p.Args[1], 64, func(i int) *step {
		return l.withLane(src, 64, func(v int) *step {
			return &step{op: opWrite, a: uint16(v), b: uint32(i), k: uint64(r.Index), next: next}
		})
	})
}

// mostLanes is the largest number of lanes that an assignment copies lane by lane.
const mostLanes = 4
