package bmthrift

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
	"github.com/netcraq/netcraq/switch/bmv2json"
)

func exact(b ...byte) idl.MatchParam {
	return idl.MatchParam{Type: idl.MatchTypeExact, Exact: &idl.ExactMatch{Key: b}}
}

func ternary(key, mask []byte) idl.MatchParam {
	return idl.MatchParam{Type: idl.MatchTypeTernary,
		Ternary: &idl.TernaryMatch{Key: key, Mask: mask}}
}

func ranging(from, to []byte) idl.MatchParam {
	return idl.MatchParam{Type: idl.MatchTypeRange,
		Range: &idl.RangeMatch{Start: from, End: to}}
}

func lpm(n int32, key ...byte) idl.MatchParam {
	return idl.MatchParam{Type: idl.MatchTypeLPM,
		LPM: &idl.LPMMatch{Key: key, PrefixLength: n}}
}

func number(n int32) *int32 { return &n }

// value returns the value of an optional field, or zero if the field is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// failed checks that a call ended with the expected code.
func failed[C ~int32](t *testing.T, what string, err error, code C) {
	t.Helper()
	var e *idl.Exception[C]
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, not %v", what, err, code)
	}
}

// get makes a call that must succeed, and returns its answer.
func get[T any](t *testing.T, c *client, name string, args ...any) T {
	t.Helper()
	v, err := ask[T](c, name, args...)
	ok(t, err)
	return v
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var mac = []byte{2, 0, 0, 0, 0, 1}

// TestEntries writes, changes and removes entries by Thrift and by P4Runtime. Each protocol must
// see the other protocol's entries.
func TestEntries(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	const table = "MyIngress.forward"
	h := get[int32](t, c, "bm_mt_add_entry", 0, table, idl.MatchKey{exact(mac...)},
		"MyIngress.send",
		idl.ActionData{{0, 7}}, idl.EntryOptions{})
	if h != 0 {
		t.Errorf("the first entry has handle %d", h)
	}
	err := c.call("bm_mt_add_entry", 0, table, idl.MatchKey{exact(mac...)}, "MyIngress.send",
		idl.ActionData{{7}}, idl.EntryOptions{})
	failed(t, "an entry twice", err, idl.TableCodeDuplicateEntry)

	// A P4Runtime client reads the entry, changes it, and adds another entry.
	got := w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "forward")}))
	if len(got) != 1 || !bytes.Equal(got[0].GetTableEntry().Match[0].GetExact().Value, mac) ||
		!bytes.Equal(got[0].GetTableEntry().Action.GetAction().Params[0].Value, []byte{7}) {
		t.Fatalf("P4Runtime reads %v", got)
	}
	send := func(port byte, dst ...byte) *p4v1.Entity {
		return entryOf(&p4v1.TableEntry{TableId: w.id(t, "forward"),
			Match: []*p4v1.FieldMatch{{FieldId: 1, FieldMatchType: &p4v1.FieldMatch_Exact_{
				Exact: &p4v1.FieldMatch_Exact{Value: dst}}}},
			Action: &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: &p4v1.Action{
				ActionId: w.id(t, "send"), Params: []*p4v1.Action_Param{
					{ParamId: 1, Value: []byte{port}}}}}}})
	}
	ok(t, w.write(t, p4v1.Update_MODIFY, send(8, mac...)))
	ok(t, w.write(t, p4v1.Update_INSERT, send(9, 2, 0, 0, 0, 0, 2)))
	e := get[idl.Entry](t, c, "bm_mt_get_entry", 0, table, h)
	if !reflect.DeepEqual(e.ActionEntry.ActionData, idl.ActionData{{8}}) {
		t.Errorf("Thrift reads %v", e)
	}
	all := get[[]idl.Entry](t, c, "bm_mt_get_entries", 0, table)
	if len(all) != 2 || all[1].EntryHandle != 1 ||
		!reflect.DeepEqual(all[1].ActionEntry.ActionData, idl.ActionData{{9}}) {
		t.Fatalf("Thrift reads %v", all)
	}
	ok(t, c.call("bm_mt_modify_entry", 0, table, 1, "MyIngress.drop", nil))
	if n := get[int64](t, c, "bm_mt_get_num_entries", 0, table); n != 2 {
		t.Errorf("%d entries", n)
	}
	ok(t, c.call("bm_mt_delete_entry", 0, table, 1))
	if got := w.read(t, send(0, 2, 0, 0, 0, 0, 2)); len(got) != 0 {
		t.Errorf("P4Runtime reads what Thrift has deleted: %v", got)
	}
	ok(t, w.write(t, p4v1.Update_DELETE, send(8, mac...)))
	failed(t, "an entry that P4Runtime has deleted", c.call("bm_mt_delete_entry", 0, table, h),
		idl.TableCodeInvalidHandle)

	// The index is used again, but the handle differs from the earlier one.
	h = get[int32](t, c, "bm_mt_add_entry", 0, table, idl.MatchKey{exact(mac...)}, "MyIngress.drop",
		nil,
		nil)
	if h != 1<<24 {
		t.Errorf("the second entry at index 0 has handle %#x", h)
	}
	failed(t, "the handle of before", c.call("bm_mt_delete_entry", 0, table, 0),
		idl.TableCodeExpiredHandle)
	e = get[idl.Entry](t, c, "bm_mt_get_entry_from_key", 0, table, idl.MatchKey{exact(mac...)}, nil)
	if e.EntryHandle != h || *e.ActionEntry.ActionName != "MyIngress.drop" {
		t.Errorf("by its key it is %v", e)
	}

	// Both protocols set default entries.
	ok(t, c.call("bm_mt_set_default_action", 0, table, "MyIngress.send", idl.ActionData{{3}}))
	got = w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "forward"), IsDefaultAction: true}))
	if len(got) != 1 || got[0].GetTableEntry().Action.GetAction().ActionId != w.id(t, "send") {
		t.Errorf("the default entry is %v", got)
	}
	ok(t, c.call("bm_mt_reset_default_entry", 0, table))
	d := get[idl.ActionEntry](t, c, "bm_mt_get_default_entry", 0, table)
	if value(d.ActionName) != "MyIngress.to_cpu" ||
		!reflect.DeepEqual(d.ActionData, idl.ActionData{{1}}) {
		t.Errorf("the program's default entry is %v", d)
	}
	failed(t, "a constant default", c.call("bm_mt_set_default_action", 0, "MyIngress.route",
		"NoAction",
		nil), idl.TableCodeDefaultActionIsConst)
	ok(t, c.call("bm_mt_clear_entries", 0, table, true))
	if n := get[int64](t, c, "bm_mt_get_num_entries", 0, table); n != 0 {
		t.Errorf("%d entries of a table that has been cleared", n)
	}
}

