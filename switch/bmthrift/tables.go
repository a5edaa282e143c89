package bmthrift

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// BmMtGetNumEntries implements the call of that name.
func (h *handler) BmMtGetNumEntries(_ context.Context, cxt int32, table string) (n int64,
	err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		_, _, all, err := h.entries(p, table)
		n = int64(len(all))
		return err
	})
	return n, h.refused("bm_mt_get_num_entries", err)
}

// BmMtClearEntries implements the call of that name.
func (h *handler) BmMtClearEntries(_ context.Context, cxt int32, table string,
	resetDefault bool) error {
	return h.refused("bm_mt_clear_entries", h.write(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		if t.Const {
			return tableError(standard.TableCode_IMMUTABLE_TABLE_ENTRIES,
				"the entries of table %s are constant", table)
		}
		for i := range all {
			if err := p.DeleteEntry(table, &all[i]); err != nil {
				return tableFailure(err, standard.TableCode_ERROR, standard.TableCode_ERROR)
			}
			hs.remove(hs.byKey[keyOf(&all[i])])
		}
		if resetDefault {
			return defaultFailure(p.SetDefault(table, nil))
		}
		return nil
	}))
}

// dataOf are the parameters of an action in as few bytes as their values take, as BMv2 says them.
func dataOf(a *target.ActionCall) standard.ActionData {
	out := standard.ActionData{}
	for _, p := range a.Params {
		for len(p) > 1 && p[0] == 0 {
			p = p[1:]
		}
		out = append(out, p)
	}
	return out
}

// actionOf describes what an entry refers to.
func actionOf(e *target.TableEntry) *standard.ActionEntry {
	a := &standard.ActionEntry{}
	switch {
	case e == nil:
	case e.Action != nil:
		a.ActionType = standard.ActionEntryType_ACTION_DATA
		a.ActionName = &e.Action.Action
		a.ActionData = dataOf(e.Action)
	case e.Member != nil:
		m := handleOf(*e.Member)
		a.ActionType, a.MbrHandle = standard.ActionEntryType_MBR_HANDLE, &m
	case e.Group != nil:
		g := handleOf(*e.Group)
		a.ActionType, a.GrpHandle = standard.ActionEntryType_GRP_HANDLE, &g
	}
	return a
}

// describe is an entry of t as the protocol has it.
func (h *handler) describe(p target.Pipeline, t *bmv2json.Table, hs *handles,
	e *target.TableEntry) *standard.Entry {
	out := &standard.Entry{MatchKey: keyOfEntry(t, e), Options: optionsOf(t, e),
		EntryHandle: hs.handleAt(hs.byKey[keyOf(e)]), ActionEntry: actionOf(e)}
	if !t.SupportTimeout {
		return out
	}
	if timeout, since, err := h.state.IdleTimeout(p, t.Name, e); err == nil {
		out.Life = &standard.EntryLife{TimeoutMs: milliseconds(timeout),
			TimeSinceHitMs: milliseconds(since)}
	}
	return out
}

// milliseconds is a duration as the protocol has it.
func milliseconds(d time.Duration) int32 { return int32(min(d.Milliseconds(), math.MaxInt32)) }

// BmMtGetEntries implements the call of that name.
func (h *handler) BmMtGetEntries(_ context.Context, cxt int32, table string) ([]*standard.Entry,
	error) {
	out := []*standard.Entry{}
	err := h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		for i := range all {
			out = append(out, h.describe(p, t, hs, &all[i]))
		}
		slices.SortFunc(out, func(a, b *standard.Entry) int {
			return int(a.EntryHandle&indexMask) - int(b.EntryHandle&indexMask)
		})
		return nil
	})
	return out, h.refused("bm_mt_get_entries", err)
}

// BmMtGetEntry implements the call of that name.
func (h *handler) BmMtGetEntry(_ context.Context, cxt int32, table string,
	handle standard.Handle) (out *standard.Entry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		i, code := hs.find(handle)
		if code != 0 {
			return tableError(code, "table %s has no entry with handle %d", table, handle)
		}
		out = h.named(p, t, hs, all, keyOf(&hs.slots[i].entry))
		return nil
	})
	return out, h.refused("bm_mt_get_entry", err)
}

