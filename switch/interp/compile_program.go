package interp

import (
	"math/rand/v2"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

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
	defer refused(&err)
	lay, random := newLayout(prog), rand.NewPCG(opts.Seed, opts.Seed)
	p = &Pipeline{
		src: prog, opts: opts, lay: lay,
		groups: map[uint32][]target.Replica{}, sessions: map[uint32]target.CloneSession{},
		rand: random, obs: &observer{events: opts.Events, onTrace: opts.Trace},
	}
	if prog.PSA() {
		p.psa = newPSA(prog, lay)
	} else {
		p.std = newStdFields(prog, lay)
	}
	c := compileStatements(prog, lay, config{psa: prog.PSA(), dropPort: opts.DropPort,
		egressSpec: p.std.egressSpec, mcastGrp: p.std.mcastGrp, log: opts.Log, obs: p.obs,
		rand: random, packets: &p.dp})
	p.program = c.program
	p.compileFlow(c)
	p.compileParsers(c)
	if n := lay.lanes + lay.scratch + c.keyLanes; n > maxLanes {
		refuse("header_types",
			"fields, and wide values that are computed of them, of %d kB in all for each packet (at most %d)", n*8>>10, maxLanes*8>>10)
	}
	for _, name := range []string{"enq_qdepth", "deq_qdepth"} {
		p.readsDepth = p.readsDepth || lay.used[prog.FieldNamed("queueing_metadata", name)]
	}
	return p, nil
}

// controlFlow is ingress or egress: as instructions, or, if somebody may watch, as it stands in the
// program.
type controlFlow struct {
	id   int // in events
	code *code
	flow *flow
}

// run takes a packet through.
func (f *controlFlow) run(p *Pipeline, st *state) {
	if f.code != nil {
		f.code.run(st)
		return
	}
	p.obs.event(st, EventPipelineStart, f.id, 0)
	f.flow.run(st)
	p.obs.event(st, EventPipelineDone, f.id, 0)
}

// compileFlow compiles the control flow of both pipelines.
func (p *Pipeline) compileFlow(c *compiler) {
	first := p.lay.lanes
	p.lay.lanes += temporaries
	for i, to := range []*controlFlow{&p.ingress, &p.egress} {
		name := []string{"ingress", "egress"}[i]
		pl := p.src.Pipeline(name)
		if pl == nil {
			refuse("pipelines",
				"a program without a pipeline named %q (v1model and PSA programs are run)", name)
		}
		to.id = pl.ID
		if p.obs.watches() {
			to.flow = c.flow(pl)
		} else {
			to.code = lower(c, pl, first)
		}
	}
}

// compileParsers compiles the parser and the deparser, and v1model's checksums.
func (p *Pipeline) compileParsers(c *compiler) {
	if p.psa != nil {
		p.compilePSAParsers(c)
		return
	}
	if len(p.src.Parsers) != 1 || len(p.src.Deparsers) != 1 {
		refuse("parsers", "%d parsers and %d deparsers (a v1model program has one of each)",
			len(p.src.Parsers), len(p.src.Deparsers))
	}
	p.parser = c.parser(p.src.Parsers[0])
	p.deparser = c.deparser(p.src.Deparsers[0])
	for _, s := range p.src.Checksums {
		k := c.checksum(s)
		if s.Verify {
			p.parser.verify = append(p.parser.verify, k)
		}
		if s.Update {
			p.deparser.update = append(p.deparser.update, k)
		}
	}
}

// maxLanes bounds the fields of a packet, and what is computed of them, in words of 64 bits.
// There may be MaxPasses packets at a time: 1 GiB.
const maxLanes = 1 << 15

func (p *Pipeline) compilePSAParsers(c *compiler) {
	parser := func(name string) *parser {
		q := p.src.Parser(name)
		if q == nil {
			refuse("parsers", "a PSA program without a parser named %q", name)
		}
		return c.parser(q)
	}
	deparser := func(name string) deparser {
		d := p.src.Deparser(name)
		if d == nil {
			refuse("deparsers", "a PSA program without a deparser named %q", name)
		}
		return c.deparser(d)
	}
	if len(p.src.Checksums) > 0 {
		refuse(p.src.Checksums[0].Path, "a checksum of v1model in a PSA program")
	}
	p.parser, p.psa.egressParser = parser("ingress_parser"), parser("egress_parser")
	p.psa.ingressDeparser, p.deparser = deparser("ingress_deparser"), deparser("egress_deparser")
}