// TestMatches writes an entry with every match kind. In P4Runtime, its priority is inverted.
func TestMatches(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	key := idl.MatchKey{ternary([]byte{10, 1, 2, 3}, []byte{255, 0, 0, 0}),
		ranging([]byte{0, 64}, []byte{1, 0}), ternary([]byte{6}, []byte{255}), exact(0, 1)}
	h := get[int32](t, c, "bm_mt_add_entry", 0, "MyIngress.acl", key, "MyIngress.mark",
		idl.ActionData{{5}}, idl.EntryOptions{Priority: number(10)})
	got := w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "acl")}))
	if len(got) != 1 || got[0].GetTableEntry().Priority != 1<<31-1-10 {
		t.Fatalf("P4Runtime reads %v", got)
	}
	e := get[idl.Entry](t, c, "bm_mt_get_entry", 0, "MyIngress.acl", h)
	if value(e.Options.Priority) != 10 ||
		!bytes.Equal(e.MatchKey[0].Ternary.Key, []byte{10, 0, 0, 0}) {
		t.Errorf("it is %v", e)
	}
	h = get[int32](t, c, "bm_mt_add_entry", 0, "MyIngress.route", idl.MatchKey{lpm(20, 10, 1, 255,
		255)},
		"NoAction", nil, nil)
	e = get[idl.Entry](t, c, "bm_mt_get_entry", 0, "MyIngress.route", h)
	if !bytes.Equal(e.MatchKey[0].LPM.Key, []byte{10, 1, 240, 0}) {
		t.Errorf("what is behind a prefix is %v", e.MatchKey[0].LPM)
	}
	// const entries, with the priorities that the program gives them
	fixed := get[[]idl.Entry](t, c, "bm_mt_get_entries", 0, "MyIngress.fixed_ternary")
	priorities := map[int32]bool{}
	for _, e := range fixed {
		priorities[value(e.Options.Priority)] = true
	}
	if len(fixed) != 3 || !priorities[1] || !priorities[2] || !priorities[3] {
		t.Errorf("the const entries are %v", fixed)
	}
	err := c.call("bm_mt_add_entry", 0, "MyIngress.fixed", idl.MatchKey{exact(9)},
		"MyIngress.mark", idl.ActionData{{5}}, nil)
	failed(t, "an entry of a const table", err, idl.TableCodeImmutableTableEntries)

	add := func(table string, key idl.MatchKey, action string, data ...[]byte) error {
		err := c.call("bm_mt_add_entry", 0, table, key, action, data, nil)
		return err
	}
	const forward = "MyIngress.forward"
	for _, x := range []struct {
		what string
		err  error
		code idl.TableCode
	}{
		{"no table", add("nothing", nil, "NoAction"), idl.TableCodeInvalidTableName},
		{"no action", add(forward, idl.MatchKey{exact(mac...)}, "nothing"),
			idl.TableCodeInvalidActionName},
		{"no parameters", add(forward, idl.MatchKey{exact(mac...)}, "MyIngress.send"),
			idl.TableCodeBadActionData},
		{"a parameter of 10 bits", add(forward, idl.MatchKey{exact(mac...)}, "MyIngress.send",
			[]byte{2, 0}), idl.TableCodeBadActionData},
		{"no key", add(forward, nil, "MyIngress.drop"), idl.TableCodeBadMatchKey},
		{"a short key", add(forward, idl.MatchKey{exact(1)}, "MyIngress.drop"),
			idl.TableCodeBadMatchKey},
		{"another kind of key", add(forward, idl.MatchKey{lpm(8, mac...)}, "MyIngress.drop"),
			idl.TableCodeBadMatchKey},
		{"a key that says exact and is lpm", add(forward, idl.MatchKey{{
			LPM: &idl.LPMMatch{Key: mac}}}, "MyIngress.drop"),
			idl.TableCodeBadMatchKey},
		{"a prefix of 33 bits", add("MyIngress.route", idl.MatchKey{lpm(33, 1, 2, 3, 4)},
			"NoAction"), idl.TableCodeBadMatchKey},
		{"a table without a key", add("MyIngress.keyless", nil, "NoAction"),
			idl.TableCodeNoTableKey},
		{"a table with a profile", add("MyIngress.nexthop", idl.MatchKey{exact(1)},
			"NoAction"), idl.TableCodeWrongTableType},
		{"no such handle", c.call("bm_mt_delete_entry", 0, forward, 5),
			idl.TableCodeInvalidHandle},
		{"a negative handle", c.call("bm_mt_delete_entry", 0, forward, -1),
			idl.TableCodeInvalidHandle},
		{"a constant entry", c.call("bm_mt_delete_entry", 0, "MyIngress.fixed", 0),
			idl.TableCodeImmutableTableEntries},
		{"ageing", c.call("bm_mt_set_entry_ttl", 0, "MyIngress.route", h, 1000),
			idl.TableCodeAgeingDisabled},
	} {
		failed(t, x.what, x.err, x.code)
	}
	if err := add("MyIngress.fixed", idl.MatchKey{{}}, "NoAction"); err == nil {
		t.Error("a key without a type was taken")
	}
	if err := c.call("bm_mt_get_num_entries", 1, forward); err == nil {
		t.Error("context 1 was taken")
	}
}

