package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	code "github.com/netcraq/netcraq/switch/ebpf/asm"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Paths. A program decides again and again on what it has decided before: p4c puts what a packet is
// into metadata, and each control asks anew. So the ingress pipeline of a program that is made anew
// behind the running one is not written node by node, but by what is known where a packet comes
// along: a node that is reached knowing different things becomes as many steps, in each of which a
// decision that is known already takes nothing, and what is stored and never asked again is not
// stored. It is what compilers call jump threading, and partial evaluation.
//
//	node      op == READ? ──▶ kind = 1 ─┐             ┌─▶ kind == 1? ─▶ …
//	          else        ──▶ kind = 2 ─┴─▶ table ────┘
//	steps     op == READ? ──▶ table ──▶ … (what is behind kind == 1)
//	          else        ──▶ table ──▶ … (what is behind kind == 2)
//
// What is known (ir.Facts) are values of fields, from assignments, conditions and the parameters of
// tables with few entries (known.go), and that metadata begins as 0. Steps must not be too many: a
// node that is reached knowing many different things is written for what is asked in several
// conditions behind it, then for what some of them have in common. To know less is never wrong.

// Bounds of the steps that one place in a program becomes, and of all.
const (
	mostExact    = 2      // for all that is known
	mostVariants = 12     // for what is asked behind the place in at least oftenAsked conditions
	mostSteps    = 12_000 // of some three instructions
	farthestJump = 32_767 // instructions
	oftenAsked   = 3
)

type stepKind int

const (
	stepEnd stepKind = iota
	// a condition without "and", "or" and "not": next is where it holds, and where not
	stepTest
	stepSet       // a field gets a constant
	stepPrimitive // next is one
	stepTable
	stepUnlocked // next is what reads registers without the lock, and what does with it
	stepValidate // next is where registers were not written meanwhile, and where they were
	stepUndo
)

// step is something that a packet comes by, knowing facts.
type step struct {
	kind  stepKind
	facts ir.Facts
	next  []*step

	expr      *bmv2json.Expr
	dst       ir.Place // stepSet
	value     uint64
	primitive *bmv2json.Primitive
	path      string
	params    *ir.Params // of the action
	constants [][]byte   // instead
	table     *outcomes
	undo      *unlocked // stepUnlocked, stepUndo
	spoilt    bool      // what it reads is not what there is: for tests

	reads []int // fields, or ir.EveryField
	sets  int   // the one field that it always sets; -1 where there is none
	dead  bool  // what it sets nobody reads

	order  int // its place
	inside bool
	needs  *needs // what registers are taken from here on; nil outside
	label  string
}

// outcomes are where a packet goes on behind a table.
type outcomes struct {
	plan    *TablePlan
	hit     []*step          // by action
	known   map[uint64]*step // by the word of an entry whose parameters are constants
	missed  []*step          // by action of the default entry; nil where that is as hit
	without *step            // there is no default entry
	always  *step            // the default entry is the program's own
}

// paths makes steps.
type paths struct {
	t        *finder
	name     string
	end      *step
	memo     map[string]*step
	variants map[string][]ir.Facts
	asked    map[bmv2json.Node]map[int]bool // fields that it and the nodes behind it may ask
	every    map[bmv2json.Node]bool         // ... any
	often    map[bmv2json.Node]map[int]bool // ... in several conditions
	reads    map[int]bool                   // of what is being translated
	steps    int
}

// tooManySteps ends the making of steps.
type tooManySteps struct{}

// finder finds the steps of a program.
type finder struct {
	*Plan
	ir.Writer
	PathOptions
	ranges map[int]number // what metadata may be, by where it is
}

// PathOptions are what steps depend on besides the program.
type PathOptions struct {
	Variants  int           // how often a place becomes steps for what is known there, at most
	Known     map[int]Known // by Table.Index: what tables hold
	Unlocked  bool          // packets take no lock
	Overtaken bool          // see Settings
}

// findPaths finds the steps of a program's pipeline.
func findPaths(p *Plan, name string, o PathOptions) (order []*step, live *fieldSet) {
	t := &finder{Plan: p, Writer: ir.NewWriter(p.Layout, p.scratch, p.scratchEnd), PathOptions: o,
		ranges: map[int]number{}}
	t.Function = code.New("paths")
	return t.findPaths(name)
}

