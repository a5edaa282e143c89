package sim

import (
	"context"
	"maps"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// tidy has switches that have come up agree with the directory, as the controller does: at the end
// of each step of the machine.
func (s *shell) tidy() {
	if len(s.tidying) > 0 || len(s.untidy) == 0 || !s.status.MembersReady() {
		return
	}
	untidy := ops.Tidied(s.untidy, s.status.Config)
	if len(untidy) == 0 {
		return
	}
	in := ops.Indexes{Members: s.status.Config.Members, Entries: map[string]map[wire.Key]ops.Entry{},
		Untidy: untidy, Busy: map[wire.Key]bool{}, Older: s.status.Stale && !s.tidied, Slots: maxSlots,
		Entry: s.entryOf}
	for _, d := range s.devices {
		if !s.status.Config.IsMember(d.n.name) {
			in.Others = append(in.Others, d.n.name)
		}
		in.Entries[d.n.name] = d.keyIndex
	}
	busy := maps.Clone(s.begun)
	for _, o := range s.operations {
		busy[o] = true
	}
	for o := range busy {
		for _, k := range o.Keys {
			in.Busy[k.ID] = !s.w.removed.tidyBusy
		}
	}
	s.tidied = true
	todo := ops.Tidy(s.dir, chainID, in)
	s.w.cover.add("tidy.compared", 1)
	for what, n := range map[string]int{"adopted": todo.Adopted, "forgotten": todo.Forgotten, "retired": todo.Retired} {
		s.w.cover.add("tidy."+what, n)
	}
	if todo.Adopted > 0 {
		s.ops.Equality.HasKeys(chainID)
	}
	s.m.KnowsKeys()
	if todo.Changed {
		s.saveDirectory(nil)
	}
	if len(todo.Steps) == 0 {
		return
	}
	s.tidying = todo.Keys()
	if s.w.removed.tidyBusy {
		s.tidying = map[wire.Key]bool{0: true}
	}
	s.start(func(ctx context.Context) error {
		return s.ops.Tidy(ctx, todo.Steps, func(step ops.TidyStep, err error) {
			what := map[bool]string{true: "made", false: "dropped"}[step.Insert]
			s.w.cover.add("tidy.entries "+what, len(step.Entries))
			s.w.trace(s.name, "at %s, entries %s: %v %v", step.Switch, what, step.Entries, err)
		})
	}, func(error) {
		s.tidying = nil
		s.flush()
	})
}
