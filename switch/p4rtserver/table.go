package p4rtserver

import (
	"bytes"
	"errors"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// entryState is the data that the server stores about an entry in addition to the engine's data.
type entryState struct {
	spec               *target.TableEntry
	controllerMetadata uint64
	metadata           []byte
	// set only if the entry was programmed with an ActionProfileActionSet
	oneShot *oneShot
}

// defaultState is the data that the server stores about a default entry.
type defaultState struct {
	controllerMetadata uint64
	metadata           []byte
}

func (c *config) table(id uint32) (*translate.Table, error) {
	if id == 0 {
		return nil, translate.Invalidf("the table id is missing")
	}
	if t := c.Tables[id]; t != nil {
		return t, nil
	}
	return nil, c.Unknown("table", id)
}

func (c *config) writeTableEntry(typ p4v1.Update_Type, te *p4v1.TableEntry) error {
	if name, ok := c.LeftOut[te.TableId]; ok && typ != p4v1.Update_INSERT && !te.IsDefaultAction {
		return translate.Errorf(codes.NotFound,
			"%s has no entries: the compiler has left it out of the program", name)
	}
	t, err := c.table(te.TableId)
	if err != nil {
		return err
	}
	if typ != p4v1.Update_DELETE { // A DELETE uses only the fields that identify the entry.
		if te.IsConst {
			return translate.Invalidf("is_const is the server's to set")
		}
		if te.TimeSinceLastHit != nil {
			// The text is BMv2's, and this check comes first, because tests compare the error.
			return translate.Invalidf("has_time_since_last_hit must not be set in WriteRequest")
		}
		if err := c.checkIdle(t, te); err != nil {
			return err
		}
		if err := c.checkDirect(t, te); err != nil {
			return err
		}
	}
	if te.IsDefaultAction {
		return c.writeDefault(t, typ, te)
	}
	if len(t.Keys) == 0 {
		return translate.Invalidf("table %s has no key, so it has no entries but the default", t.Name)
	}
	e, err := t.EntryKey(te)
	if err != nil {
		return err
	}
	if t.Info.IsConstTable && (typ != p4v1.Update_MODIFY || te.Action != nil) {
		return translate.Errorf(codes.PermissionDenied, "the entries of table %s are constant", t.Name)
	}
	if typ != p4v1.Update_DELETE {
		if err := translate.CheckRestrictions("table "+t.Name, t.Restrictions,
			&translate.Subject{Match: e.Match, Priority: e.Priority}); err != nil {
			return err
		}
	}
	switch typ {
	case p4v1.Update_INSERT:
		return c.insertEntry(t, te, e)
	case p4v1.Update_MODIFY:
		return c.modifyEntry(t, te, e)
	default:
		return c.deleteEntry(t, e)
	}
}

// checkDirect refuses direct resources that the table does not have.
func (c *config) checkDirect(t *translate.Table, te *p4v1.TableEntry) error {
	if te.CounterData != nil && t.Counter == nil {
		return translate.Invalidf("table %s has no direct counter", t.Name)
	}
	if te.MeterConfig != nil {
		if t.Meter == nil {
			return translate.Invalidf("table %s has no direct meter", t.Name)
		}
		if _, err := meterOf(t.Meter.Spec, te.MeterConfig); err != nil {
			return err
		}
	}
	if te.MeterCounterData != nil {
		if t.Meter == nil {
			return translate.Invalidf("table %s has no direct meter", t.Name)
		}
		return noColourCounters()
	}
	return nil
}

func (c *config) insertEntry(t *translate.Table, te *p4v1.TableEntry, e *target.TableEntry) error {
	if te.Action.GetType() == nil {
		return translate.Invalidf("an entry of table %s needs an action", t.Name)
	}
	k := translate.MatchKey(e.Match, e.Priority)
	if c.entries[t][k] != nil {
		return translate.Errorf(codes.AlreadyExists, "table %s has an entry with this match and priority",
			t.Name)
	}
	shot, err := c.setAction(t, te.Action, e)
	if err != nil {
		return err
	}
	if err := c.pipe.InsertEntry(t.Name, e); err != nil {
		c.dropOneShot(t, shot)
		return err
	}
	err = c.setDirect(t, te, e, false)
	if err == nil {
		err = c.setIdle(t, te, e)
	}
	if err != nil {
		_ = c.pipe.DeleteEntry(t.Name, e)
		c.dropOneShot(t, shot)
		return err
	}
	c.entries[t][k] = &entryState{spec: e, controllerMetadata: metadataOf(te),
		metadata: te.Metadata, oneShot: shot}
	c.refer(t, e, shot, 1)
	return nil
}

func (c *config) modifyEntry(t *translate.Table, te *p4v1.TableEntry, e *target.TableEntry) error {
	k := translate.MatchKey(e.Match, e.Priority)
	old := c.entries[t][k]
	if old == nil {
		return translate.Errorf(codes.NotFound, "table %s has no entry with this match and priority", t.Name)
	}
	if old.spec.IsConst && te.Action != nil {
		return translate.Errorf(codes.PermissionDenied, "this entry of table %s is constant", t.Name)
	}
	if te.Action == nil { // The update sets only direct resources and metadata.
		if err := errors.Join(c.setDirect(t, te, e, true), c.setIdle(t, te, e)); err != nil {
			return err
		}
		old.controllerMetadata, old.metadata = metadataOf(te), te.Metadata
		return nil
	}
	shot, err := c.setAction(t, te.Action, e)
	if err != nil {
		return err
	}
	if err := c.pipe.ModifyEntry(t.Name, e); err != nil {
		c.dropOneShot(t, shot)
		return err
	}
	c.refer(t, old.spec, old.oneShot, -1)
	c.dropOneShot(t, old.oneShot)
	c.refer(t, e, shot, 1)
	c.entries[t][k] = &entryState{spec: e, controllerMetadata: metadataOf(te),
		metadata: te.Metadata, oneShot: shot}
	return errors.Join(c.setDirect(t, te, e, true), c.setIdle(t, te, e))
}

func (c *config) deleteEntry(t *translate.Table, e *target.TableEntry) error {
	k := translate.MatchKey(e.Match, e.Priority)
	old := c.entries[t][k]
	if old == nil {
		return translate.Errorf(codes.NotFound, "table %s has no entry with this match and priority", t.Name)
	}
	if old.spec.IsConst {
		return translate.Errorf(codes.PermissionDenied, "this entry of table %s is constant", t.Name)
	}
	if err := c.pipe.DeleteEntry(t.Name, e); err != nil {
		return err
	}
	delete(c.entries[t], k)
	c.refer(t, old.spec, old.oneShot, -1)
	c.dropOneShot(t, old.oneShot)
	return nil
}

// setDirect writes the direct resources that an update of an entry contains (section 9.1.7). A
// MODIFY without a meter resets the meter.
func (c *config) setDirect(t *translate.Table, te *p4v1.TableEntry, e *target.TableEntry, modify bool) error {
	if t.Meter != nil && (te.MeterConfig != nil || modify) {
		m, err := meterOf(t.Meter.Spec, te.MeterConfig)
		if err != nil {
			return err
		}
		if err := c.pipe.SetDirectMeter(t.Name, e, m); err != nil {
			return err
		}
	}
	if te.CounterData != nil {
		return c.pipe.SetDirectCounter(t.Name, e, counterOf(te.CounterData))
	}
	return nil
}

// setAction sets an entry's action. The form of the action depends on whether the table has an
// action profile.
func (c *config) setAction(t *translate.Table, a *p4v1.TableAction, e *target.TableEntry) (*oneShot, error) {
	if a.GetType() == nil {
		return nil, translate.Invalidf("the action of the entry of table %s is empty", t.Name)
	}
	if t.ActionProfile == nil {
		direct := a.GetAction()
		if direct == nil {
			return nil,
				translate.Invalidf(
					"table %s has actions of its own, not an action profile: the entry needs an action, not %s", t.Name, translate.OneofName(a))
		}
		if err := t.Permits(c.Schema, direct.ActionId, false); err != nil {
			return nil, err
		}
		call, err := c.Call(direct)
		e.Action = call
		return nil, err
	}
	return c.setIndirect(t, a, e)
}

func (c *config) writeDefault(t *translate.Table, typ p4v1.Update_Type, te *p4v1.TableEntry) error {
	switch {
	case typ != p4v1.Update_MODIFY:
		return translate.Invalidf("the default entry of table %s can only be modified", t.Name)
	case len(te.Match) > 0 || te.Priority != 0:
		return translate.Invalidf("the default entry of table %s has neither match nor priority", t.Name)
	case t.Info.ConstDefaultActionId != 0:
		return translate.Errorf(codes.PermissionDenied, "the default action of table %s is constant", t.Name)
	case t.ActionProfile != nil:
		return translate.Errorf(codes.PermissionDenied,
			"the default action of table %s, which uses action profile %s, is always NoAction",
			t.Name, t.ActionProfile.Name)
	case te.CounterData != nil || te.MeterConfig != nil:
		return translate.Errorf(codes.Unimplemented,
			"the default entry of table %s has no direct counter or meter on this target", t.Name)
	}
	if te.Action == nil {
		if err := c.pipe.SetDefault(t.Name, nil); err != nil {
			return err
		}
		delete(c.defaults, t)
		return nil
	}
	direct := te.Action.GetAction()
	if direct == nil {
		return translate.Invalidf("the default entry of table %s needs an action", t.Name)
	}
	if err := t.Permits(c.Schema, direct.ActionId, true); err != nil {
		return err
	}
	call, err := c.Call(direct)
	if err != nil {
		return err
	}
	if err := c.pipe.SetDefault(t.Name, &target.TableEntry{Action: call}); err != nil {
		return err
	}
	c.defaults[t] = &defaultState{controllerMetadata: metadataOf(te), metadata: te.Metadata}
	return nil
}

// readTableEntries answers one TableEntry request (section 9.1.6).
func (c *config) readTableEntries(q *p4v1.TableEntry, emit func(*p4v1.Entity)) error {
	if q.TableId == 0 {
		if len(q.Match) > 0 || q.Action != nil || q.Priority != 0 || metadataOf(q) != 0 ||
			len(q.Metadata) > 0 {
			return translate.Invalidf("entries of all tables (table_id 0) cannot be filtered")
		}
		for _, t := range c.TableOrder {
			if err := c.readTable(t, q, emit); err != nil {
				return err
			}
		}
		return nil
	}
	if _, ok := c.LeftOut[q.TableId]; ok {
		return nil
	}
	t, err := c.table(q.TableId)
	if err != nil {
		return err
	}
	if err := c.checkIdle(t, q); err != nil {
		return err
	}
	if q.MeterCounterData != nil && t.Meter != nil {
		return noColourCounters()
	}
	return c.readTable(t, q, emit)
}

func (c *config) readTable(t *translate.Table, q *p4v1.TableEntry, emit func(*p4v1.Entity)) error {
	if q.IsDefaultAction {
		return c.readDefault(t, q, emit)
	}
	wanted := ""
	if len(q.Match) > 0 {
		match, err := translate.MatchOf("table "+t.Name, t.Keys, q.Match)
		if err != nil {
			return err
		}
		wanted = translate.MatchKey(match, 0)
	}
	actionID := uint32(0)
	if q.Action != nil {
		direct := q.Action.GetAction()
		if direct == nil || t.ActionProfile != nil {
			return translate.Invalidf("entries can be filtered by an action id of a direct table only")
		}
		if err := t.Permits(c.Schema, direct.ActionId, false); err != nil {
			return translate.Invalidf("%v", err)
		}
		actionID = direct.ActionId
	}
	entries, err := c.pipe.Entries(t.Name)
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if wanted != "" && translate.MatchKey(e.Match, 0) != wanted || q.Priority != 0 &&
			int(q.Priority) != e.Priority {
			continue
		}
		out, err := c.entryOf(t, e)
		if err != nil {
			return err
		}
		if actionID != 0 && out.Action.GetAction().GetActionId() != actionID ||
			metadataOf(q) != 0 && metadataOf(q) != metadataOf(out) ||
			len(q.Metadata) > 0 && !bytes.Equal(q.Metadata, out.Metadata) {
			continue
		}
		if err := c.readDirect(t, q, e, out); err != nil {
			return err
		}
		if err := c.readIdle(t, q, e, out); err != nil {
			return err
		}
		emit(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: out}})
	}
	return nil
}

