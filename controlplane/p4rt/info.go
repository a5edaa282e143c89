package p4rt

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// Info is a program's P4Info with indexes. They find entities by their full name
// ("NetcraqIngress.pipeline.routing.ipv4_lpm"), by their alias ("ipv4_lpm", the shortest suffix
// that is unique), or by their id.
type Info struct {
	P4Info *configv1.P4Info

	tables    index[*configv1.Table]
	actions   index[*configv1.Action]
	counters  index[*configv1.Counter]
	registers index[*configv1.Register]
	meters    index[*configv1.Meter]
	packets   index[*configv1.ControllerPacketMetadata]
}

// index finds entities of one kind by name, alias or id.
type index[T any] struct {
	kind   string
	byName map[string]T
	byID   map[uint32]T
	names  []string // the entities' aliases, for messages
}

func makeIndex[T interface{ GetPreamble() *configv1.Preamble }](kind string, all []T) (index[T], error) {
	x := index[T]{kind: kind, byName: map[string]T{}, byID: map[uint32]T{}}
	for _, e := range all {
		p := e.GetPreamble()
		if p.GetName() == "" || p.GetId() == 0 {
			return x, fmt.Errorf("a %s without a name or an id (name %q, id %d)", kind, p.GetName(), p.GetId())
		}
		if _, ok := x.byID[p.Id]; ok {
			return x, fmt.Errorf("two %ss have the id %d", kind, p.Id)
		}
		x.byID[p.Id] = e
		x.byName[p.Name] = e
		name := p.Name
		if p.Alias != "" {
			x.byName[p.Alias] = e
			name = p.Alias
		}
		x.names = append(x.names, name)
	}
	slices.Sort(x.names)
	return x, nil
}

func (x index[T]) find(name string) (T, error) {
	if e, ok := x.byName[name]; ok {
		return e, nil
	}
	var none T
	return none, fmt.Errorf("the program has no %s %q; it has: %s", x.kind, name, strings.Join(x.names, ", "))
}

// NewInfo indexes a P4Info.
func NewInfo(p *configv1.P4Info) (*Info, error) {
	i := &Info{P4Info: p}
	var err error
	if i.tables, err = makeIndex("table", p.Tables); err != nil {
		return nil, err
	}
	if i.actions, err = makeIndex("action", p.Actions); err != nil {
		return nil, err
	}
	if i.counters, err = makeIndex("counter", p.Counters); err != nil {
		return nil, err
	}
	if i.registers, err = makeIndex("register", p.Registers); err != nil {
		return nil, err
	}
	if i.meters, err = makeIndex("meter", p.Meters); err != nil {
		return nil, err
	}
	if i.packets, err = makeIndex("controller packet header", p.ControllerPacketMetadata); err != nil {
		return nil, err
	}
	for _, t := range p.Tables {
		for _, r := range t.ActionRefs {
			if _, ok := i.actions.byID[r.Id]; !ok {
				return nil, fmt.Errorf("table %s refers to action %d, which is not there", t.Preamble.Name, r.Id)
			}
		}
	}
	return i, nil
}

// ParseInfo reads a P4Info in text form, as p4c writes it (.txtpb, .txt), or in the binary protobuf
// form.
func ParseInfo(b []byte) (*Info, error) {
	p := new(configv1.P4Info)
	textErr := prototext.Unmarshal(b, p)
	if textErr != nil {
		p = new(configv1.P4Info)
		if err := proto.Unmarshal(b, p); err != nil || len(p.ProtoReflect().GetUnknown()) > 0 {
			return nil, fmt.Errorf("neither a P4Info in text form (%w) nor a binary one", textErr)
		}
	}
	return NewInfo(p)
}

// LoadInfo reads a P4Info file.
func LoadInfo(path string) (*Info, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the P4Info: %w", err)
	}
	i, err := ParseInfo(b)
	if err != nil {
		return nil, fmt.Errorf("reading the P4Info %s: %w", path, err)
	}
	return i, nil
}

// TableSize returns the number of entries for which the program declares a table.
func (i *Info) TableSize(table string) (int, error) {
	t, err := i.tables.find(table)
	if err != nil {
		return 0, err
	}
	return int(t.Size), nil
}

// CounterSize returns the number of cells of an indexed counter.
func (i *Info) CounterSize(counter string) (int, error) {
	c, err := i.counters.find(counter)
	if err != nil {
		return 0, err
	}
	return int(c.Size), nil
}

// RegisterSize returns the number of a register's cells, and their width in bits. The width is 0 if
// the cells are not plain bit strings.
func (i *Info) RegisterSize(register string) (cells, width int, err error) {
	r, err := i.registers.find(register)
	if err != nil {
		return 0, 0, err
	}
	return int(r.Size), int(r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth()), nil
}

// Registers lists the aliases of all registers.
func (i *Info) Registers() []string { return slices.Clone(i.registers.names) }

// alias returns an entity's short name.
func alias(p *configv1.Preamble) string {
	if p.GetAlias() != "" {
		return p.Alias
	}
	return p.GetName()
}

// sorted returns the keys of a map, in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