// named describes the entry with a key; nil where there is none.
func (h *handler) named(p target.Pipeline, t *bmv2json.Table, hs *handles, all []target.TableEntry,
	key string) *standard.Entry {
	for i := range all {
		if keyOf(&all[i]) == key {
			return h.describe(p, t, hs, &all[i])
		}
	}
	return nil
}

// BmMtGetEntryFromKey implements the call of that name.
func (h *handler) BmMtGetEntryFromKey(_ context.Context, cxt int32, table string,
	key standard.MatchKey, options *standard.EntryOptions) (out *standard.Entry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		if len(key) == 0 {
			d, err := p.Default(table)
			if err == nil && d == nil {
				err = tableError(standard.TableCode_NO_DEFAULT_ENTRY,
					"table %s has no default entry", table)
			}
			out = &standard.Entry{MatchKey: standard.MatchKey{},
				Options: &standard.EntryOptions{}, ActionEntry: actionOf(d)}
			return err
		}
		e, err := matchOf(t, key, options)
		if err != nil {
			return err
		}
		if out = h.named(p, t, hs, all, keyOf(e)); out == nil {
			return tableError(standard.TableCode_BAD_MATCH_KEY, "table %s has no such entry", table)
		}
		return nil
	})
	return out, h.refused("bm_mt_get_entry_from_key", err)
}

// BmMtGetDefaultEntry implements the call of that name.
func (h *handler) BmMtGetDefaultEntry(_ context.Context, cxt int32,
	table string) (out *standard.ActionEntry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		if _, _, err := h.table(table); err != nil {
			return err
		}
		d, err := p.Default(table)
		out = actionOf(d)
		return err
	})
	return out, h.refused("bm_mt_get_default_entry", err)
}

// add inserts an entry.
func (h *handler) add(p target.Pipeline, table string, key standard.MatchKey,
	options *standard.EntryOptions, isDirect bool, notFound standard.TableCode,
	fill func(*bmv2json.Table, *target.TableEntry) error) (standard.Handle, error) {
	t, hs, err := h.table(table)
	if err != nil {
		return 0, err
	}
	if err := direct(t, isDirect); err != nil {
		return 0, err
	}
	e, err := matchOf(t, key, options)
	if err != nil {
		return 0, err
	}
	if err := fill(t, e); err != nil {
		return 0, err
	}
	if len(hs.slots) > indexMask && len(hs.free) == 0 {
		return 0, tableError(standard.TableCode_TABLE_FULL, "table %s has no handle left", table)
	}
	if err := p.InsertEntry(table, e); err != nil {
		return 0, tableFailure(err, notFound, standard.TableCode_ERROR)
	}
	return hs.add(e), nil
}

// BmMtAddEntry implements the call of that name.
func (h *handler) BmMtAddEntry(_ context.Context, cxt int32, table string, key standard.MatchKey,
	action string, data standard.ActionData, options *standard.EntryOptions) (handle standard.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, true, standard.TableCode_ERROR,
			func(t *bmv2json.Table, e *target.TableEntry) (err error) {
				e.Action, err = callOf(t, action, data)
				return err
			})
		return err
	})
	return handle, h.refused("bm_mt_add_entry", err)
}

// BmMtIndirectAddEntry implements the call of that name.
func (h *handler) BmMtIndirectAddEntry(_ context.Context, cxt int32, table string,
	key standard.MatchKey, member standard.Handle, options *standard.EntryOptions) (handle standard.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, false, standard.TableCode_INVALID_MBR_HANDLE,
			func(_ *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(member)
				e.Member = &id
				return nil
			})
		return err
	})
	return handle, h.refused("bm_mt_indirect_add_entry", err)
}