// findPaths makes the steps of a pipeline, in an order in which each is before those that follow
// it; nil where there are too many, or the pipeline has something that steps cannot have. Live are
// the fields that are asked before they are set.
func (t *finder) findPaths(name string) (order []*step, live *fieldSet) {
	q := t.Prog.Pipeline(name)
	if q == nil {
		return nil, nil
	}
	for _, n := range nodes(q) {
		for _, a := range actionsOf(n) {
			for _, p := range a.Primitives {
				if p.Op == "assert" || p.Op == "assume" { // they end the pipeline from inside
					return nil, nil
				}
			}
		}
	}
	p := &paths{t: t, name: name, end: &step{kind: stepEnd, sets: -1}, memo: map[string]*step{},
		variants: map[string][]ir.Facts{}, reads: map[int]bool{}}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(tooManySteps); !ok {
				panic(r)
			}
			order, live = nil, nil
		}
		t.Facts, t.OnRead, t.Params, t.Constants = nil, nil, nil, nil
	}()
	t.OnRead = func(off int) { p.reads[off] = true }
	p.findAsked(nodes(q))
	root := p.at(q.Init, t.factsAtStart())
	order = inOrder(root)
	behind := t.liveBehind(q)
	lives := t.findDead(order, behind)
	if !t.Unlocked {
		findInside(order)
		t.findNeeds(order)
		if t.readUnlocked(order, lives) {
			order = inOrder(root)
			lives = t.findDead(order, behind)
		}
	}
	return order, lives[0]
}

// factsAtStart is what is known where ingress begins: metadata of the program's own is 0, but for
// what the parser sets and packets bring that come back.
func (t *finder) factsAtStart() ir.Facts {
	f := ir.Facts{}
	if t.Requests.Reinjects() {
		return f
	}
	parsed := t.parserTouches()
	for _, h := range t.Prog.Headers {
		if !h.Metadata || slices.Contains(standardHeaders, h.Name) {
			continue
		}
		for _, field := range h.Type.Fields {
			if field.VL || ir.Wide(field.Width) {
				continue
			}
			if off := t.Layout.Field(bmv2json.FieldRef{Header: h, Field: field}).Off; !parsed(off) {
				f[off] = ir.Fact{Known: true}
			}
		}
	}
	return f
}

// parserTouches reports for fields whether the parser may read or set them.
func (p *Plan) parserTouches() func(off int) bool {
	set := map[int]bool{}
	see := func(e *bmv2json.Expr) {
		switch {
		case e.Op == bmv2json.OpField && !e.Field.IsValidity():
			set[p.Layout.Field(e.Field).Off] = true
		case e.Op == bmv2json.OpHeader:
			for _, off := range p.fieldsOf(e.Header) {
				set[off] = true
			}
		}
	}
	for _, q := range p.Prog.Parsers {
		for _, s := range q.States {
			for _, k := range s.Key {
				walk(k, see)
			}
			for _, o := range s.Ops {
				if !o.Dest.IsZero() {
					see(&bmv2json.Expr{Op: bmv2json.OpField, Field: o.Dest})
				}
				for _, e := range []*bmv2json.Expr{o.Value, o.Cond, o.Length} {
					walk(e, see)
				}
				if o.Primitive != nil {
					for _, e := range o.Primitive.Args {
						walk(e, see)
					}
				}
			}
		}
	}
	return func(off int) bool { return set[off] }
}

// fieldsOf are where a header's fields are, and its validity.
func (p *Plan) fieldsOf(h *bmv2json.Header) (offs []int) {
	for _, f := range h.Type.Fields {
		offs = append(offs, p.Layout.Field(bmv2json.FieldRef{Header: h, Field: f}).Off)
	}
	return append(offs, p.Layout.Validity(h))
}

