package bmthrift

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// BmMtGetNumEntries implements the Thrift call of the same name.
func (h *handler) BmMtGetNumEntries(cxt int32, table string) (n int64, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		_, _, all, err := h.entries(p, table)
		n = int64(len(all))
		return err
	})
	return n, err
}

// BmMtClearEntries implements the Thrift call of the same name.
func (h *handler) BmMtClearEntries(cxt int32, table string, resetDefault bool) error {
	return h.write(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		if t.Const {
			return refusal(idl.TableCodeImmutableTableEntries,
				"the entries of table %s are constant", table)
		}
		for i := range all {
			if err := p.DeleteEntry(table, &all[i]); err != nil {
				return tableFailure(err, idl.TableCodeError, idl.TableCodeError)
			}
			hs.remove(hs.byKey[keyOf(&all[i])])
		}
		if resetDefault {
			return defaultFailure(p.SetDefault(table, nil))
		}
		return nil
	})
}

// dataOf returns the parameters of an action. It encodes each in as few bytes as possible, as BMv2
// does.
func dataOf(a *target.ActionCall) idl.ActionData {
	out := idl.ActionData{}
	for _, p := range a.Params {
		for len(p) > 1 && p[0] == 0 {
			p = p[1:]
		}
		out = append(out, p)
	}
	return out
}

// actionOf converts an entry's action, member or group to Thrift's types.
func actionOf(e *target.TableEntry) (a idl.ActionEntry) {
	switch {
	case e == nil:
	case e.Action != nil:
		a.ActionType = idl.ActionEntryTypeActionData
		a.ActionName = &e.Action.Action
		a.ActionData = dataOf(e.Action)
	case e.Member != nil:
		m := handleOf(*e.Member)
		a.ActionType, a.MbrHandle = idl.ActionEntryTypeMbrHandle, &m
	case e.Group != nil:
		g := handleOf(*e.Group)
		a.ActionType, a.GrpHandle = idl.ActionEntryTypeGrpHandle, &g
	}
	return a
}

// describe converts an entry of t to Thrift's types.
func (h *handler) describe(p target.Pipeline, t *bmv2json.Table, hs *handles,
	e *target.TableEntry) idl.Entry {
	out := idl.Entry{MatchKey: keyOfEntry(t, e), Options: optionsOf(t, e),
		EntryHandle: hs.handleAt(hs.byKey[keyOf(e)]), ActionEntry: actionOf(e)}
	if !t.SupportTimeout {
		return out
	}
	if timeout, since, err := h.state.IdleTimeout(p, t.Name, e); err == nil {
		out.Life = &idl.EntryLife{TimeoutMs: milliseconds(timeout),
			TimeSinceHitMs: milliseconds(since)}
	}
	return out
}

// milliseconds converts a duration to milliseconds, the protocol's unit.
func milliseconds(d time.Duration) int32 { return int32(min(d.Milliseconds(), math.MaxInt32)) }

// BmMtGetEntries implements the Thrift call of the same name.
func (h *handler) BmMtGetEntries(cxt int32, table string) (out []idl.Entry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		for i := range all {
			out = append(out, h.describe(p, t, hs, &all[i]))
		}
		slices.SortFunc(out, func(a, b idl.Entry) int {
			return int(a.EntryHandle&indexMask) - int(b.EntryHandle&indexMask)
		})
		return nil
	})
	return out, err
}

// BmMtGetEntry implements the Thrift call of the same name.
func (h *handler) BmMtGetEntry(cxt int32, table string,
	handle idl.Handle) (out idl.Entry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		i, code := hs.find(handle)
		if code != 0 {
			return refusal(code, "table %s has no entry with handle %d", table, handle)
		}
		out, _ = h.named(p, t, hs, all, keyOf(&hs.slots[i].entry))
		return nil
	})
	return out, err
}

// named returns the entry with the given match key, if it exists.
func (h *handler) named(p target.Pipeline, t *bmv2json.Table, hs *handles, all []target.TableEntry,
	key string) (e idl.Entry, ok bool) {
	for i := range all {
		if keyOf(&all[i]) == key {
			return h.describe(p, t, hs, &all[i]), true
		}
	}
	return e, false
}

