package interp

import (
	"math/rand/v2"
	"sync"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/packet"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/interp/internal/reference"
	"github.com/netcraq/netcraq/switch/target"
)

const (
	defaultDropPort  = 511
	defaultMaxPasses = 4096
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

// Pipeline is a program ready to run and its state. Its methods are safe for concurrent use;
// packets go through one at a time.
type Pipeline struct {
	src  *bmv2json.Program
	opts Options
	lay  *packet.Layout

	// cp keeps control-plane calls apart from each other, and dp keeps packets apart from the
	// moment in which one changes something. Where both are held, cp was taken first. So a packet
	// waits for no more than a few assignments, however large the table that is being listed.
	cp, dp sync.Mutex

	// The program, compiled, and what it keeps.
	ref             *reference.Program
	std             stdFields
	readsDepth      bool // the program mentions how many packets wait at a port
	psa             *psa // nil: a v1model program
	parser          *reference.Parser
	ingress, egress controlFlow
	deparser        reference.Deparser

	// What is the switch's.
	groups   map[uint32][]target.Replica
	sessions map[uint32]target.CloneSession
	rand     *rand.PCG
	obs      *packetevents.Observer

	// Packets under way.
	free    []*packet.State
	input   []*packet.State // for ingress: those that came back
	queue   []*packet.State // for egress
	passes  int
	waiting waitingRoom
	// that a packet's priority was out of range was said
	outOfRange bool
	digests    []target.Digest
}

var _ target.Pipeline = (*Pipeline)(nil)

// Barrier implements [target.Pipeline]. Every change has waited for the packet under way, which
// keeps dp from its parser to its last copy.
func (p *Pipeline) Barrier() error { return nil }

// Program implements [target.Pipeline].
func (p *Pipeline) Program() *bmv2json.Program { return p.src }

func (p *Pipeline) log(s string) {
	if p.opts.Log != nil {
		p.opts.Log(s)
	}
}
