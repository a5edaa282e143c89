package compiled

import (
	"fmt"
	"math/big"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Profile is the program that is simulated: values of 128 bits.
const Profile = wire.Profile128

// Program is the compiled P4 program, as it is or with a rule removed.
type Program struct {
	info    *p4rt.Info
	JSON    *bmv2json.Program
	tables  map[uint32]*configv1.Table
	actions map[uint32]*configv1.Action
}

// Load reads the compiled program. change edits the JSON that p4c made of it; nil: it is
// taken as it is.
func Load(change func(text []byte) ([]byte, error)) (*Program, error) {
	text, p4info, err := p4src.Compiled(int(Profile))
	if err != nil {
		return nil, err
	}
	if change != nil {
		if text, err = change(text); err != nil {
			return nil, err
		}
	}
	var message configv1.P4Info
	if err := prototext.Unmarshal(p4info, &message); err != nil {
		return nil, fmt.Errorf("the program's P4Info: %w", err)
	}
	p := &Program{tables: map[uint32]*configv1.Table{}, actions: map[uint32]*configv1.Action{}}
	if p.info, err = p4rt.NewInfo(&message); err != nil {
		return nil, fmt.Errorf("the program's P4Info: %w", err)
	}
	if p.JSON, err = bmv2json.Parse(text); err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	for _, t := range message.Tables {
		p.tables[t.Preamble.Id] = t
	}
	for _, a := range message.Actions {
		p.actions[a.Preamble.Id] = a
	}
	return p, nil
}

// Entry is a table entry as the engine takes it.
type Entry struct {
	Table      string
	TableEntry *target.TableEntry
}

// Encode turns an entry of the controller's into the engine's form, by way of the P4Runtime message
// that would carry it.
func (p *Program) Encode(e p4rt.Entry) Entry {
	m, err := p.info.Encode(e)
	if err != nil {
		// controller.New would have said so
		panic(fmt.Sprintf("the controller's entry does not fit the program: %v", err))
	}
	t := p.tables[m.TableId]
	out := &target.TableEntry{}
	for i, f := range m.Match {
		width := t.MatchFields[i].Bitwidth
		switch f := f.FieldMatchType.(type) {
		case *v1.FieldMatch_Exact_:
			out.Match = append(out.Match, target.FieldMatch{Value: full(f.Exact.Value, width)})
		case *v1.FieldMatch_Lpm:
			out.Match = append(out.Match, target.FieldMatch{Value: full(f.Lpm.Value, width),
				PrefixLen: int(f.Lpm.PrefixLen)})
		default:
			panic(fmt.Sprintf("table %s has a key that the simulator does not know: %T", t.Preamble.Name, f))
		}
	}
	if a := m.GetAction().GetAction(); a != nil {
		action := p.actions[a.ActionId]
		out.Action = &target.ActionCall{Action: action.Preamble.Name}
		for i, param := range a.Params {
			out.Action.Params = append(out.Action.Params, full(param.Value, action.Params[i].Bitwidth))
		}
	}
	return Entry{t.Preamble.Name, out}
}

// full is a P4Runtime value, which has no leading zeros, at its full width.
func full(v []byte, width int32) []byte {
	return new(big.Int).SetBytes(v).FillBytes(make([]byte, (width+7)/8))
}
