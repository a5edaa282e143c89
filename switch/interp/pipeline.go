package interp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"unsafe"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Options are what a program's target decides. The zero value is BMv2's default.
type Options struct {
	// DropPort is the egress_spec that drops a packet; 0 means 511.
	DropPort uint32
	// Seed is where the program's random numbers start.
	Seed uint64
	// MaxPasses bounds how often one received packet may go through ingress or egress, all its
	// copies together; 0 means 4096. What is beyond it is dropped, and said to Log.
	MaxPasses int
	// OnDigest gets what the program sends with digest(): at most one a packet, as in BMv2, taken
	// when ingress has ended. It is called after the packet, from the goroutine of Process, and may
	// call the Pipeline's methods. Nil drops digests.
	OnDigest func(target.Digest)
	// Log gets what the program says with log_msg, and why packets were dropped that the program
	// did not drop. It must not call the Pipeline. Nil discards it.
	Log func(string)
	// QueueDepth says how many packets wait to be sent by a port; nil: none do.
	QueueDepth func(port uint32) uint32
	// Events gets the steps of packets' ways, as BMv2's event logger tells them; nil tells nobody.
	Events Events
	// Queues are those between ingress and egress; nil: one for each port, without a rate.
	Queues *Queues
	// Trace gets a packet's way through the program, step by step, in words like BMv2's: states,
	// tables, actions and what becomes of the packet. It must not call the Pipeline. Nil traces
	// nothing, and costs nothing.
	Trace func(string)
}

const (
	defaultDropPort  = 511
	defaultMaxPasses = 4096
)

const (
	// maxState bounds what a program's registers, counters and meters take in all, in bytes. Go
	// ends a process that gets no more memory, so a program that asks for too much is refused
	// before; one that asks for more than this is more likely wrong than meant. While a program is
	// replaced there are two.
	maxState = 1 << 30
	// maxLanes bounds the fields of a packet, and what is computed of them, in words of 64 bits.
	// There may be MaxPasses packets at a time: 1 GiB.
	maxLanes = 1 << 15
)

// The values of standard_metadata.instance_type.
const (
	instanceNormal = iota
	instanceIngressClone
	instanceEgressClone
	instanceCoalesced // never set
	instanceRecirculated
	instanceReplication
	instanceResubmitted
)

// noError is the value of error.NoError for a parser that was not stopped.
const noError = ^uint64(0)

// Pipeline is a program ready to run and its state. Its methods are safe for concurrent use;
// packets go through one at a time.
type Pipeline struct {
	prog *bmv2json.Program
	opts Options
	lay  *layout

	// cp keeps control-plane calls apart from each other, and dp keeps packets apart from the
	// moment in which one changes something. Where both are held, cp was taken first. So a packet
	// waits for no more than a few assignments, however large the table that is being listed.
	cp, dp sync.Mutex

	// The program, compiled.
	std        stdFields
	readsDepth bool  // the program mentions how many packets wait at a port
	psa        *psa  // nil: a v1model program
	checksums  []int // of PSA: the lanes of scratch that hold the sums
	parser     *parser
	ingress    *code
	egress     *code
	deparser   deparser
	actions    []*action
	calcs      []*calculation
	fieldList  map[int][]laneRun
	learn      map[int][]wideFn // the values of each learn list
	metadata   []bool           // by header
	metaLanes  [][2]int         // the lanes of each metadata header
	varbits    []int            // headers with a varbit field
	stacks     int
	scratch    int
	errNone    uint64
	ids        eventIDs
	errTimeout uint64
	key        []uint64 // the parser's key

	// Its state.
	tables    []*table
	profiles  []*profile
	registers []*registerArray
	counters  []*counterArray
	meters    []*meterArray
	valueSets []*valueSet
	groups    map[uint32][]target.Replica
	sessions  map[uint32]target.CloneSession
	ages      map[*entry]*table // the entries that have idle timeouts, under cp
	rand      *rand.PCG

	// Packets under way.
	free    []*state
	input   []*state // for ingress: those that came back
	queue   []*state // for egress
	passes  int
	waiting waitingRoom
	// of events: packets received, and whether anybody listens during this one
	arrived  uint64
	eventful bool
	traced   uint64 // packets received, to tell their steps apart
	tracing  uint64 // the number of the one under way
	// that a packet's priority was out of range was said
	outOfRange bool
	digests    []target.Digest
}

// laneRun is a field as a run of lanes.
type laneRun struct{ from, to int }

var _ target.Pipeline = (*Pipeline)(nil)

// New compiles a program. An error wraps [target.ErrUnsupported] where the program asks for what
// this engine does not do.
func New(prog *bmv2json.Program, opts Options) (*Pipeline, error) {
	p, err := compile(prog, opts)
	if err != nil {
		return nil, err
	}
	p.allocate()
	if err := p.reset(); err != nil {
		return nil, err
	}
	return p, nil
}

// Verify reports why New would refuse a program, without allocating its state.
func Verify(prog *bmv2json.Program, opts Options) error {
	_, err := compile(prog, opts)
	return err
}