// findAsked finds for each node which fields may be asked from there on: what is known of others
// makes no difference.
func (p *paths) findAsked(order []bmv2json.Node) {
	p.asked, p.every = map[bmv2json.Node]map[int]bool{}, map[bmv2json.Node]bool{}
	p.often = map[bmv2json.Node]map[int]bool{}
	asking := map[int]int{}                              // conditions behind, by field
	writes := map[bmv2json.Node]map[bmv2json.Node]bool{} // the nodes behind that write registers
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		set := map[int]bool{}
		add := func(offs []int) {
			for _, off := range offs {
				set[off] = true
			}
		}
		switch n := n.(type) {
		case *bmv2json.Conditional:
			add(p.t.fieldsIn(n.Expr))
		case *bmv2json.Table:
			add(p.t.keyFields(n))
		}
		for _, a := range actionsOf(n) {
			for _, q := range a.Primitives {
				add(p.t.readBy(q))
			}
		}
		for _, s := range successors(n) {
			for off := range p.asked[s] {
				set[off] = true
			}
		}
		p.asked[n] = set
		writes[n] = map[bmv2json.Node]bool{}
		if writesRegister(n) {
			writes[n][n] = true
		}
		for _, s := range successors(n) {
			maps.Copy(writes[n], writes[s])
		}
		if c, ok := n.(*bmv2json.Conditional); ok {
			weight := 1
			if !maps.Equal(writes[c.True], writes[c.False]) {
				weight = oftenAsked // whether a packet only reads registers is worth knowing
			}
			for _, off := range slices.Compact(slices.Sorted(slices.Values(p.t.fieldsIn(c.Expr)))) {
				asking[off] += weight
			}
		}
		p.often[n] = map[int]bool{}
		for off, times := range asking {
			p.often[n][off] = times >= oftenAsked
		}
		p.every[n] = set[ir.EveryField]
	}
}

func (t *finder) keyFields(n *bmv2json.Table) (offs []int) {
	for _, k := range n.Keys {
		if !k.Field.IsValidity() {
			offs = append(offs, t.Layout.Field(k.Field).Off)
		}
		if !k.Field.Header.Metadata || k.Field.IsValidity() {
			offs = append(offs, t.Layout.Validity(k.Field.Header))
		}
	}
	return offs
}

// fieldsIn are the fields that an expression is made of.
func (t *finder) fieldsIn(list ...*bmv2json.Expr) (offs []int) {
	for _, e := range list {
		walk(e, func(x *bmv2json.Expr) {
			switch x.Op {
			case bmv2json.OpField:
				if x.Field.IsValidity() {
					offs = append(offs, t.Layout.Validity(x.Field.Header))
				} else {
					offs = append(offs, t.Layout.Field(x.Field).Off)
				}
			case bmv2json.OpHeader:
				offs = append(offs, t.fieldsOf(x.Header)...)
			case bmv2json.OpConst, bmv2json.OpBool, bmv2json.OpLocal, bmv2json.OpString,
				bmv2json.OpVector,
				bmv2json.OpCounterArray, bmv2json.OpMeterArray, bmv2json.OpRegisterArray,
				bmv2json.OpAdd, bmv2json.OpSub, bmv2json.OpMul, bmv2json.OpDiv, bmv2json.OpMod,
				bmv2json.OpShl, bmv2json.OpShr, bmv2json.OpBitAnd, bmv2json.OpBitOr,
				bmv2json.OpBitXor, bmv2json.OpBitNot, bmv2json.OpTwoCompMod, bmv2json.OpSatCast,
				bmv2json.OpUsatCast, bmv2json.OpTernary, bmv2json.OpBoolToData, bmv2json.OpEq,
				bmv2json.OpNe, bmv2json.OpLt, bmv2json.OpLe, bmv2json.OpGt, bmv2json.OpGe,
				bmv2json.OpAnd, bmv2json.OpOr, bmv2json.OpNot, bmv2json.OpDataToBool,
				bmv2json.OpValid:
			default:
				offs = append(offs, ir.EveryField)
			}
		})
	}
	return offs
}