// BmMtGetEntryFromKey implements the Thrift call of the same name.
func (h *handler) BmMtGetEntryFromKey(cxt int32, table string,
	key idl.MatchKey, options idl.EntryOptions) (out idl.Entry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		t, hs, all, err := h.entries(p, table)
		if err != nil {
			return err
		}
		if len(key) == 0 {
			d, err := p.Default(table)
			if err == nil && d == nil {
				err = refusal(idl.TableCodeNoDefaultEntry, "table %s has no default entry", table)
			}
			out.ActionEntry = actionOf(d)
			return err
		}
		e, err := matchOf(t, key, options)
		if err != nil {
			return err
		}
		var ok bool
		if out, ok = h.named(p, t, hs, all, keyOf(e)); !ok {
			return refusal(idl.TableCodeBadMatchKey, "table %s has no such entry", table)
		}
		return nil
	})
	return out, err
}

// BmMtGetDefaultEntry implements the Thrift call of the same name.
func (h *handler) BmMtGetDefaultEntry(cxt int32, table string) (out idl.ActionEntry, err error) {
	err = h.read(cxt, func(p target.Pipeline) error {
		if _, _, err := h.table(table); err != nil {
			return err
		}
		d, err := p.Default(table)
		out = actionOf(d)
		return err
	})
	return out, err
}

// add inserts an entry into a table and returns the entry's handle.
func (h *handler) add(p target.Pipeline, table string, key idl.MatchKey,
	options idl.EntryOptions, isDirect bool, notFound idl.TableCode,
	fill func(*bmv2json.Table, *target.TableEntry) error) (idl.Handle, error) {
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
		return 0, refusal(idl.TableCodeTableFull, "table %s has no handle left", table)
	}
	if err := p.InsertEntry(table, e); err != nil {
		return 0, tableFailure(err, notFound, idl.TableCodeError)
	}
	return hs.add(e), nil
}

// BmMtAddEntry implements the Thrift call of the same name.
func (h *handler) BmMtAddEntry(cxt int32, table string, key idl.MatchKey,
	action string, data idl.ActionData, options idl.EntryOptions) (handle idl.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, true, idl.TableCodeError,
			func(t *bmv2json.Table, e *target.TableEntry) (err error) {
				e.Action, err = callOf(t, action, data)
				return err
			})
		return err
	})
	return handle, err
}

// BmMtIndirectAddEntry implements the Thrift call of the same name.
func (h *handler) BmMtIndirectAddEntry(cxt int32, table string,
	key idl.MatchKey, member idl.Handle, options idl.EntryOptions) (handle idl.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, false, idl.TableCodeInvalidMbrHandle,
			func(_ *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(member)
				e.Member = &id
				return nil
			})
		return err
	})
	return handle, err
}

// BmMtIndirectWsAddEntry implements the Thrift call of the same name.
func (h *handler) BmMtIndirectWsAddEntry(cxt int32, table string,
	key idl.MatchKey, group idl.Handle, options idl.EntryOptions) (handle idl.Handle,
	err error) {
	err = h.write(cxt, func(p target.Pipeline) (err error) {
		handle, err = h.add(p, table, key, options, false, idl.TableCodeInvalidGrpHandle,
			func(t *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(group)
				e.Group = &id
				return selects(t)
			})
		return err
	})
	return handle, err
}

// selects returns an error if the table has no action selector, because only a selector has groups.
func selects(t *bmv2json.Table) error {
	if t.Kind != bmv2json.TableIndirectWS {
		return refusal(idl.TableCodeWrongTableType, "table %s has no action selector", t.Name)
	}
	return nil
}

// modify changes the action of an entry.
func (h *handler) modify(p target.Pipeline, table string, handle idl.Handle, isDirect bool,
	notFound idl.TableCode, fill func(*bmv2json.Table, *target.TableEntry) error) error {
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
	return tableFailure(p.ModifyEntry(table, &e), notFound, idl.TableCodeError)
}

// BmMtModifyEntry implements the Thrift call of the same name.
func (h *handler) BmMtModifyEntry(cxt int32, table string,
	handle idl.Handle, action string, data idl.ActionData) error {
	return h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, true, idl.TableCodeInvalidHandle,
			func(t *bmv2json.Table, e *target.TableEntry) (err error) {
				e.Action, err = callOf(t, action, data)
				return err
			})
	})
}

// BmMtIndirectModifyEntry implements the Thrift call of the same name.
func (h *handler) BmMtIndirectModifyEntry(cxt int32, table string,
	handle, member idl.Handle) error {
	return h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, false, idl.TableCodeInvalidMbrHandle,
			func(_ *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(member)
				e.Member = &id
				return nil
			})
	})
}