// TestProfiles creates action profile members and groups by both protocols.
func TestProfiles(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	const profile, table = "MyIngress.ecmp", "MyIngress.balance"
	m0 := get[int32](t, c, "bm_mt_act_prof_add_member", 0, profile, "MyIngress.send_plain",
		idl.ActionData{{1}})
	m1 := get[int32](t, c, "bm_mt_act_prof_add_member", 0, profile, "MyIngress.send_plain",
		idl.ActionData{{2}})
	g := get[int32](t, c, "bm_mt_act_prof_create_group", 0, profile)
	if m0 != 0 || m1 != 1 || g != 0 {
		t.Errorf("members %d and %d, group %d", m0, m1, g)
	}
	ok(t, c.call("bm_mt_act_prof_add_member_to_group", 0, profile, m0, g))
	ok(t, c.call("bm_mt_act_prof_add_member_to_group", 0, profile, m1, g))
	failed(t, "a member twice", c.call("bm_mt_act_prof_add_member_to_group", 0, profile, m1, g),
		idl.TableCodeMbrAlreadyInGrp)
	dst := []byte{10, 0, 0, 1}
	h := get[int32](t, c, "bm_mt_indirect_ws_add_entry", 0, table, idl.MatchKey{exact(dst...)}, g,
		nil)
	failed(t, "a group in use", c.call("bm_mt_act_prof_delete_group", 0, profile, g),
		idl.TableCodeGrpStillUsed)
	failed(t, "a member in use", c.call("bm_mt_act_prof_delete_member", 0, profile, m0),
		idl.TableCodeMbrStillUsed)

	groups := w.read(t, &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{
		ActionProfileGroup: &p4v1.ActionProfileGroup{ActionProfileId: w.id(t, "ecmp")}}})
	if len(groups) != 1 || len(groups[0].GetActionProfileGroup().Members) != 2 ||
		groups[0].GetActionProfileGroup().GroupId != 1 {
		t.Fatalf("P4Runtime reads %v", groups)
	}
	member := func(id uint32, port byte) *p4v1.Entity {
		return &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{
			ActionProfileMember: &p4v1.ActionProfileMember{ActionProfileId: w.id(t, "ecmp"),
				MemberId: id, Action: &p4v1.Action{ActionId: w.id(t, "send_plain"),
					Params: []*p4v1.Action_Param{{ParamId: 1, Value: []byte{port}}}}}}}
	}
	ok(t, w.write(t, p4v1.Update_INSERT, member(3, 9)))
	ok(t, w.write(t, p4v1.Update_MODIFY, member(1, 7)))
	if err := w.write(t, p4v1.Update_DELETE, member(1, 0)); err == nil {
		t.Error("P4Runtime deletes a member that Thrift has put into a group")
	}
	all := get[[]idl.Member](t, c, "bm_mt_act_prof_get_members", 0, profile)
	if len(all) != 3 || all[2].MbrHandle != 2 || !bytes.Equal(all[0].ActionData[0], []byte{7}) {
		t.Errorf("Thrift reads %v", all)
	}
	ok(t, c.call("bm_mt_indirect_modify_entry", 0, table, h, 2))
	e := get[idl.Entry](t, c, "bm_mt_get_entry", 0, table, h)
	if value(e.ActionEntry.MbrHandle) != 2 {
		t.Errorf("the entry is %v", e)
	}
	if err := w.write(t, p4v1.Update_DELETE, member(3, 0)); err == nil {
		t.Error("P4Runtime deletes a member to which Thrift's entry refers")
	}
	ok(t, c.call("bm_mt_indirect_delete_entry", 0, table, h))
	ok(t, c.call("bm_mt_act_prof_remove_member_from_group", 0, profile, m1, g))
	failed(t, "a member that is not in it", c.call("bm_mt_act_prof_remove_member_from_group", 0,
		profile, m1,
		g), idl.TableCodeMbrNotInGrp)
	if got := get[idl.Group](t, c, "bm_mt_act_prof_get_group", 0, profile,
		g); len(got.MbrHandles) != 1 {
		t.Errorf("the group is %v", got)
	}
	ok(t, c.call("bm_mt_act_prof_delete_group", 0, profile, g))
	ok(t, w.write(t, p4v1.Update_DELETE, member(3, 0)))
	ok(t, c.call("bm_mt_act_prof_delete_member", 0, profile, m0))
	err := c.call("bm_mt_act_prof_create_group", 0, "MyIngress.nexthops")
	failed(t, "a group without a selector", err, idl.TableCodeNoActionProfileSelection)
	err = c.call("bm_mt_act_prof_get_members", 0, "nothing")
	failed(t, "no profile", err, idl.TableCodeInvalidActionProfileName)
	err = c.call("bm_mt_indirect_add_entry", 0, table, idl.MatchKey{exact(dst...)}, 77, nil)
	failed(t, "no member", err, idl.TableCodeInvalidMbrHandle)
	err = c.call("bm_mt_indirect_ws_add_entry", 0, "MyIngress.nexthop", idl.MatchKey{exact(1)}, 0,
		nil)
	failed(t, "a group where there is no selector", err, idl.TableCodeWrongTableType)
}

