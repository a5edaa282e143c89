package p4rt

import (
	"fmt"
	"strings"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// schema is a P4Info bound to the program that it describes: every id with the program's object of
// the same name, found equal in all that P4Runtime relies on.
type schema struct {
	info *p4cfg.P4Info
	prog *bmv2json.Program

	tables         map[uint32]*table
	tableOrder     []*table
	actions        map[uint32]*action
	actionByName   map[string]*action
	profiles       map[uint32]*profile
	profileOrder   []*profile
	counters       map[uint32]*array
	counterOrder   []*array
	directCounters map[uint32]*table
	meters         map[uint32]*array
	meterOrder     []*array
	directMeters   map[uint32]*table
	registers      map[uint32]*register
	registerOrder  []*register
	valueSets      map[uint32]*valueSet
	valueSetOrder  []*valueSet
	digests        map[uint32]*digestType
	digestOrder    []*digestType
	digestByName   map[string]*digestType
	packetIn       *packetHeader // nil where the program has none
	packetOut      *packetHeader

	// leftOut are the P4Info's objects that are not in the program, by id: p4c writes the P4Info
	// before it finds out what no packet reaches.
	leftOut map[uint32]string

	ports int // bits of a port number
}

// unknown is what is said of an id that stands for no object of the program.
func (s *schema) unknown(what string, id uint32) error {
	if name, ok := s.leftOut[id]; ok {
		return fail(codes.Unimplemented,
			"%s is in the P4Info, but the compiler has left it out of the program: no packet reaches it", name)
	}
	return invalid("there is no %s %d", what, id)
}

// table is a table as both sides see it.
type table struct {
	id      uint32
	name    string
	info    *p4cfg.Table
	prog    *bmv2json.Table
	keys    []key          // in the order of the program's key, which is the P4Info's
	byField map[uint32]int // field id → index in keys
	// refs are the actions that the table may run.
	refs         map[uint32]*p4cfg.ActionRef
	profile      *profile // nil for a direct table
	counter      *p4cfg.DirectCounter
	meter        *p4cfg.DirectMeter
	needPriority bool
	restrictions []restriction
}

// key is one field of a match key.
type key struct {
	id    uint32
	name  string
	width int
	kind  p4cfg.MatchField_MatchType
}

// String is what messages call the key.
func (k *key) String() string {
	if k.name == "" {
		return fmt.Sprintf("field %d", k.id)
	}
	return fmt.Sprintf("field %d (%s)", k.id, k.name)
}

// action is an action with its parameters in the program's order.
type action struct {
	id           uint32
	name         string
	params       []param
	byID         map[uint32]int
	restrictions []restriction
}

type param struct {
	id    uint32
	name  string
	width int
}

// profile is an action profile or selector.
type profile struct {
	id     uint32
	name   string
	info   *p4cfg.ActionProfile
	tables []*table
}

// allows reports whether a member may run the action: it is in the action list of the tables that
// use the profile, and not for default entries only.
func (p *profile) allows(id uint32) bool {
	for _, t := range p.tables {
		if ref := t.refs[id]; ref == nil || ref.Scope == p4cfg.ActionRef_DEFAULT_ONLY {
			return false
		}
	}
	return len(p.tables) > 0
}

// array is an indirect counter or meter.
type array struct {
	id   uint32
	name string
	size int
	spec *p4cfg.MeterSpec // of a meter
}

type register struct {
	id   uint32
	name string
	size int
	typ  *dataType
}

type valueSet struct {
	id   uint32
	name string
	size int
	keys []key
}

type digestType struct {
	id   uint32
	name string
	typ  *dataType
}

// packetHeader is the layout of a packet-in or packet-out header.
type packetHeader struct {
	fields []packetField
	byID   map[uint32]int
	bytes  int
}

type packetField struct {
	id      uint32
	name    string
	width   int
	padding bool
}

func (h *packetHeader) String() string {
	names := make([]string, len(h.fields))
	for i, f := range h.fields {
		names[i] = fmt.Sprintf("%d (%s, %d bits)", f.id, f.name, f.width)
	}
	return strings.Join(names, ", ")
}