// BmMtIndirectWsModifyEntry implements the Thrift call of the same name.
func (h *handler) BmMtIndirectWsModifyEntry(cxt int32, table string,
	handle, group idl.Handle) error {
	return h.write(cxt, func(p target.Pipeline) error {
		return h.modify(p, table, handle, false, idl.TableCodeInvalidGrpHandle,
			func(t *bmv2json.Table, e *target.TableEntry) error {
				id := idOf(group)
				e.Group = &id
				return selects(t)
			})
	})
}

func (h *handler) remove(cxt int32, table string, handle idl.Handle, isDirect bool) error {
	return h.write(cxt, func(p target.Pipeline) error {
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
		return tableFailure(err, idl.TableCodeInvalidHandle, idl.TableCodeError)
	})
}

// BmMtDeleteEntry implements the Thrift call of the same name.
func (h *handler) BmMtDeleteEntry(cxt int32, table string, handle idl.Handle) error {
	return h.remove(cxt, table, handle, true)
}

// BmMtIndirectDeleteEntry implements the Thrift call of the same name.
func (h *handler) BmMtIndirectDeleteEntry(cxt int32, table string, handle idl.Handle) error {
	return h.remove(cxt, table, handle, false)
}

// BmMtSetEntryTTL implements bm_mt_set_entry_ttl and bm_mt_indirect_set_entry_ttl. A TTL of 0 ms
// means no timeout.
func (h *handler) BmMtSetEntryTTL(cxt int32, table string, handle idl.Handle, ms int32) error {
	return h.write(cxt, func(p target.Pipeline) error {
		t, hs, i, err := h.entry(p, table, handle)
		if err != nil {
			return err
		}
		if !t.SupportTimeout {
			return refusal(idl.TableCodeAgeingDisabled,
				"the program gives table %s no support_timeout", table)
		}
		err = h.state.SetIdleTimeout(p, table, &hs.slots[i].entry,
			time.Duration(ms)*time.Millisecond)
		if errors.Is(err, target.ErrUnsupported) {
			return refusal(idl.TableCodeAgeingDisabled, "table %s: %v", table, err)
		}
		return tableFailure(err, idl.TableCodeInvalidHandle, idl.TableCodeError)
	})
}

// defaultFailure converts an error of SetDefault to an exception.
func defaultFailure(err error) error {
	if errors.Is(err, target.ErrImmutable) {
		return refusal(idl.TableCodeDefaultActionIsConst, "%v", err)
	}
	return tableFailure(err, idl.TableCodeInvalidMbrHandle, idl.TableCodeError)
}

// setDefault sets the default entry of a table. If fill is nil, setDefault restores the default
// entry that the program defines.
func (h *handler) setDefault(cxt int32, table string, isDirect bool,
	fill func(*bmv2json.Table, *target.TableEntry) error) error {
	return h.write(cxt, func(p target.Pipeline) error {
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
	})
}

// BmMtSetDefaultAction implements the Thrift call of the same name.
func (h *handler) BmMtSetDefaultAction(cxt int32, table, action string, data idl.ActionData) error {
	return h.setDefault(cxt, table, true,
		func(t *bmv2json.Table, e *target.TableEntry) (err error) {
			e.Action, err = callOf(t, action, data)
			return err
		})
}

// BmMtResetDefaultEntry implements bm_mt_reset_default_entry and
// bm_mt_indirect_reset_default_entry.
func (h *handler) BmMtResetDefaultEntry(cxt int32, table string) error {
	return h.setDefault(cxt, table, true, nil)
}

// BmMtIndirectSetDefaultMember implements the Thrift call of the same name.
func (h *handler) BmMtIndirectSetDefaultMember(cxt int32, table string, member idl.Handle) error {
	return h.setDefault(cxt, table, false, func(_ *bmv2json.Table, e *target.TableEntry) error {
		id := idOf(member)
		e.Member = &id
		return nil
	})
}

// BmMtIndirectWsSetDefaultGroup implements the Thrift call of the same name.
func (h *handler) BmMtIndirectWsSetDefaultGroup(cxt int32, table string, group idl.Handle) error {
	return h.setDefault(cxt, table, false, func(t *bmv2json.Table, e *target.TableEntry) error {
		id := idOf(group)
		e.Group = &id
		return selects(t)
	})
}