// TestArrays reads and writes registers, counters, meters and value sets.
func TestArrays(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	ok(t, c.call("bm_register_write", 0, "MyIngress.last_len", 3, 1<<32-1))
	ok(t, c.call("bm_register_write_range", 0, "MyIngress.narrow", 2, 5, -1))
	ok(t, c.call("bm_register_write", 0, "MyIngress.deltas", 1, -300))
	ok(t, c.call("bm_register_write", 0, "MyIngress.objects", 0, 77))
	if v := get[int64](t, c, "bm_register_read", 0, "MyIngress.last_len", 3); v != 1<<32-1 {
		t.Errorf("last_len[3] is %d", v)
	}
	if v := get[[]int64](t, c, "bm_register_read_all", 0, "MyIngress.narrow"); !reflect.DeepEqual(v,
		[]int64{0, 0, 511, 511, 511, 0, 0, 0}) {
		t.Errorf("narrow is %v", v)
	}
	if v := get[int64](t, c, "bm_register_read", 0, "MyIngress.deltas", 1); v != 1<<16-300 {
		// p4c's JSON does not say that the register's cells are signed
		t.Errorf("deltas[1] is %d", v)
	}
	if v := get[int64](t, c, "bm_register_read", 0, "MyIngress.objects", 0); v != 77 {
		t.Errorf("objects[0] is %d", v)
	}
	ok(t, w.write(t, p4v1.Update_MODIFY, &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{
		RegisterEntry: &p4v1.RegisterEntry{RegisterId: w.id(t, "objects"),
			Index: &p4v1.Index{Index: 0}, Data: &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{
				Bitstring: append([]byte{1}, make([]byte, 8)...)}}}}}))
	err := c.call("bm_register_read", 0, "MyIngress.objects", 0)
	failed(t, "a value of 65 bits", err, idl.RegisterCodeError)
	ok(t, c.call("bm_register_reset", 0, "MyIngress.objects"))
	if v := get[int64](t, c, "bm_register_read", 0, "MyIngress.objects", 0); v != 0 {
		t.Errorf("after a reset objects[0] is %d", v)
	}
	err = c.call("bm_register_read", 0, "nothing", 0)
	failed(t, "no register", err, idl.RegisterCodeInvalidRegisterName)
	err = c.call("bm_register_read", 0, "MyIngress.narrow", 8)
	failed(t, "index 8 of 8", err, idl.RegisterCodeInvalidIndex)
	err = c.call("bm_register_read", 0, "MyIngress.narrow", -1)
	failed(t, "index -1", err, idl.RegisterCodeInvalidIndex)
	failed(t, "a range past the end",
		c.call("bm_register_write_range", 0, "MyIngress.narrow", 7, 9, 0),
		idl.RegisterCodeInvalidIndex)

	ok(t, c.call("bm_counter_write", 0, "MyIngress.pkts", 5, idl.CounterValue{Bytes: 640,
		Packets: 10}))
	if v := get[idl.CounterValue](t, c, "bm_counter_read", 0, "MyIngress.pkts",
		5); v.Bytes != 640 ||
		v.Packets != 10 {
		t.Errorf("pkts[5] is %v", v)
	}
	ok(t, c.call("bm_counter_reset_all", 0, "MyIngress.pkts"))
	if v := get[idl.CounterValue](t, c, "bm_counter_read", 0, "MyIngress.pkts", 5); v.Bytes != 0 {
		t.Errorf("after a reset pkts[5] is %v", v)
	}
	var ce *idl.Exception[idl.CounterCode]
	if err := c.call("bm_counter_read", 0, "MyIngress.pkts", 512); !errors.As(err, &ce) ||
		ce.Code != idl.CounterCodeInvalidIndex {
		t.Errorf("index 512 of 512: %v", err)
	}
	if err := c.call("bm_counter_write", 0, "MyIngress.pkts", 0,
		idl.CounterValue{Bytes: -1}); !errors.As(err, &ce) {
		t.Errorf("a negative count: %v", err)
	}
	h := get[int32](t, c, "bm_mt_add_entry", 0, "MyIngress.forward", idl.MatchKey{exact(mac...)},
		"MyIngress.drop", nil, nil)
	ok(t, c.call("bm_mt_write_counter", 0, "MyIngress.forward", h, idl.CounterValue{Packets: 3}))
	if v := get[idl.CounterValue](t, c, "bm_mt_read_counter", 0, "MyIngress.forward",
		h); v.Packets != 3 {
		t.Errorf("the direct counter is %v", v)
	}
	ok(t, c.call("bm_mt_reset_counters", 0, "MyIngress.forward"))
	if v := get[idl.CounterValue](t, c, "bm_mt_read_counter", 0, "MyIngress.forward",
		h); v.Packets != 0 {
		t.Errorf("after a reset the direct counter is %v", v)
	}
	err = c.call("bm_mt_read_counter", 0, "MyIngress.fixed", 0)
	failed(t, "a table without counters", err, idl.TableCodeCountersDisabled)

	rates := []idl.MeterRate{{UnitsPerMicros: 0.0001, BurstSize: 5},
		{UnitsPerMicros: 0.5, BurstSize: 9}}
	ok(t, c.call("bm_meter_set_rates", 0, "MyIngress.port_meter", 2, rates))
	if v := get[[]idl.MeterRate](t, c, "bm_meter_get_rates", 0, "MyIngress.port_meter",
		2); len(v) != 2 ||
		v[0].UnitsPerMicros != 0.0001 || v[1].BurstSize != 9 {
		t.Errorf("the rates are %v", v)
	}
	ok(t, c.call("bm_meter_array_set_rates", 0, "MyIngress.port_meter", rates))
	if v := get[[]idl.MeterRate](t, c, "bm_meter_get_rates", 0, "MyIngress.port_meter",
		15); len(v) != 2 {
		t.Errorf("the rates of all are %v", v)
	}
	var me *idl.Exception[idl.MeterCode]
	err = c.call("bm_meter_set_rates", 0, "MyIngress.port_meter", 2, rates[:1])
	if !errors.As(err, &me) || me.Code != idl.MeterCodeBadRatesList {
		t.Errorf("one rate: %v", err)
	}
	rates[0].UnitsPerMicros = 1
	err = c.call("bm_meter_set_rates", 0, "MyIngress.port_meter", 2, rates)
	if !errors.As(err, &me) || me.Code != idl.MeterCodeInvalidInfoRateValue {
		t.Errorf("a peak rate below the committed one: %v", err)
	}
	rates[0].UnitsPerMicros = -1
	err = c.call("bm_meter_set_rates", 0, "MyIngress.port_meter", 2, rates)
	if !errors.As(err, &me) || me.Code != idl.MeterCodeInvalidInfoRateValue {
		t.Errorf("a negative rate: %v", err)
	}

	ok(t, c.call("bm_parse_vset_add", 0, "MyParser.trill_types", []byte{0x22, 0xf3}))
	ok(t, c.call("bm_parse_vset_add", 0, "MyParser.trill_types", []byte{0x22, 0xf4}))
	ok(t, c.call("bm_parse_vset_remove", 0, "MyParser.trill_types", []byte{0x22, 0xf3}))
	if v := get[[][]byte](t, c, "bm_parse_vset_get", 0,
		"MyParser.trill_types"); !reflect.DeepEqual(v,
		[][]byte{{0x22, 0xf4}}) {
		t.Errorf("the value set is %x", v)
	}
	ok(t, c.call("bm_parse_vset_clear", 0, "MyParser.trill_types"))
	if v := get[[][]byte](t, c, "bm_parse_vset_get", 0, "MyParser.trill_types"); len(v) != 0 {
		t.Errorf("the value set is %x", v)
	}
	var ve *idl.Exception[idl.ValueSetCode]
	if err := c.call("bm_parse_vset_add", 0, "MyParser.trill_types", []byte{1, 0,
		0}); !errors.As(err, &ve) {
		t.Errorf("a value of 17 bits: %v", err)
	}
}

