package interp

import (
	"math/rand/v2"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/interp/internal/refusal"
	"github.com/netcraq/netcraq/switch/interp/internal/vm"
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
	defer refusal.Recover(&err)
	lay, random := packet.NewLayout(prog), rand.NewPCG(opts.Seed, opts.Seed)
	p = &Pipeline{
		src: prog, opts: opts, lay: lay,
		groups: map[uint32][]target.Replica{}, sessions: map[uint32]target.CloneSession{},
		rand: random, obs: packetevents.New(opts.Events, opts.Trace),
	}
	if prog.PSA() {
		p.psa = newPSA(prog, lay)
	} else {
		p.std = newStdFields(prog, lay)
	}
	c := reference.Compile(prog, lay, reference.Config{PSA: prog.PSA(), DropPort: opts.DropPort,
		EgressSpec: p.std.egressSpec, MulticastGroup: p.std.mcastGrp, Log: opts.Log, Observer: p.obs,
		Random: random, PacketLock: &p.dp})
	p.ref = c.Program
	p.compileFlow(c)
	p.compileParsers(c)
	if n := lay.Lanes + lay.ScratchLanes + c.KeyLanes; n > maxLanes {
		refusal.Panic("header_types",
			"fields, and wide values that are computed of them, of %d kB in all for each packet (at most %d)", n*8>>10, maxLanes*8>>10)
	}
	for _, name := range []string{"enq_qdepth", "deq_qdepth"} {
		p.readsDepth = p.readsDepth || lay.Used[prog.FieldNamed("queueing_metadata", name)]
	}
	return p, nil
}

// compileFlow compiles the control flow of both pipelines.
func (p *Pipeline) compileFlow(c *reference.Compiler) {
	first := p.lay.Lanes
	p.lay.Lanes += vm.Temporaries
	for i, to := range []*controlFlow{&p.ingress, &p.egress} {
		name := []string{"ingress", "egress"}[i]
		pl := p.src.Pipeline(name)
		if pl == nil {
			refusal.Panic("pipelines",
				"a program without a pipeline named %q (v1model and PSA programs are run)", name)
		}
		to.id = pl.ID
		if p.obs.Watches() {
			to.flow = c.Flow(pl)
		} else {
			to.code = vm.Compile(c, pl, first)
		}
	}
}

// compileParsers compiles the parser and the deparser, and v1model's checksums.
func (p *Pipeline) compileParsers(c *reference.Compiler) {
	if p.psa != nil {
		p.compilePSAParsers(c)
		return
	}
	if len(p.src.Parsers) != 1 || len(p.src.Deparsers) != 1 {
		refusal.Panic("parsers", "%d parsers and %d deparsers (a v1model program has one of each)",
			len(p.src.Parsers), len(p.src.Deparsers))
	}
	p.parser = c.Parser(p.src.Parsers[0])
	p.deparser = c.Deparser(p.src.Deparsers[0])
	for _, s := range p.src.Checksums {
		k := c.Checksum(s)
		if s.Verify {
			p.parser.AddChecksum(k)
		}
		if s.Update {
			p.deparser.AddChecksum(k)
		}
	}
}

// maxLanes bounds a packet's fields and intermediate results, in 64-bit words. Up to MaxPasses
// packets may exist at the same time, which limits their memory to 1 GiB.
const maxLanes = 1 << 15

func (p *Pipeline) compilePSAParsers(c *reference.Compiler) {
	parser := func(name string) *reference.Parser {
		q := p.src.Parser(name)
		if q == nil {
			refusal.Panic("parsers", "a PSA program without a parser named %q", name)
		}
		return c.Parser(q)
	}
	deparser := func(name string) reference.Deparser {
		d := p.src.Deparser(name)
		if d == nil {
			refusal.Panic("deparsers", "a PSA program without a deparser named %q", name)
		}
		return c.Deparser(d)
	}
	if len(p.src.Checksums) > 0 {
		refusal.Panic(p.src.Checksums[0].Path, "a checksum of v1model in a PSA program")
	}
	p.parser, p.psa.egressParser = parser("ingress_parser"), parser("egress_parser")
	p.psa.ingressDeparser, p.deparser = deparser("ingress_deparser"), deparser("egress_deparser")
}

// New compiles a program. An error wraps [target.ErrUnsupported] if the program needs something
// that this engine does not support.
func New(prog *bmv2json.Program, opts Options) (*Pipeline, error) {
	p, err := compile(prog, opts)
	if err != nil {
		return nil, err
	}
	p.waiting.empty(p.opts.Queues.priorities)
	p.ref.Allocate(prog)
	for _, t := range p.ref.Tables {
		if err := t.Reset(); err != nil {
			return nil, err
		}
	}
	return p, nil
}