// BmMtIndirectWsAddEntry implements the call of that name.
func (h *handler) BmMtIndirectWsAddEntry(_ context.Context, cxt int32, table string,
	key standard.MatchKey, group standard.Handle, options *standard.EntryOptions) (handle standard.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, false, standard.TableCode_INVALID_GRP_HANDLE,
			func(t *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(group)
				e.Group = &id
				return selects(t)
			})
		return err
	})
	return handle, h.refused("bm_mt_indirect_ws_add_entry", err)
}

// selects refuses groups at a table without a selector.
func selects(t *bmv2json.Table) error {
	if t.Kind != bmv2json.TableIndirectWS {
		return tableError(standard.TableCode_WRONG_TABLE_TYPE, "table %s has no action selector",
			t.Name)
	}
	return nil
}

// modify changes what an entry runs.
func (h *handler) modify(p target.Pipeline, table string, handle standard.Handle, isDirect bool,
	notFound standard.TableCode, fill func(*bmv2json.Table, *target.TableEntry) error) error {
	t, hs, i, err := h.entry(p, table, handle)
	if err != nil {
		return err
	}
	if err := direct(t, isDirect); err != nil {
		return err
	}
	e := hs.slots[i].entry
	if err := fill(t, &e); err != nil {
		return err
	}
	return tableFailure(p.ModifyEntry(table, &e), notFound, standard.TableCode_ERROR)
}

// BmMtModifyEntry implements the call of that name.
func (h *handler) BmMtModifyEntry(_ context.Context, cxt int32, table string,
	handle standard.Handle, action string, data standard.ActionData) error {
	return h.refused("bm_mt_modify_entry", h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, true, standard.TableCode_INVALID_HANDLE,
			func(t *bmv2json.Table, e *target.TableEntry) (err error) {
				e.Action, err = callOf(t, action, data)
				return err
			})
	}))
}

// BmMtIndirectModifyEntry implements the call of that name.
func (h *handler) BmMtIndirectModifyEntry(_ context.Context, cxt int32, table string,
	handle, member standard.Handle) error {
	return h.refused("bm_mt_indirect_modify_entry", h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, false, standard.TableCode_INVALID_MBR_HANDLE,
			func(_ *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(member)
				e.Member = &id
				return nil
			})
	}))
}

// BmMtIndirectWsModifyEntry implements the call of that name.
func (h *handler) BmMtIndirectWsModifyEntry(_ context.Context, cxt int32, table string,
	handle, group standard.Handle) error {
	return h.refused("bm_mt_indirect_ws_modify_entry", h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, false, standard.TableCode_INVALID_GRP_HANDLE,
			func(t *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(group)
				e.Group = &id
				return selects(t)
			})
	}))
}

func (h *handler) remove(call string, cxt int32, table string, handle standard.Handle,
	isDirect bool) error {
	return h.refused(call, h.write(cxt, func(p target.Pipeline) error {
		t, hs, i, err := h.entry(p, table, handle)
		if err != nil {
			return err
		}
		if err := direct(t, isDirect); err != nil {
			return err
		}
		err = p.DeleteEntry(table, &hs.slots[i].entry)
		if err == nil || errors.Is(err, target.ErrNotFound) {
			hs.remove(i)
		}
		return tableFailure(err, standard.TableCode_INVALID_HANDLE, standard.TableCode_ERROR)
	}))
}

// BmMtDeleteEntry implements the call of that name.
func (h *handler) BmMtDeleteEntry(_ context.Context, cxt int32, table string,
	handle standard.Handle) error {
	return h.remove("bm_mt_delete_entry", cxt, table, handle, true)
}

// BmMtIndirectDeleteEntry implements the call of that name.
func (h *handler) BmMtIndirectDeleteEntry(_ context.Context, cxt int32, table string,
	handle standard.Handle) error {
	return h.remove("bm_mt_indirect_delete_entry", cxt, table, handle, false)
}