// TestReplication creates multicast groups and mirroring sessions by both protocols.
func TestReplication(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	ok(t, c.call("simple_pre_lag:bm_mc_mgrp_create", 0, 5))
	n := get[int32](t, c, "simple_pre_lag:bm_mc_node_create", 0, 9, "110", "1")
	ok(t, c.call("simple_pre_lag:bm_mc_node_associate", 0, 5, n))
	read := func() map[[2]uint32]bool {
		out := map[[2]uint32]bool{}
		for _, e := range w.read(t, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
					MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: 5}}}}}) {
			for _, r := range e.GetPacketReplicationEngineEntry().GetMulticastGroupEntry().Replicas {
				out[[2]uint32{uint32(r.GetPort()[0]), r.Instance}] = true
			}
		}
		return out
	}
	if got := read(); !reflect.DeepEqual(got, map[[2]uint32]bool{{1, 9}: true, {2, 9}: true}) {
		t.Errorf("P4Runtime reads %v", got)
	}
	// A link aggregation group contributes only the port that BMv2 selects.
	ok(t, c.call("simple_pre_lag:bm_mc_set_lag_membership", 0, 0, "11000"))
	if got := read(); !got[[2]uint32{4, 9}] || len(got) != 3 {
		t.Errorf("with a link aggregation group it is %v", got)
	}
	ok(t, c.call("simple_switch:mirroring_session_add", 7, idl.MirroringConfig{Mgid: number(5)}))
	session := func(id uint32) int {
		for _, e := range w.read(t, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
					CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: id}}}}}) {
			return len(e.GetPacketReplicationEngineEntry().GetCloneSessionEntry().Replicas)
		}
		return -1
	}
	if n := session(7); n != 3 {
		t.Errorf("a session to the group has %d copies", n)
	}
	// A P4Runtime client changes the group. The mirroring session and the nodes must follow.
	replica := func(port, instance uint32) *p4v1.Replica {
		return &p4v1.Replica{PortKind: &p4v1.Replica_Port{Port: []byte{byte(port)}},
			Instance: instance}
	}
	ok(t, w.write(t, p4v1.Update_MODIFY, &p4v1.Entity{
		Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
				Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
					MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: 5,
						Replicas: []*p4v1.Replica{replica(1, 1), replica(2, 1), replica(3, 2),
							replica(6, 2)}}}}}}))
	if n := session(7); n != 4 {
		t.Errorf("after the group has changed the session has %d copies", n)
	}
	const want = `{"mgrps":[{"id":5,"l1_handles":[0,1]}],` +
		`"l1_handles":[{"handle":0,"rid":1,"l2_handle":0},{"handle":1,"rid":2,"l2_handle":1}],` +
		`"l2_handles":[{"handle":0,"ports":[1,2],"lags":[]},{"handle":1,"ports":[3,6],"lags":[]}],` +
		`"lags":[{"id":0,"ports":[3,4]}]}`
	if got := get[string](t, c, "simple_pre_lag:bm_mc_get_entries", 0); got != want {
		t.Errorf("multicast is %s", got)
	}
	if got := get[string](t, c, "simple_pre:bm_mc_get_entries", 0); got != want {
		t.Errorf("simple_pre has %s", got)
	}
	ok(t, c.call("simple_pre_lag:bm_mc_node_dissociate", 0, 5, 1))
	ok(t, c.call("simple_pre:bm_mc_node_update", 0, 0, "1000000"))
	if got := read(); !reflect.DeepEqual(got, map[[2]uint32]bool{{6, 1}: true}) {
		t.Errorf("after the changes it is %v", got)
	}
	ok(t, c.call("simple_pre_lag:bm_mc_node_destroy", 0, 0))
	ok(t, c.call("simple_pre_lag:bm_mc_mgrp_destroy", 0, 5))
	for what, err := range map[string]error{
		"group 0":        c.call("simple_pre_lag:bm_mc_mgrp_create", 0, 0),
		"group 65536":    c.call("simple_pre_lag:bm_mc_mgrp_create", 0, 65536),
		"no group":       c.call("simple_pre_lag:bm_mc_mgrp_destroy", 0, 5),
		"no node":        c.call("simple_pre_lag:bm_mc_node_destroy", 0, 99),
		"a map of x":     c.call("simple_pre_lag:bm_mc_node_create", 0, 1, "x", ""),
		"rid 65536":      c.call("simple_pre_lag:bm_mc_node_create", 0, 65536, "1", ""),
		"a map too long": c.call("simple_pre_lag:bm_mc_node_create", 0, 1, string(make([]byte, 513)), ""),
	} {
		var e *idl.Exception[idl.MulticastCode]
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}

	ok(t, c.call("simple_switch:mirroring_session_add", 0, idl.MirroringConfig{Port: number(3)}))
	if m := get[idl.MirroringConfig](t, c, "simple_switch:mirroring_session_get",
		0); value(m.Port) != 3 || m.Mgid != nil {
		t.Errorf("session 0 is %v", m)
	}
	ok(t, c.call("simple_switch:mirroring_session_delete", 0))
	var e *idl.Exception[idl.MirroringCode]
	if err := c.call("simple_switch:mirroring_session_delete", 0); !errors.As(err, &e) {
		t.Errorf("a session twice deleted: %v", err)
	}
	if err := c.call("simple_switch:mirroring_session_add", 40000,
		idl.MirroringConfig{Port: number(3)}); !errors.As(err, &e) {
		t.Errorf("session 40000: %v", err)
	}
	if n := get[int32](t, c, "simple_switch:mirroring_mapping_add", 3, 4); n != 0 {
		t.Errorf("the older call says %d", n)
	}
	if n := get[int32](t, c, "simple_switch:mirroring_mapping_get_egress_port", 3); n != 4 {
		t.Errorf("the older call says port %d", n)
	}
}

