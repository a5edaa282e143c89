package paths

import (
	"fmt"
	"maps"
	"slices"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/affine"
	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// Paths. A program repeats decisions: p4c stores a packet's kind in metadata, and each control
// tests the kind again. So when the ingress pipeline of a running program is recompiled, it is not
// written node by node. It is written by the facts that are known about a packet at each place. A
// node that packets reach with different facts becomes several steps. In each step, known decisions
// cost nothing, and values that are never read again are not stored. Compilers call these
// techniques jump threading and partial evaluation.
//
//	node      op == READ? ──▶ kind = 1 ─┐             ┌─▶ kind == 1? ─▶ …
//	          else        ──▶ kind = 2 ─┴─▶ table ────┘
//	steps     op == READ? ──▶ table ──▶ … (what follows kind == 1)
//	          else        ──▶ table ──▶ … (what follows kind == 2)
//
// The facts (ir.Facts) are values of fields. They follow from assignments, conditions and the
// parameters of tables with few entries (package known), and from the fact that metadata begins as
// 0. The number of steps is bounded. If packets reach a node with too many sets of facts, its steps
// use only the facts that several later conditions test, and then only the common part of several
// sets. Ignoring facts is always correct.

// Bounds on the number of steps for one place in a program, and for all places.
const (
	mostExact = 2 // number of steps for one place that use all facts
	// MostVariants is the number of steps for one place that use only the facts that at least
	// oftenAsked later conditions test.
	MostVariants = 12
	mostSteps    = 12_000 // total number of steps, at some three instructions per step
	FarthestJump = 32_767 // reach of a jump in instructions
	oftenAsked   = 3
)

// maker creates steps.
type maker struct {
	t        *finder
	name     string
	end      *Step
	memo     map[string]*Step
	variants map[string][]ir.Facts
	asked    map[bmv2json.Node]map[int]bool // fields that a node and the nodes after it may test
	every    map[bmv2json.Node]bool         // set if the node or a node after it may test any field
	// The fields in asked that many later conditions test.
	often map[bmv2json.Node]map[int]bool
	reads map[int]bool // fields that the code that is being translated reads
	steps int
}

// tooManySteps is the panic value that stops the creation of steps.
type tooManySteps struct{}

// finder finds the steps of a program.
type finder struct {
	*memory.Plan
	ir.Writer
	Options
	ranges map[int]affine.Form // possible values of metadata, by the field's offset
}

// Options are the inputs of Find in addition to the program.
type Options struct {
	// maximum number of steps for one place; they differ in the facts that are known there
	Variants  int
	Known     map[int]known.Table // content of tables, by Table.Index
	Unlocked  bool                // packets that only read registers take no lock
	Overtaken bool                // for tests; see emit.Settings.Overtaken
}

// Find finds the steps of one of a program's pipelines.
func Find(p *memory.Plan, name string, o Options) (order []*Step, live *FieldSet) {
	t := &finder{Plan: p, Writer: ir.NewWriter(p.Layout, p.Scratch, p.ScratchEnd), Options: o,
		ranges: map[int]affine.Form{}}
	return t.findPaths(name)
}

// findPaths returns the steps of a pipeline in topological order. It returns nil if there are too
// many steps, or if the pipeline has a construct that steps do not support. live is the set of
// fields that are read before they are set.
func (t *finder) findPaths(name string) (order []*Step, live *FieldSet) {
	q := t.Prog.Pipeline(name)
	if q == nil {
		return nil, nil
	}
	for _, n := range analysis.Nodes(q) {
		for _, a := range analysis.ActionsOf(n) {
			for _, p := range a.Primitives {
				// These primitives end the pipeline in the middle of an action.
				if p.Op == "assert" || p.Op == "assume" {
					return nil, nil
				}
			}
		}
	}
	p := &maker{t: t, name: name, end: &Step{Kind: StepEnd, sets: -1}, memo: map[string]*Step{},
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
	p.findAsked(analysis.Nodes(q))
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

// factsAtStart returns the facts at the beginning of ingress. The program's own metadata is 0,
// except for fields that the parser sets or that returning packets bring along.
func (t *finder) factsAtStart() ir.Facts {
	f := ir.Facts{}
	if t.Requests.Reinjects() {
		return f
	}
	parsed := t.ParserTouches()
	for _, h := range t.Prog.Headers {
		if !h.Metadata || slices.Contains(analysis.StandardHeaders, h.Name) {
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

// findAsked finds for each node the fields that may be tested from that node on. Facts about other
// fields make no difference.
func (p *maker) findAsked(order []bmv2json.Node) {
	p.asked, p.every = map[bmv2json.Node]map[int]bool{}, map[bmv2json.Node]bool{}
	p.often = map[bmv2json.Node]map[int]bool{}
	// number of later conditions that test a field
	asking := map[int]int{}
	// the nodes from a node on that write registers
	writes := map[bmv2json.Node]map[bmv2json.Node]bool{}
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
		for _, a := range analysis.ActionsOf(n) {
			for _, q := range a.Primitives {
				add(p.t.readBy(q))
			}
		}
		for _, s := range analysis.Successors(n) {
			for off := range p.asked[s] {
				set[off] = true
			}
		}
		p.asked[n] = set
		writes[n] = map[bmv2json.Node]bool{}
		if analysis.WritesRegister(n) {
			writes[n][n] = true
		}
		for _, s := range analysis.Successors(n) {
			maps.Copy(writes[n], writes[s])
		}
		if c, ok := n.(*bmv2json.Conditional); ok {
			weight := 1
			if !maps.Equal(writes[c.True], writes[c.False]) {
				// Facts are valuable if they tell whether a packet only reads registers.
				weight = oftenAsked
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

// new creates a step.
func (p *maker) new(s Step) *Step {
	if p.steps++; p.steps > mostSteps {
		panic(tooManySteps{})
	}
	s.sets = max(s.sets, -1)
	return &s
}

// once returns the step at which packets with the facts f arrive at a place in node n. It calls
// make to create the step, unless there is already one for the same place and facts.
func (p *maker) once(place string, n bmv2json.Node, f ir.Facts, make func(ir.Facts) *Step) *Step {
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

// nearest reduces the facts f. It returns the facts that f shares with the most similar set of
// facts with which the place was reached before. If there would still be too many variants, it
// returns the facts of an existing variant or, if none is implied by f, the facts that all have in
// common.
func (p *maker) nearest(place string, f ir.Facts) (best ir.Facts) {
	before := p.variants[place]
	full := len(before) >= 2*p.t.Variants // the limit includes the variants for common facts
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

// at returns the first of the steps that follow from a node on.
func (p *maker) at(n bmv2json.Node, f ir.Facts) *Step {
	if n == nil {
		return p.end
	}
	return p.once(n.NodeName(), n, f, func(f ir.Facts) *Step {
		var s *Step
		switch n := n.(type) {
		case *bmv2json.Conditional:
			s = p.branch(where{path: n.Path}, n.Expr, f,
				func(f ir.Facts) *Step { return p.at(n.True, f) },
				func(f ir.Facts) *Step { return p.at(n.False, f) })
		case *bmv2json.ActionCall:
			s = p.action(action{node: n, code: n.Action, constants: [][]byte{}, next: n.Next}, 0, f)
		case *bmv2json.Table:
			s = p.lookup(n, f)
		}
		return s
	})
}

// computed calls values, a function that builds values given the facts f. It returns the fields on
// which the values depend.
func (p *maker) computed(w where, f ir.Facts, values func()) (reads []int) {
	clear(p.reads)
	p.t.Where, p.t.Facts, p.t.Params, p.t.Constants = w.path, f, w.params, w.constants
	values()
	for off := range p.reads {
		reads = append(reads, off)
	}
	slices.Sort(reads)
	return reads
}

// where describes where an expression is evaluated, and what is known there about the action's
// parameters.
type where struct {
	path      string
	params    *ir.Params
	constants [][]byte
}

// branch returns the steps of a condition: one step for each comparison whose result is not known.
func (p *maker) branch(w where, e *bmv2json.Expr, f ir.Facts, yes, no func(ir.Facts) *Step) *Step {
	switch {
	case e.Op == bmv2json.OpAnd:
		return p.branch(w, e.Left, f, func(f ir.Facts) *Step {
			return p.branch(w, e.Right, f, yes, no)
		}, no)
	case e.Op == bmv2json.OpOr:
		return p.branch(w, e.Left, f, yes, func(f ir.Facts) *Step {
			return p.branch(w, e.Right, f, yes, no)
		})
	case e.Op == bmv2json.OpNot:
		return p.branch(w, e.Right, f, no, yes)
	}
	s := Step{Kind: StepTest, Path: w.path, Expr: e, Facts: f, Params: w.params,
		Constants: w.constants, sets: -1}
	if analysis.ComputedInSteps(e) {
		s.reads, s.Next = p.t.fieldsIn(e), []*Step{yes(f), no(f)}
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
	s.Next = []*Step{yes(f.Assume(c, true)), no(f.Assume(c, false))}
	return p.new(s)
}

// action is an action that a node runs, together with what is known about the action's parameters.
type action struct {
	node      bmv2json.Node
	code      *bmv2json.Action
	params    *ir.Params
	constants [][]byte
	next      bmv2json.Node
}

// action returns the steps of an action from primitive number i on.
func (p *maker) action(a action, i int, f ir.Facts) *Step {
	if i >= len(a.code.Primitives) {
		return p.at(a.next, f)
	}
	// The name distinguishes a hit from a miss, because different nodes may follow them.
	next := "end"
	if a.next != nil {
		next = a.next.NodeName()
	}
	place := fmt.Sprintf("%s %d.%d %p %x %s", a.node.NodeName(), a.code.Index, i, a.params,
		a.constants, next)
	return p.once(place, a.node, f, func(f ir.Facts) *Step { return p.primitive(a, i, f) })
}

func (p *maker) primitive(a action, i int, f ir.Facts) *Step {
	t, q := p.t, a.code.Primitives[i]
	analysis.CheckArgs(q)
	on := func(f ir.Facts) *Step { return p.action(a, i+1, f) }
	s := Step{Kind: StepPrimitive, Path: q.Path, Primitive: q, Facts: f, Params: a.params,
		Constants: a.constants, sets: -1}
	switch q.Op {
	case "exit":
		return p.end
	case "_jump", "_jump_if_zero":
		to, ok := ir.ConstantOf(q.Args[len(q.Args)-1], int64(len(a.code.Primitives)+1))
		if !ok || to <= i {
			ir.Refuse(q.Path, "a jump backwards or to nowhere")
		}
		there := func(f ir.Facts) *Step { return p.action(a, to, f) }
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
		if t.Unread(dst) {
			return on(f)
		}
		place := t.Layout.Field(dst.Field)
		if s.sets = place.Off; ir.Wide(dst.Width) {
			break
		}
		if cond, ok := analysis.AssignedCondition(q); ok && !analysis.ComputedInSteps(cond) {
			set := func(v uint64) func(ir.Facts) *Step {
				return func(f ir.Facts) *Step {
					return p.new(Step{Kind: StepSet, Dst: place, Value: v, sets: place.Off,
						Next: []*Step{on(f.With(place.Off, v))}})
				}
			}
			return p.branch(where{q.Path, a.params, a.constants}, cond, f, set(1), set(0))
		}
		if src := q.Args[1]; !ir.WideExpr(src) && !analysis.ComputedInSteps(src) {
			var v *ir.Value
			s.reads = p.computed(where{q.Path, a.params, a.constants}, f, func() {
				v = ir.And(t.Word(src, 0), ir.Const(ir.Ones(place.Width)))
			})
			if k, ok := v.Constant(); ok {
				s.Kind, s.Dst, s.Value = StepSet, place, k
				s.Next = []*Step{on(f.With(place.Off, k))}
			} else {
				s.Next = []*Step{on(f.Without(place.Off))}
			}
			return p.new(s)
		}
	}
	s.reads = t.readBy(q)
	s.Next = []*Step{on(t.behind(q, f))}
	return p.new(s)
}

// mostConstants is the largest number of entries of a table whose parameters become constants. The
// code after the table is written once for each of these entries.
const mostConstants = 2

// constantDefault returns the default action of a table for which the program fixes it.
func constantDefault(n *bmv2json.Table) action {
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
	return a
}

// lookup returns the steps from a table lookup on.
func (p *maker) lookup(n *bmv2json.Table, f ir.Facts) *Step {
	t := p.t
	tp := t.Tables[n.Index]
	o := &Outcomes{Plan: tp, Known: map[uint64]*Step{}}
	s := Step{Kind: StepTable, Path: n.Path, Facts: f, Table: o, sets: -1}
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
	run := func(i int, hit bool, constants [][]byte) *Step {
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
		o.Known[word] = run(int(word&0xffff)-1, true, e.Params)
		s.Next = append(s.Next, o.Known[word])
	}
	if tp.Kind != memory.LookupNone {
		if known != nil {
			// Packets reach these steps only while the table's content differs from the known
			// content.
			f = nil
		}
		for i := range n.Actions {
			o.Hit = append(o.Hit, run(i, true, nil))
		}
		s.Next = append(s.Next, o.Hit...)
		f = before
	}
	if tp.ConstantDefault() {
		o.Always = p.action(constantDefault(n), 0, f)
		if tp.Kind == memory.LookupNone {
			return o.Always
		}
		s.Next = append(s.Next, o.Always)
	} else {
		without := n.BaseDefaultNext
		if n.HitMiss {
			without = n.Miss
		}
		o.Without = p.at(without, f)
		for i := range n.Actions {
			o.Missed = append(o.Missed, run(i, false, nil))
		}
		s.Next = append(append(s.Next, o.Without), o.Missed...)
	}
	return p.new(s)
}