// entryOf converts an entry of the engine to P4Runtime's form.
func (c *config) entryOf(t *translate.Table, e *target.TableEntry) (*p4v1.TableEntry, error) {
	out := &p4v1.TableEntry{TableId: t.ID, Match: translate.FieldsOf(t.Keys, e.Match), IsConst: e.IsConst}
	if t.NeedPriority {
		out.Priority = int32(e.Priority)
	}
	own := c.entries[t][translate.MatchKey(e.Match, e.Priority)]
	if own != nil {
		setMetadata(out, own.controllerMetadata)
		out.Metadata = own.metadata
	}
	switch {
	case own != nil && own.oneShot != nil:
		out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileActionSet{
			ActionProfileActionSet: own.oneShot.set}}
	case e.Action != nil:
		a := c.ActionOf(e.Action)
		if a == nil {
			return nil, translate.Errorf(codes.Internal,
				"an entry of table %s runs action %s, which the P4Info does not name", t.Name,
				e.Action.Action)
		}
		out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}
	case e.Member != nil:
		out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileMemberId{
			ActionProfileMemberId: *e.Member}}
	case e.Group != nil:
		out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileGroupId{
			ActionProfileGroupId: *e.Group}}
	}
	return out, nil
}

// readDirect adds the direct resources that the request selects to the answer.
func (c *config) readDirect(t *translate.Table, q *p4v1.TableEntry, e *target.TableEntry,
	out *p4v1.TableEntry) error {
	if q.CounterData != nil && t.Counter != nil {
		d, err := c.pipe.DirectCounter(t.Name, e)
		if err != nil {
			return err
		}
		out.CounterData = counterData(d)
	}
	if q.MeterConfig != nil && t.Meter != nil {
		m, err := c.pipe.DirectMeter(t.Name, e)
		if err != nil {
			return err
		}
		out.MeterConfig = meterConfig(m)
	}
	return nil
}

