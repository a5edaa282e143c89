package switches

import (
	"context"
	"fmt"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/program"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
)

// Former reports whether the switch still runs another program than this one.
func (d *Device) Former() bool { return d.other.Load() != nil }

// Unguarded reports whether the switch runs a program without principals.
func (d *Device) Unguarded() bool { k := d.other.Load(); return k != nil && k.Unguarded }

// lacks reports whether the switch's program lacks a table.
func (d *Device) lacks(table string) bool {
	k := d.other.Load()
	return k != nil && slices.Contains(k.Lacks, table)
}

// ensureProgram makes a switch run this program, in one connection. A switch that holds keys and
// runs a compatible program keeps that program.
func (d *Device) ensureProgram(ctx context.Context, stream int) (p4rt.Pushed, error) {
	pipeline := d.prog.Pipeline
	running, cookie, err := d.Client.Running(ctx)
	if err != nil {
		return p4rt.Kept, err
	}
	mine := running != nil && cookie == pipeline.Cookie
	if running != nil && !mine && !d.replace.Load() {
		k := d.prog.KinOf(running)
		keys, err := d.holds(ctx, running)
		switch {
		case err != nil:
			return p4rt.Kept, err
		case k != nil && (keys > 0 || len(k.Lacks) > 0):
			d.other.Store(k)
			return p4rt.Kept, nil
		case keys > 0: // the switch runs a much earlier or later version, or another profile
			return p4rt.Kept, fmt.Errorf("it runs a program of NetCRAQ's that this controller does not know (another profile, or another "+
				"version), and is a member of a chain, with %d keys, whose values would be lost: nothing was changed. Start the "+
				"controller that it is of; or, to begin without these values, restart the switch", keys)
		}
	}
	pushed := p4rt.Kept
	if !mine {
		// The program was committed without reconciling. In that case some targets keep registers,
		// and others do not.
		pushed = p4rt.Committed
		if err := d.Client.ReloadIn(ctx, stream, pipeline); err != nil {
			return p4rt.Kept, err
		}
	}
	d.other.Store(nil)
	d.replace.Store(false)
	return pushed, nil
}

// holds returns how many keys a switch has if it runs another program and is a member of a chain.
// Replacing the program would lose the keys' values.
func (d *Device) holds(ctx context.Context, running *configv1.P4Info) (keys int, err error) {
	info := d.prog.Pipeline.Info
	for _, name := range []string{"key_index", "chain_config"} {
		if !program.SameTable(running, info.P4Info, name) {
			return 0, nil // the switch's program is not NetCRAQ's
		}
	}
	entries, err := d.Client.ReadTable(ctx, "key_index")
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	parts, err := d.Client.ReadTable(ctx, "chain_config")
	if err != nil {
		return 0, err
	}
	member := func(te *v1.TableEntry) bool {
		e, err := info.Decode(te)
		return err != nil || chain.Role(e.Param("role").Uint64()).Member()
	}
	if !slices.ContainsFunc(parts, member) {
		return 0, nil
	}
	return len(entries), nil
}

// asFormer converts an entry to an entry of the program that the switch runs. It returns nil if
// that program has no such entry. Objects that both programs have share an id, even if their names
// differ.
func (d *Device) asFormer(info *p4rt.Info, e p4rt.Entry, te *v1.TableEntry) (*v1.TableEntry, error) {
	switch {
	case d.lacks(e.Table):
		return nil, nil
	case !d.Unguarded():
		return te, nil
	}
	switch e.Table {
	case "port_trust":
		if e.Action == "open_host_port" {
			var err error
			e.Action = "host_port"
			if te, err = info.Encode(e); err != nil {
				return nil, err
			}
		}
		te.Action.GetAction().Params = nil
	case "key_index":
		te.Action.GetAction().Params = te.Action.GetAction().Params[:1] // keeps the slot, and drops the realm
	}
	return te, nil
}

// tables lists the tables of the switch that the controller fills.
func (d *Device) tables() []string {
	return slices.DeleteFunc(slices.Clone(tableplan.Tables), d.lacks)
}

// writeOpenness writes the default entry of access if it differs.
func (d *Device) writeOpenness(ctx context.Context) error {
	open := d.owner.AccessIsOpen()
	if d.Unguarded() || d.open == open {
		return nil
	}
	if err := d.writeDefault(ctx, p4rt.Entry{Table: "access", Default: true, Action: "grant",
		Params: p4rt.Params{"read": open, "write": open}}); err != nil {
		return err
	}
	d.open = open
	return nil
}

// readOpenness reads the default entry of access.
func (d *Device) readOpenness(ctx context.Context) error {
	e, ok, err := d.readDefault(ctx, "access")
	if err != nil || !ok {
		d.open = false
		return err
	}
	d.open = e.Action == "grant" && e.Param("read").Uint64() == 1
	return nil
}