// TestPrograms loads, swaps and resets programs.
func TestPrograms(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	c := w.dial(t)
	if got := get[string](t, c, "bm_get_config"); got != string(w.json) {
		t.Errorf("the program's source has %d bytes, not %d", len(got), len(w.json))
	}
	var se *idl.Exception[idl.SwapCode]
	if err := c.call("bm_swap_configs"); !errors.As(err, &se) ||
		se.Code != idl.SwapCodeNoOngoingSwap {
		t.Errorf("a swap to nothing: %v", err)
	}
	ok(t, c.call("bm_register_write", 0, "MyIngress.narrow", 0, 5))
	ok(t, c.call("bm_load_new_config", string(w.json)))
	if v := get[int64](t, c, "bm_register_read", 0, "MyIngress.narrow", 0); v != 0 {
		t.Errorf("what is loaded has a register of %d", v)
	}
	h := get[int32](t, c, "bm_mt_add_entry", 0, "MyIngress.forward", idl.MatchKey{exact(mac...)},
		"MyIngress.drop", nil, nil)
	ok(t, c.call("bm_swap_configs"))
	ok(t, c.call("bm_mt_modify_entry", 0, "MyIngress.forward", h, "MyIngress.send",
		idl.ActionData{{1}}))
	ok(t, c.call("bm_reset_state"))
	if n := get[int64](t, c, "bm_mt_get_num_entries", 0, "MyIngress.forward"); n != 0 {
		t.Errorf("%d entries after a reset", n)
	}
	var ae thrift.TApplicationException
	if err := c.call("bm_load_new_config", "{}"); !errors.As(err, &ae) {
		t.Errorf("a program of nothing: %v", err)
	}
	if err := c.call("bm_serialize_state"); !errors.As(err, &ae) {
		t.Errorf("what this switch does not have: %v", err)
	}
	if id := get[int32](t, c, "bm_get_id_from_name", 0, idl.ResourceTypeRegister,
		"MyIngress.narrow"); id != 1 {
		t.Errorf("the register's id is %d", id)
	}
	a, b := get[int64](t, c, "simple_switch:get_time_elapsed_us"), get[int64](t, c,
		"simple_switch:get_time_since_epoch_us")
	if a <= 0 || b < 1e15 {
		t.Errorf("the clock says %d and %d us", a, b)
	}
	if info := get[idl.SwitchInfo](t, c, "bm_mgmt_get_info"); info.DeviceID != 1 ||
		info.ThriftPort == 0 {
		t.Errorf("the switch is %v", info)
	}

	var le *idl.Exception[idl.LearnCode]
	if err := c.call("bm_learning_ack_buffer", 0, 99, 0); !errors.As(err, &le) ||
		le.Code != idl.LearnCodeInvalidListID {
		t.Errorf("a list that there is not: %v", err)
	}
	if err := c.call("bm_learning_set_timeout", 0, 1, 5); !errors.As(err, &ae) {
		t.Errorf("learning where nobody is notified: %v", err)
	}

	// If the program has a P4Info, a reset keeps P4Runtime's configuration.
	w = newWorld(t, func(w *world) {
		w.options.SwapDisabled, w.options.Publisher = true, deaf{}
		w.options.Notifications = "ipc:///nowhere"
	})
	c = w.dial(t)
	if info := get[idl.SwitchInfo](t, c,
		"bm_mgmt_get_info"); value(info.NotificationsSocket) != "ipc:///nowhere" {
		t.Errorf("the switch is %v", info)
	}
	ok(t, c.call("bm_learning_set_timeout", 0, 1, 5))
	ok(t, c.call("bm_learning_set_buffer_size", 0, 1, 5))
	ok(t, c.call("bm_learning_ack", 0, 1, 5, []int32{1, 2}))
	ok(t, c.call("bm_learning_ack_buffer", 0, 1, 5))
	for _, n := range []int32{0, -1, 1 << 20} {
		if err := c.call("bm_learning_set_buffer_size", 0, 1, n); !errors.As(err, &le) {
			t.Errorf("a buffer of %d samples: %v", n, err)
		}
	}
	ok(t, c.call("bm_reset_state"))
	if n := len(w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "fixed")}))); n != 2 {
		t.Errorf("P4Runtime reads %d const entries after a reset", n)
	}
	if err := c.call("bm_load_new_config", string(w.json)); !errors.As(err, &se) ||
		se.Code != idl.SwapCodeConfigSwapDisabled {
		t.Errorf("a program with --disable-swap: %v", err)
	}
}

