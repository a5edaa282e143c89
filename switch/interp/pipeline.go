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
	instanceCoalesced // this engine never sets it
	instanceRecirculated
	instanceReplication
	instanceResubmitted
)

// Pipeline is a program with its state, ready to run. Its methods are safe for concurrent use. It
// processes one packet at a time.
type Pipeline struct {
	src  *bmv2json.Program
	opts Options
	lay  *packet.Layout

	// cp serializes control-plane calls, and dp excludes packets during a change. Code that needs
	// both locks first locks cp. So a packet waits for no more than a few assignments, even while
	// the control plane lists a large table.
	cp, dp sync.Mutex

	// The compiled program with its data.
	ref             *reference.Program
	std             stdFields
	readsDepth      bool // the program reads the number of packets that wait at a port
	psa             *psa // nil for a v1model program
	parser          *reference.Parser
	ingress, egress controlFlow
	deparser        reference.Deparser

	// State that belongs to the switch rather than to the program.
	groups   map[uint32][]target.Replica
	sessions map[uint32]target.CloneSession
	rand     *rand.PCG
	obs      *packetevents.Observer

	// Packet states: the free states, and those of packets that are being processed.
	free    []*packet.State
	input   []*packet.State // resubmitted and recirculated packets that wait for ingress
	queue   []*packet.State // packets that wait for egress
	passes  int
	waiting waitingRoom
	// Set once the log says that a packet's priority was out of range.
	outOfRange bool
	digests    []target.Digest
}

var _ target.Pipeline = (*Pipeline)(nil)

// Barrier implements [target.Pipeline]. It does nothing. A packet holds dp from its parser to its
// last copy, so every change has already waited for the packet in progress.
func (p *Pipeline) Barrier() error { return nil }

// Program implements [target.Pipeline].
func (p *Pipeline) Program() *bmv2json.Program { return p.src }

func (p *Pipeline) log(s string) {
	if p.opts.Log != nil {
		p.opts.Log(s)
	}
}