func compile(prog *bmv2json.Program, opts Options) (p *Pipeline, err error) {
	if opts.DropPort == 0 {
		opts.DropPort = defaultDropPort
	}
	if opts.MaxPasses == 0 {
		opts.MaxPasses = defaultMaxPasses
	}
	if opts.Queues == nil {
		opts.Queues = NewQueues(1)
	}
	defer func() {
		if r := recover(); r != nil {
			ref, ok := r.(refusal)
			if !ok {
				panic(r)
			}
			p, err = nil, fmt.Errorf("this program cannot be run: %w", ref.err)
		}
	}()
	p = &Pipeline{
		prog: prog, opts: opts, lay: newLayout(prog), fieldList: map[int][]laneRun{},
		learn: map[int][]wideFn{}, stacks: len(prog.Stacks) + len(prog.UnionStacks),
		groups: map[uint32][]target.Replica{}, sessions: map[uint32]target.CloneSession{},
		ages: map[*entry]*table{},
		rand: rand.NewPCG(opts.Seed, opts.Seed),
	}
	c := &compiler{prog: prog, p: p, lay: p.lay}
	c.program()
	p.scratch = c.scratch
	if n := p.lay.lanes + p.scratch + c.keyLanes; n > maxLanes {
		refuse("header_types",
			"fields, and wide values that are computed of them, of %d kB in all for each packet (at most %d)", n*8>>10, maxLanes*8>>10)
	}
	p.key = make([]uint64, c.keyLanes)
	return p, nil
}

// program compiles everything, what others refer to first.
func (c *compiler) program() {
	p, prog := c.p, c.prog
	c.externs()
	for _, t := range prog.HeaderTypes {
		if t.VL >= 0 && t.Fields[t.VL].Offset%8 != 0 {
			refuse(t.Path, "field %q of variable length, which does not start on a byte",
				t.Fields[t.VL].Name)
		}
	}
	p.metadata = make([]bool, len(prog.Headers))
	for i, h := range prog.Headers {
		hl := p.lay.headers[i]
		if h.Metadata {
			p.metadata[i] = true
			p.metaLanes = append(p.metaLanes, [2]int{hl.base, hl.base + hl.t.lanes})
		}
		if hl.t.vl {
			p.varbits = append(p.varbits, i)
		}
	}
	c.errors()
	if prog.PSA() {
		c.psaFields()
	} else {
		c.standardFields()
	}
	checkState(prog)
	for _, r := range prog.Registers {
		p.registers = append(p.registers, &registerArray{size: r.Size, width: r.Width,
			lanes: lanesOf(r.Width), signed: r.Signed})
	}
	for range prog.Counters {
		p.counters = append(p.counters, &counterArray{})
	}
	for _, m := range prog.Meters {
		if m.Rates != 2 {
			refuse(m.Path, "a meter of %d rates", m.Rates)
		}
		p.meters = append(p.meters, &meterArray{})
	}
	for _, s := range prog.ValueSets {
		p.valueSets = append(p.valueSets, &valueSet{src: s})
	}
	for _, l := range prog.FieldLists {
		var runs []laneRun
		for _, f := range l.Fields {
			if f.IsValidity() || f.Field.VL {
				refuse(l.Path, "%s in a field list", f)
			}
			at := c.lay.lane(f)
			runs = append(runs, laneRun{at, at + lanesOf(f.Width())})
		}
		p.fieldList[l.ID] = runs
	}
	for _, l := range prog.LearnLists {
		for i, e := range l.Elements {
			p.learn[l.ID] = append(p.learn[l.ID], c.wide(e, lanesOf(l.Widths[i])))
		}
	}
	for _, k := range prog.Calculations {
		p.calcs = append(p.calcs, c.calculation(k.Algo, k.Input, k.Path))
	}
	for _, a := range prog.Profiles() {
		pr := &profile{src: a, members: map[uint32]*member{}, groups: map[uint32]*group{}}
		if a.Selector != nil {
			pr.calc = c.calculation(a.Selector.Algo, a.Selector.Input, a.Path)
		}
		p.profiles = append(p.profiles, pr)
	}
	for _, a := range prog.Actions {
		p.actions = append(p.actions, c.action(a))
	}
	for _, t := range prog.Tables() {
		p.tables = append(p.tables, c.table(t))
	}
	c.flow()
	c.parserAndDeparser()
	c.eventIDs()
	for _, name := range []string{"enq_qdepth", "deq_qdepth"} {
		p.readsDepth = p.readsDepth || p.lay.used[prog.FieldNamed("queueing_metadata", name)]
	}
}

// checkState refuses a program whose arrays take too much memory.
func checkState(prog *bmv2json.Program) {
	total, largest, what, path := 0, 0, "", ""
	add := func(kind, name, at string, bytes int) {
		if total += bytes; bytes > largest {
			largest, what, path = bytes, fmt.Sprintf("%s %q", kind, name), at
		}
	}
	for _, r := range prog.Registers {
		add("register", r.Name, r.Path, r.Size*lanesOf(r.Width)*8)
	}
	for _, c := range prog.Counters {
		add("counter", c.Name, c.Path, c.Size*int(unsafe.Sizeof(target.CounterData{})))
	}
	for _, m := range prog.Meters {
		add("meter", m.Name, m.Path, m.Size*int(unsafe.Sizeof(meter{})))
	}
	if total > maxState {
		refuse(path,
			"registers, counters and meters of %d MB in all (at most %d); the largest is %s of %d MB", total>>20, maxState>>20, what, largest>>20)
	}
}