// readBy are the fields that a primitive reads, or may leave as they are.
func (t *finder) readBy(q *bmv2json.Primitive) []int {
	switch q.Op {
	case "assign", "modify_field":
		if q.Args[0].Op == bmv2json.OpField {
			return t.fieldsIn(q.Args[1:]...)
		}
	case "register_read", "register_write", "count", "execute_meter", "_jump_if_zero", "_jump",
		"truncate", "add_header", "add_header_fast", "remove_header", "assign_header",
		"copy_header", "log_msg":
		return t.fieldsIn(q.Args...)
	case "mark_to_drop", "drop", "no_op", "exit":
		return nil
	}
	return []int{ir.EveryField}
}

// behind is what is known behind a primitive.
func (t *finder) behind(q *bmv2json.Primitive, f ir.Facts) ir.Facts {
	field := func(e *bmv2json.Expr) ir.Facts {
		if e.Op == bmv2json.OpField && !e.Field.IsValidity() {
			return f.Without(t.Layout.Field(e.Field).Off)
		}
		return nil
	}
	header := func(e *bmv2json.Expr) (*bmv2json.Header, bool) {
		return e.Header, e.Op == bmv2json.OpHeader && e.Header.Stack == nil &&
			e.Header.Union == nil && !e.Header.Metadata
	}
	switch q.Op {
	case "assign", "modify_field", "register_read", "modify_field_with_hash_based_offset",
		"modify_field_rng_uniform":
		return field(q.Args[0])
	case "execute_meter":
		return field(q.Args[2])
	case "mark_to_drop", "drop":
		for _, r := range []bmv2json.FieldRef{t.std.egressSpec, t.std.mcastGroup} {
			t.fieldIf(r, func(p ir.Place) { f = f.Without(p.Off) })
		}
		return f
	case "add_header", "add_header_fast", "remove_header":
		if h, ok := header(q.Args[0]); ok {
			valid := uint64(1)
			if q.Op == "remove_header" {
				valid = 0
			}
			return f.Without(t.fieldsOf(h)...).With(t.Layout.Validity(h), valid)
		}
	case "assign_header", "copy_header":
		if h, ok := header(q.Args[0]); ok {
			return f.Without(t.fieldsOf(h)...)
		}
	case "register_write", "count", "no_op", "log_msg", "truncate", "_jump", "_jump_if_zero":
		return f
	}
	return nil // anything may have changed
}

// new makes a step.
func (p *paths) new(s step) *step {
	if p.steps++; p.steps > mostSteps {
		panic(tooManySteps{})
	}
	s.sets = max(s.sets, -1)
	return &s
}

// once makes the steps of a place where a node's part begins, unless it was there with the same
// facts before.
func (p *paths) once(place string, n bmv2json.Node, f ir.Facts, make func(ir.Facts) *step) *step {
	if !p.every[n] {
		f = f.Only(func(off int) bool { return p.asked[n][off] })
	}
	key := place + " " + f.Key()
	if s, ok := p.memo[key]; ok {
		return s
	}
	if len(p.variants[place]) >= mostExact {
		if g := f.Only(func(off int) bool { return p.often[n][off] }); len(g) < len(f) {
			return p.once(place, n, g, make)
		}
	}
	if len(p.variants[place]) >= p.t.Variants {
		if g := p.nearest(place, f); g.Key() != f.Key() {
			return p.once(place, n, g, make)
		}
	}
	p.variants[place] = append(p.variants[place], f)
	s := make(f)
	p.memo[key] = s
	return s
}

// nearest is less than f: what it has in common with what is most like it of what a place was
// reached with before. Where that would be too many again, it is one of those, or what all have in
// common.
func (p *paths) nearest(place string, f ir.Facts) (best ir.Facts) {
	before := p.variants[place]
	full := len(before) >= 2*p.t.Variants // with those for what others have in common
	for _, g := range before {
		if full && !f.Implies(g) {
			continue
		}
		if g = f.Join(g); best == nil || len(g) > len(best) {
			best = g
		}
	}
	if best == nil {
		best = f
		for _, g := range before {
			best = best.Join(g)
		}
	}
	return best
}