// TestCRC changes the parameters of the custom CRCs of a program.
func TestCRC(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	c := w.dial(t)
	json, err := os.ReadFile("../ebpf/testdata/hashes.json")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := bmv2json.Parse(json)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, c.call("bm_load_new_config", string(json)))
	ok(t, c.call("bm_swap_configs"))
	var e *idl.Exception[idl.CRCCode]
	done := map[string]bool{}
	for _, k := range prog.Calculations {
		err16 := c.call("bm_set_crc16_custom_parameters", 0, k.Name, idl.CRC16Config{Polynomial: 1})
		err32 := c.call("bm_set_crc32_custom_parameters", 0, k.Name, idl.CRC32Config{Polynomial: 1})
		for algo, err := range map[string]error{"crc16_custom": err16, "crc32_custom": err32} {
			if k.Algo == algo {
				ok(t, err)
				done[algo] = true
			} else if !errors.As(err, &e) || e.Code != idl.CRCCodeWrongTypeCalculation {
				t.Errorf("%s of a %s: %v", algo, k.Algo, err)
			}
		}
	}
	if len(done) != 2 {
		t.Errorf("the program has only %v", done)
	}
	if err := c.call("bm_set_crc32_custom_parameters", 0, "nothing",
		idl.CRC32Config{}); !errors.As(err, &e) ||
		e.Code != idl.CRCCodeInvalidCalculationName {
		t.Errorf("no such calculation: %v", err)
	}
}