// errors finds the value of each error; those of the core library that the program does not number
// get values of their own, as in BMv2.
func (c *compiler) errors() {
	c.errs = map[string]uint64{}
	next := uint64(0)
	for _, e := range c.prog.Errors {
		c.errs[e.Name] = uint64(e.Value)
		next = max(next, uint64(e.Value)+1)
	}
	for _, name := range []string{
		"NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort",
		"ParserTimeout", "ParserInvalidArgument",
	} {
		if _, ok := c.errs[name]; !ok {
			c.errs[name] = next
			next++
		}
	}
	c.p.errNone, c.p.errTimeout = c.errs["NoError"], c.errs["ParserTimeout"]
}

// flow compiles the control flow of both pipelines.
func (c *compiler) flow() {
	first := c.lay.lanes
	c.lay.lanes += temporaries
	for _, name := range []string{"ingress", "egress"} {
		pl := c.prog.Pipeline(name)
		if pl == nil {
			refuse("pipelines",
				"a program without a pipeline named %q (v1model and PSA programs are run)", name)
		}
		flow := c.lower(pl, first)
		if name == "ingress" {
			c.p.ingress = flow
		} else {
			c.p.egress = flow
		}
	}
}

func (c *compiler) parserAndDeparser() {
	p := c.p
	if p.psa != nil {
		c.psaParsersAndDeparsers()
		return
	}
	if len(c.prog.Parsers) != 1 || len(c.prog.Deparsers) != 1 {
		refuse("parsers", "%d parsers and %d deparsers (a v1model program has one of each)",
			len(c.prog.Parsers), len(c.prog.Deparsers))
	}
	p.parser = c.parser(c.prog.Parsers[0])
	p.deparser = c.deparser(c.prog.Deparsers[0])
	for _, s := range c.prog.Checksums {
		k := c.checksum(s)
		if s.Verify {
			p.parser.verify = append(p.parser.verify, k)
		}
		if s.Update {
			p.deparser.update = append(p.deparser.update, k)
		}
	}
}

func (c *compiler) deparser(d *bmv2json.Deparser) (out deparser) {
	out.id = d.ID
	for _, h := range d.Order {
		out.order = append(out.order, h.Index)
	}
	for _, pr := range d.Primitives {
		out.do = append(out.do, c.primitive(pr))
	}
	return out
}

// allocate makes room for the arrays.
func (p *Pipeline) allocate() {
	p.waiting.empty(p.opts.Queues.priorities)
	for _, r := range p.registers {
		r.cells = make([]uint64, r.size*r.lanes)
	}
	for i, c := range p.prog.Counters {
		p.counters[i].cells = make([]target.CounterData, c.Size)
	}
	for i, m := range p.prog.Meters {
		p.meters[i].cells = make([]meter, m.Size)
		for j := range p.meters[i].cells {
			p.meters[i].cells[j].bytes = m.Bytes
		}
	}
}

// reset puts the program's own entries in place.
func (p *Pipeline) reset() error {
	for _, t := range p.tables {
		if d := t.src.Default; d != nil {
			do, err := p.newCall(d.Action, d.Params)
			if err != nil {
				return fmt.Errorf("%s.default_entry: %w", t.src.Path, err)
			}
			t.first = &entry{do: do}
			t.def = t.first
		}
		// BMv2's smallest priority wins, the contract's largest.
		largest := 0
		for _, e := range t.src.ConstEntries {
			largest = max(largest, e.Priority)
		}
		for _, e := range t.src.ConstEntries {
			te := &target.TableEntry{Action: &target.ActionCall{Action: e.Action.Name,
				Params: e.Params}, IsConst: true}
			if t.src.NeedsPriority() {
				te.Priority = largest + 1 - e.Priority
			}
			for _, m := range e.Match {
				te.Match = append(te.Match, target.FieldMatch{Value: m.Value, Mask: m.Mask,
					PrefixLen: m.PrefixLen})
			}
			if err := t.insert(te); err != nil {
				if errors.Is(err, target.ErrExists) {
					err = fmt.Errorf("the same match stands in an earlier entry: %w",
						target.ErrInvalid)
				}
				return fmt.Errorf("%s: %w", e.Path, err)
			}
		}
	}
	return nil
}

// Barrier implements [target.Pipeline]. Every change has waited for the packet under way, which
// keeps dp from its parser to its last copy.
func (p *Pipeline) Barrier() error { return nil }

// Program implements [target.Pipeline].
func (p *Pipeline) Program() *bmv2json.Program { return p.prog }

func (p *Pipeline) log(s string) {
	if p.opts.Log != nil {
		p.opts.Log(s)
	}
}