// at are the steps from a node on.
func (p *paths) at(n bmv2json.Node, f ir.Facts) *step {
	if n == nil {
		return p.end
	}
	return p.once(n.NodeName(), n, f, func(f ir.Facts) *step {
		var s *step
		switch n := n.(type) {
		case *bmv2json.Conditional:
			s = p.branch(where{path: n.Path}, n.Expr, f,
				func(f ir.Facts) *step { return p.at(n.True, f) },
				func(f ir.Facts) *step { return p.at(n.False, f) })
		case *bmv2json.ActionCall:
			s = p.action(action{node: n, code: n.Action, constants: [][]byte{}, next: n.Next}, 0, f)
		case *bmv2json.Table:
			s = p.lookup(n, f)
		}
		return s
	})
}

// computed calls what makes values where f is known, and returns the fields that they are made of.
func (p *paths) computed(w where, f ir.Facts, values func()) (reads []int) {
	clear(p.reads)
	p.t.Where, p.t.Facts, p.t.Params, p.t.Constants = w.path, f, w.params, w.constants
	values()
	for off := range p.reads {
		reads = append(reads, off)
	}
	slices.Sort(reads)
	return reads
}

// inSteps reports whether an expression is computed in steps of wide arithmetic, whose values are
// not known before the statement begins.
func inSteps(e *bmv2json.Expr) (found bool) {
	ir.WideSteps(ir.NewOperand(e, 1), func(ir.Operand) { found = true })
	return found
}

// where is where an expression stands, and what the parameters of its action are.
type where struct {
	path      string
	params    *ir.Params
	constants [][]byte
}

// branch are the steps of a condition: one for each comparison that is not known.
func (p *paths) branch(w where, e *bmv2json.Expr, f ir.Facts, yes, no func(ir.Facts) *step) *step {
	switch {
	case e.Op == bmv2json.OpAnd:
		return p.branch(w, e.Left, f, func(f ir.Facts) *step {
			return p.branch(w, e.Right, f, yes, no)
		}, no)
	case e.Op == bmv2json.OpOr:
		return p.branch(w, e.Left, f, yes, func(f ir.Facts) *step {
			return p.branch(w, e.Right, f, yes, no)
		})
	case e.Op == bmv2json.OpNot:
		return p.branch(w, e.Right, f, no, yes)
	}
	s := step{kind: stepTest, path: w.path, expr: e, facts: f, params: w.params,
		constants: w.constants, sets: -1}
	if inSteps(e) {
		s.reads, s.next = p.t.fieldsIn(e), []*step{yes(f), no(f)}
		return p.new(s)
	}
	var c *ir.Condition
	s.reads = p.computed(w, f, func() { c = p.t.Truth(e) })
	if holds, known := c.Holds(); known {
		if holds {
			return yes(f)
		}
		return no(f)
	}
	s.next = []*step{yes(f.Assume(c, true)), no(f.Assume(c, false))}
	return p.new(s)
}

// action is an action that a node runs, and what its parameters are.
type action struct {
	node      bmv2json.Node
	code      *bmv2json.Action
	params    *ir.Params
	constants [][]byte
	next      bmv2json.Node
}

// action are the steps from an action's primitive on.
func (p *paths) action(a action, i int, f ir.Facts) *step {
	if i >= len(a.code.Primitives) {
		return p.at(a.next, f)
	}
	// The node behind is not the same for a hit and a miss.
	next := "end"
	if a.next != nil {
		next = a.next.NodeName()
	}
	place := fmt.Sprintf("%s %d.%d %p %x %s", a.node.NodeName(), a.code.Index, i, a.params,
		a.constants, next)
	return p.once(place, a.node, f, func(f ir.Facts) *step { return p.primitive(a, i, f) })
}