// deaf is a Publisher that drops every message.
type deaf struct{}

func (deaf) Publish([]byte) {}

// TestQueues sets rates and depths of queues. In this test each port has one queue. The server must
// report impossible values by exceptions, because clients check nothing else.
func TestQueues(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	for name, call := range map[string][]any{
		"a rate":        {"simple_switch:set_egress_queue_rate", 1, 100},
		"none":          {"simple_switch:set_egress_queue_rate", 1, 0},
		"all":           {"simple_switch:set_all_egress_queue_rates", 1000},
		"a priority":    {"simple_switch:set_egress_priority_queue_rate", 1, 0, 5},
		"a depth":       {"simple_switch:set_egress_queue_depth", 1, 100},
		"a priority's":  {"simple_switch:set_egress_priority_queue_depth", 1, 0, 5},
		"every depth":   {"simple_switch:set_all_egress_queue_depths", 5},
		"a depth of 0":  {"simple_switch:set_all_egress_queue_depths", 0},
		"a later port":  {"simple_switch:set_egress_queue_rate", 500, 100},
		"the CPU's too": {"simple_switch:set_egress_queue_rate", 255, 100},
	} {
		if n, err := ask[int32](c, call[0].(string), call[1:]...); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	for name, call := range map[string][]any{
		"no such priority": {"simple_switch:set_egress_priority_queue_rate", 1, 1, 5},
		"a negative one":   {"simple_switch:set_egress_priority_queue_rate", 1, -1, 5},
		"a negative rate":  {"simple_switch:set_egress_queue_rate", 1, -1},
		"a negative port":  {"simple_switch:set_egress_queue_rate", -1, 1},
		"a negative depth": {"simple_switch:set_egress_queue_depth", 1, -1},
		"a huge depth":     {"simple_switch:set_all_egress_queue_depths", 1 << 30},
	} {
		var ae thrift.TApplicationException
		if err := c.call(call[0].(string), call[1:]...); !errors.As(err, &ae) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoP4Info loads a program without a P4Info. P4Runtime must then report that no configuration
// is set, so that p4-utils pushes one.
func TestNoP4Info(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	ask := &p4v1.GetForwardingPipelineConfigRequest{DeviceId: 1}
	_, err := w.p4rt.GetForwardingPipelineConfig(t.Context(), ask)
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a P4Info: %v", err)
	}
	ok(t, w.server.Load(&p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.json}))
	got, err := w.p4rt.GetForwardingPipelineConfig(t.Context(), ask)
	ok(t, err)
	if got.Config == nil {
		t.Error("with one: nothing")
	}
}
