package compiled

import (
	"fmt"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/tablefill"
	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Profile is the profile of the simulated program, which has values of 128 bits.
const Profile = wire.Profile128

// Program is the compiled P4 program, unchanged or with a rule removed.
type Program struct {
	info *p4rt.Info
	JSON *bmv2json.Program
}

// Load reads the compiled program. change edits the program's JSON, which is the output of p4c. If
// change is nil, the program stays as it is.
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
	p := &Program{}
	if p.JSON, p.info, err = tablefill.Parse(text, p4info); err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	return p, nil
}

// Entry is a table entry in the interpreter's form.
type Entry struct {
	Table      string
	TableEntry *target.TableEntry
}

// Encode converts an entry of the controller to the interpreter's form. It goes through the
// P4Runtime message that would carry the entry.
func (p *Program) Encode(e p4rt.Entry) Entry {
	m, err := p.info.Encode(e)
	if err != nil {
		// The shipped controller returns this error from New, so it cannot occur here.
		panic(fmt.Sprintf("the controller's entry does not fit the program: %v", err))
	}
	table, entry, err := tablefill.Entry(p.info, m)
	if err != nil {
		panic(fmt.Sprintf("the simulator does not know the controller's entry: %v", err))
	}
	return Entry{table, entry}
}