func (p *paths) primitive(a action, i int, f ir.Facts) *step {
	t, q := p.t, a.code.Primitives[i]
	checkArgs(q)
	on := func(f ir.Facts) *step { return p.action(a, i+1, f) }
	s := step{kind: stepPrimitive, path: q.Path, primitive: q, facts: f, params: a.params,
		constants: a.constants, sets: -1}
	switch q.Op {
	case "exit":
		return p.end
	case "_jump", "_jump_if_zero":
		to, ok := ir.ConstantOf(q.Args[len(q.Args)-1], int64(len(a.code.Primitives)+1))
		if !ok || to <= i {
			ir.Refuse(q.Path, "a jump backwards or to nowhere")
		}
		there := func(f ir.Facts) *step { return p.action(a, to, f) }
		if q.Op == "_jump" {
			return there(f)
		}
		return p.branch(where{q.Path, a.params, a.constants}, q.Args[0], f, on, there)
	case "no_op":
		return on(f)
	case "assign", "modify_field":
		dst := q.Args[0]
		if dst.Op != bmv2json.OpField || dst.Field.IsValidity() || dst.Field.Field.VL {
			break
		}
		if t.unread(dst) {
			return on(f)
		}
		place := t.Layout.Field(dst.Field)
		if s.sets = place.Off; ir.Wide(dst.Width) {
			break
		}
		if cond, ok := assignedCondition(q); ok && !inSteps(cond) {
			set := func(v uint64) func(ir.Facts) *step {
				return func(f ir.Facts) *step {
					return p.new(step{kind: stepSet, dst: place, value: v, sets: place.Off,
						next: []*step{on(f.With(place.Off, v))}})
				}
			}
			return p.branch(where{q.Path, a.params, a.constants}, cond, f, set(1), set(0))
		}
		if src := q.Args[1]; !ir.WideExpr(src) && !inSteps(src) {
			var v *ir.Value
			s.reads = p.computed(where{q.Path, a.params, a.constants}, f, func() {
				v = ir.And(t.Word(src, 0), ir.Const(ir.Ones(place.Width)))
			})
			if k, ok := v.Constant(); ok {
				s.kind, s.dst, s.value = stepSet, place, k
				s.next = []*step{on(f.With(place.Off, k))}
			} else {
				s.next = []*step{on(f.Without(place.Off))}
			}
			return p.new(s)
		}
	}
	s.reads = t.readBy(q)
	s.next = []*step{on(t.behind(q, f))}
	return p.new(s)
}

// mostConstants is how many entries a table may have for their parameters to be constants: what is
// behind it is written for each.
const mostConstants = 2

// lookup are the steps from a table on.
func (p *paths) lookup(n *bmv2json.Table, f ir.Facts) *step {
	t := p.t
	tp := t.Tables[n.Index]
	o := &outcomes{plan: tp, known: map[uint64]*step{}}
	s := step{kind: stepTable, path: n.Path, facts: f, table: o, sets: -1}
	s.reads = p.computed(where{path: n.Path}, f, func() {
		for i := range n.Keys {
			for w := range ir.WordsOf(n.Keys[i].Width) {
				t.KeyWord(&n.Keys[i], w)
			}
		}
	})
	if m := n.DirectMeter; m != nil {
		f = f.Without(t.Layout.Field(m.Result).Off)
	}
	before := f
	run := func(i int, hit bool, constants [][]byte) *step {
		a := action{node: n, code: n.Actions[i], constants: constants}
		switch {
		case !n.HitMiss:
			a.next = n.Next[i]
		case hit:
			a.next = n.Hit
		default:
			a.next = n.Miss
		}
		if constants == nil {
			a.params = &tp.Params[i]
		}
		return p.action(a, 0, f)
	}
	known := t.Known[n.Index].Entries
	if len(known) > mostConstants || n.WithCounters || n.SupportTimeout ||
		n.DirectMeter != nil {
		known = nil
	}
	for word, e := range known {
		if e.Params == nil {
			e.Params = [][]byte{}
		}
		o.known[word] = run(int(word&0xffff)-1, true, e.Params)
		s.next = append(s.next, o.known[word])
	}
	if tp.Kind != lookupNone {
		if known != nil {
			f = nil // only while the table holds something else than what is known
		}
		for i := range n.Actions {
			o.hit = append(o.hit, run(i, true, nil))
		}
		s.next = append(s.next, o.hit...)
		f = before
	}
	if tp.constantDefault() {
		a := action{node: n, code: n.Default.Action, constants: n.Default.Params,
			next: n.BaseDefaultNext}
		if a.constants == nil {
			a.constants = [][]byte{}
		}
		if n.HitMiss {
			a.next = n.Miss
		} else if n.Default.ActionIndex >= 0 {
			a.next = n.Next[n.Default.ActionIndex]
		}
		o.always = p.action(a, 0, f)
		if tp.Kind == lookupNone {
			return o.always
		}
		s.next = append(s.next, o.always)
	} else {
		without := n.BaseDefaultNext
		if n.HitMiss {
			without = n.Miss
		}
		o.without = p.at(without, f)
		for i := range n.Actions {
			o.missed = append(o.missed, run(i, false, nil))
		}
		s.next = append(append(s.next, o.without), o.missed...)
	}
	return p.new(s)
}