// BmMtSetEntryTTL implements the call of that name. 0 ms are no timeout.
func (h *handler) BmMtSetEntryTTL(_ context.Context, cxt int32, table string,
	handle standard.Handle, ms int32) error {
	return h.refused("bm_mt_set_entry_ttl", h.write(cxt, func(p target.Pipeline) error {
		t, hs, i, err := h.entry(p, table, handle)
		if err != nil {
			return err
		}
		if !t.SupportTimeout {
			return tableError(standard.TableCode_AGEING_DISABLED,
				"the program gives table %s no support_timeout", table)
		}
		err = h.state.SetIdleTimeout(p, table, &hs.slots[i].entry,
			time.Duration(ms)*time.Millisecond)
		if errors.Is(err, target.ErrUnsupported) {
			return tableError(standard.TableCode_AGEING_DISABLED, "table %s: %v", table, err)
		}
		return tableFailure(err, standard.TableCode_INVALID_HANDLE, standard.TableCode_ERROR)
	}))
}

// BmMtIndirectSetEntryTTL implements the call of that name.
func (h *handler) BmMtIndirectSetEntryTTL(ctx context.Context, cxt int32, table string,
	handle standard.Handle, ms int32) error {
	return h.BmMtSetEntryTTL(ctx, cxt, table, handle, ms)
}

// defaultFailure makes the exception for an error of SetDefault.
func defaultFailure(err error) error {
	if errors.Is(err, target.ErrImmutable) {
		return &explained{&standard.TableError{
			Code: standard.TableCode_DEFAULT_ACTION_IS_CONST}, err.Error()}
	}
	return tableFailure(err, standard.TableCode_INVALID_MBR_HANDLE, standard.TableCode_ERROR)
}

// setDefault sets a default entry; fill of nil restores the program's own.
func (h *handler) setDefault(call string, cxt int32, table string, isDirect bool,
	fill func(*bmv2json.Table, *target.TableEntry) error) error {
	return h.refused(call, h.write(cxt, func(p target.Pipeline) error {
		t, _, err := h.table(table)
		if err != nil {
			return err
		}
		if fill == nil {
			return defaultFailure(p.SetDefault(table, nil))
		}
		if err := direct(t, isDirect); err != nil {
			return err
		}
		e := &target.TableEntry{}
		if err := fill(t, e); err != nil {
			return err
		}
		return defaultFailure(p.SetDefault(table, e))
	}))
}

// BmMtSetDefaultAction implements the call of that name.
func (h *handler) BmMtSetDefaultAction(_ context.Context, cxt int32, table, action string,
	data standard.ActionData) error {
	return h.setDefault("bm_mt_set_default_action", cxt, table, true,
		func(t *bmv2json.Table, e *target.TableEntry) (err error) {
			e.Action, err = callOf(t, action, data)
			return err
		})
}

// BmMtResetDefaultEntry implements the call of that name.
func (h *handler) BmMtResetDefaultEntry(_ context.Context, cxt int32, table string) error {
	return h.setDefault("bm_mt_reset_default_entry", cxt, table, true, nil)
}

// BmMtIndirectSetDefaultMember implements the call of that name.
func (h *handler) BmMtIndirectSetDefaultMember(_ context.Context, cxt int32, table string,
	member standard.Handle) error {
	return h.setDefault("bm_mt_indirect_set_default_member", cxt, table, false,
		func(_ *bmv2json.Table, e *target.TableEntry) error {
			id := idOf(member)
			e.Member = &id
			return nil
		})
}

// BmMtIndirectWsSetDefaultGroup implements the call of that name.
func (h *handler) BmMtIndirectWsSetDefaultGroup(_ context.Context, cxt int32, table string,
	group standard.Handle) error {
	return h.setDefault("bm_mt_indirect_ws_set_default_group", cxt, table, false,
		func(t *bmv2json.Table, e *target.TableEntry) error {
			id := idOf(group)
			e.Group = &id
			return selects(t)
		})
}

// BmMtIndirectResetDefaultEntry implements the call of that name.
func (h *handler) BmMtIndirectResetDefaultEntry(_ context.Context, cxt int32,
	table string) error {
	return h.setDefault("bm_mt_indirect_reset_default_entry", cxt, table, false, nil)
}