func (c *config) readDefault(t *translate.Table, q *p4v1.TableEntry, emit func(*p4v1.Entity)) error {
	if len(q.Match) > 0 || q.Priority != 0 {
		return translate.Invalidf("the default entry of table %s has neither match nor priority", t.Name)
	}
	e, err := c.pipe.Default(t.Name)
	if err != nil {
		return err
	}
	// a table without a default action behaves like this
	call := &target.ActionCall{Action: "NoAction"}
	if e != nil && e.Action != nil {
		call = e.Action
	}
	a := c.ActionOf(call)
	if a == nil {
		return nil // The P4Info does not contain the action.
	}
	out := &p4v1.TableEntry{
		TableId: t.ID, IsDefaultAction: true, IsConst: t.Info.ConstDefaultActionId != 0 ||
			t.ActionProfile != nil,
		Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}},
	}
	if own := c.defaults[t]; own != nil {
		setMetadata(out, own.controllerMetadata)
		out.Metadata = own.metadata
	}
	if q.Action != nil && q.Action.GetAction().GetActionId() != a.ActionId ||
		metadataOf(q) != 0 && metadataOf(q) != metadataOf(out) ||
		len(q.Metadata) > 0 && !bytes.Equal(q.Metadata, out.Metadata) {
		return nil
	}
	emit(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: out}})
	return nil
}

// controller_metadata is deprecated in favour of metadata, but the specification still requires
// support for it.

//nolint:staticcheck // see above
func metadataOf(te *p4v1.TableEntry) uint64 { return te.ControllerMetadata }

//nolint:staticcheck // see above
func setMetadata(te *p4v1.TableEntry, v uint64) { te.ControllerMetadata = v }