// inOrder lists the steps from a first one on, each before those that follow it.
func inOrder(first *step) (order []*step) {
	seen := map[*step]bool{}
	var visit func(*step)
	visit = func(s *step) {
		if seen[s] {
			return
		}
		seen[s] = true
		for _, n := range slices.Backward(s.next) {
			visit(n)
		}
		order = append(order, s)
	}
	visit(first)
	slices.Reverse(order)
	for i, s := range order {
		s.order = i
	}
	return order
}

// findInside finds the steps between the first one that touches a register and the last, on each
// way.
func findInside(order []*step) {
	touches := func(s *step) bool {
		return s.kind == stepPrimitive &&
			(s.primitive.Op == "register_read" || s.primitive.Op == "register_write")
	}
	before, after := make([]bool, len(order)), make([]bool, len(order))
	for i, s := range order {
		before[i] = before[i] || touches(s)
		for _, n := range s.next {
			before[n.order] = before[n.order] || before[i]
		}
	}
	for i, s := range slices.Backward(order) {
		after[i] = touches(s)
		for _, n := range s.next {
			after[i] = after[i] || after[n.order]
		}
		s.inside = before[i] && after[i]
	}
}

// fieldSet is a set of fields, by where they are.
type fieldSet struct{ bits []uint64 }

func newFieldSet(size int, full bool) *fieldSet {
	s := &fieldSet{make([]uint64, size/64+1)}
	if full {
		s.fill()
	}
	return s
}

func (s *fieldSet) fill() {
	for i := range s.bits {
		s.bits[i] = ^uint64(0)
	}
}

func (s *fieldSet) has(off int) bool { return s.bits[off/64]>>(off%64)&1 == 1 }
func (s *fieldSet) remove(off int)   { s.bits[off/64] &^= 1 << (off % 64) }

// add adds a field, or all of them.
func (s *fieldSet) add(off int) {
	if off == ir.EveryField {
		s.fill()
		return
	}
	s.bits[off/64] |= 1 << (off % 64)
}

func (s *fieldSet) addAll(other *fieldSet) {
	for i, b := range other.bits {
		s.bits[i] |= b
	}
}

// liveBehind are the fields that may be read behind a pipeline: of packets' headers, of the
// standard metadata, and what others than the pipeline read.
func (t *finder) liveBehind(q *bmv2json.Pipeline) *fieldSet {
	s, outside := newFieldSet(t.Layout.End, true), fieldsRead(t.Prog, q)
	for _, h := range t.Prog.Headers {
		if !h.Metadata || slices.Contains(standardHeaders, h.Name) {
			continue
		}
		for _, f := range h.Type.Fields {
			if r := (bmv2json.FieldRef{Header: h, Field: f}); !outside.has(r) {
				s.remove(t.Layout.Field(r).Off)
			}
		}
	}
	return s
}

// findDead finds what is set and not read by anything that follows, and returns what is read from
// each step on before it is set.
func (t *finder) findDead(order []*step, behind *fieldSet) []*fieldSet {
	live := make([]*fieldSet, len(order))
	for i, s := range slices.Backward(order) {
		if live[i] = newFieldSet(t.Layout.End, false); s.kind == stepEnd {
			live[i].addAll(behind)
		}
		for _, n := range s.next {
			live[i].addAll(live[n.order])
		}
		if s.sets >= 0 {
			if s.dead = !live[i].has(s.sets); s.dead {
				continue
			}
			live[i].remove(s.sets)
		}
		for _, off := range s.reads {
			live[i].add(off)
		}
	}
	return live
}
