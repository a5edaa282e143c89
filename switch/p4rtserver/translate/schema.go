package translate

import (
	"fmt"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Schema is a P4Info bound to the program that it describes. It maps every id to the program's
// object of the same name. Bind has checked that P4Info and program agree in everything on which
// P4Runtime relies.
type Schema struct {
	info    *p4cfg.P4Info
	Program *bmv2json.Program

	Tables         map[uint32]*Table
	TableOrder     []*Table
	actions        map[uint32]*action
	actionByName   map[string]*action
	ActionProfiles map[uint32]*ActionProfile
	ProfileOrder   []*ActionProfile
	Counters       map[uint32]*array
	CounterOrder   []*array
	directCounters map[uint32]*Table
	Meters         map[uint32]*array
	MeterOrder     []*array
	directMeters   map[uint32]*Table
	Registers      map[uint32]*Register
	RegisterOrder  []*Register
	ValueSets      map[uint32]*valueSet
	ValueSetOrder  []*valueSet
	Digests        map[uint32]*DigestType
	DigestOrder    []*DigestType
	DigestByName   map[string]*DigestType
	PacketIn       *packetHeader // nil if the program has no packet-in header
	PacketOut      *packetHeader

	// LeftOut has the P4Info's objects that are missing in the program, by id. The reason is that
	// p4c writes the P4Info before it removes objects that no packet reaches.
	LeftOut map[uint32]string

	Ports int // width of a port number in bits
}

// Unknown returns the error for an id that belongs to no object of the program.
func (s *Schema) Unknown(what string, id uint32) error {
	if name, ok := s.LeftOut[id]; ok {
		return Errorf(codes.Unimplemented,
			"%s is in the P4Info, but the compiler has left it out of the program: no packet reaches it", name)
	}
	return Invalidf("there is no %s %d", what, id)
}

// Table is a table as both the P4Info and the program describe it.
type Table struct {
	ID      uint32
	Name    string
	Info    *p4cfg.Table
	prog    *bmv2json.Table
	Keys    []key          // in the order of the program's key, which is also the P4Info's order
	byField map[uint32]int // field id → index in keys
	// The actions that the table may run, by id.
	refs          map[uint32]*p4cfg.ActionRef
	ActionProfile *ActionProfile // nil if the table has no action profile
	Counter       *p4cfg.DirectCounter
	Meter         *p4cfg.DirectMeter
	NeedPriority  bool
	Restrictions  []restriction
}

// key is one field of a table's match key.
type key struct {
	id    uint32
	name  string
	width int
	kind  p4cfg.MatchField_MatchType
}

// String returns the key's name for messages.
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

// ActionProfile is an action profile or action selector.
type ActionProfile struct {
	ID     uint32
	Name   string
	Info   *p4cfg.ActionProfile
	tables []*Table
}

// Allows reports whether a member may run the action. The tables that use the action profile must
// list the action for entries, not only for default entries.
func (p *ActionProfile) Allows(id uint32) bool {
	for _, t := range p.tables {
		if ref := t.refs[id]; ref == nil || ref.Scope == p4cfg.ActionRef_DEFAULT_ONLY {
			return false
		}
	}
	return len(p.tables) > 0
}

// array is an indirect counter or meter.
type array struct {
	ID   uint32
	Name string
	Size int
	Spec *p4cfg.MeterSpec // set for a meter
}

type Register struct {
	ID   uint32
	Name string
	Size int
	Type *dataType
}

type valueSet struct {
	ID   uint32
	Name string
	Size int
	Keys []key
}

type DigestType struct {
	ID   uint32
	Name string
	Type *dataType
}

// packetHeader is the layout of a packet-in or packet-out header.
type packetHeader struct {
	fields []packetField
	byID   map[uint32]int
	Bytes  int
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

// EntryKey decodes the fields that identify an entry.
func (t *Table) EntryKey(te *p4v1.TableEntry) (*target.TableEntry, error) {
	match, err := MatchOf("table "+t.Name, t.Keys, te.Match)
	if err != nil {
		return nil, err
	}
	switch {
	case t.NeedPriority && te.Priority <= 0:
		return nil,
			Invalidf(
				"table %s has ternary, range or optional keys: its entries need a priority above 0",
				t.Name)
	case !t.NeedPriority && te.Priority != 0:
		return nil,
			Invalidf(
				"table %s has exact and LPM keys only: its entries have no priority, but %d is given", t.Name, te.Priority)
	}
	return &target.TableEntry{Match: match, Priority: int(te.Priority)}, nil
}

func (t *Table) Has(kind string) bool {
	if kind == "counter" {
		return t.Counter != nil
	}
	return t.Meter != nil
}

// KeyOf describes the key of an entry.
func (t *Table) KeyOf(e *target.TableEntry) *p4v1.TableEntry {
	out := &p4v1.TableEntry{TableId: t.ID, Match: FieldsOf(t.Keys, e.Match)}
	if t.NeedPriority {
		out.Priority = int32(e.Priority)
	}
	return out
}

// Times reports whether the table supports idle timeouts according to the P4Info.
func (t *Table) Times() bool { return t.Info.IdleTimeoutBehavior != p4cfg.Table_NO_TIMEOUT }
