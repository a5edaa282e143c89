package world

import (
	"context"
	"maps"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
)

// tidy makes newly connected switches agree with the directory. Like the controller, it runs at the
// end of each step of the machine.
func (s *Shell) tidy() {
	if len(s.tidying) > 0 || len(s.untidy) == 0 || !s.Status.MembersReady() {
		return
	}
	untidy := ops.Tidied(s.untidy, s.Status.Config)
	if len(untidy) == 0 {
		return
	}
	in := ops.Indexes{Members: s.Status.Config.Members, Entries: map[string]map[wire.Key]ops.Entry{},
		Untidy: untidy, Busy: map[wire.Key]bool{}, Older: s.Status.Stale && !s.tidied, Slots: MaxSlots,
		Entry: s.entryOf}
	for _, d := range s.Devices {
		if !s.Status.Config.IsMember(d.Node.Name) {
			in.Others = append(in.Others, d.Node.Name)
		}
		in.Entries[d.Node.Name] = d.keyIndex
	}
	busy := maps.Clone(s.begun)
	for _, o := range s.operations {
		busy[o] = true
	}
	for o := range busy {
		for _, k := range o.Keys {
			in.Busy[k.ID] = !s.World.Without.TidyBusy
		}
	}
	s.tidied = true
	todo := ops.Tidy(s.dir, shapes.ChainID, in)
	s.World.Cover.Count("tidy.compared", 1)
	for what, n := range map[string]int{"adopted": todo.Adopted, "forgotten": todo.Forgotten, "retired": todo.Retired} {
		s.World.Cover.Count("tidy."+what, n)
	}
	if todo.Adopted > 0 {
		s.ops.Equality.HasKeys(shapes.ChainID)
	}
	s.Machine.KnowsKeys()
	if todo.Changed {
		s.saveDirectory(nil)
	}
	if len(todo.Steps) == 0 {
		return
	}
	s.tidying = todo.Keys()
	if s.World.Without.TidyBusy {
		s.tidying = map[wire.Key]bool{0: true}
	}
	s.process.Start(func(ctx context.Context) error {
		return s.ops.Tidy(ctx, todo.Steps, func(step ops.TidyStep, err error) {
			what := map[bool]string{true: "made", false: "dropped"}[step.Insert]
			s.World.Cover.Count("tidy.entries "+what, len(step.Entries))
			s.World.Trace(s.Name, "at %s, entries %s: %v %v", step.Switch, what, step.Entries, err)
		})
	}, func(error) {
		s.tidying = nil
		s.Flush()
	})
}
