package bmthrift_test

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

	"github.com/netcraq/netcraq/switch/bmthrift/gen/simpleprelag"
	"github.com/netcraq/netcraq/switch/bmthrift/gen/simpleswitch"
	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
	"github.com/netcraq/netcraq/switch/bmv2json"
)

func exact(b ...byte) *standard.MatchParam {
	return &standard.MatchParam{Type: standard.MatchType_EXACT, Exact: &standard.ExactMatch{Key: b}}
}

func ternary(key, mask []byte) *standard.MatchParam {
	return &standard.MatchParam{Type: standard.MatchType_TERNARY,
		Ternary: &standard.TernaryMatch{Key: key, Mask: mask}}
}

func ranging(from, to []byte) *standard.MatchParam {
	return &standard.MatchParam{Type: standard.MatchType_RANGE,
		Range: &standard.RangeMatch{Start: from, End_: to}}
}

func lpm(n int32, key ...byte) *standard.MatchParam {
	return &standard.MatchParam{Type: standard.MatchType_LPM,
		Lpm: &standard.LPMMatch{Key: key, PrefixLength: n}}
}

func number(n int32) *int32 { return &n }

// failed checks that a call of a table ended with a code.
func failed(t *testing.T, what string, err error, code standard.TableCode) {
	t.Helper()
	var e *standard.TableError
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, not %v", what, err, code)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var mac = []byte{2, 0, 0, 0, 0, 1}

// TestEntries writes, changes and removes entries by Thrift and by P4Runtime, each those of the
// other.
func TestEntries(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.dial(t), t.Context()
	const table = "MyIngress.forward"
	h := must(c.BmMtAddEntry(ctx, 0, table, standard.MatchKey{exact(mac...)}, "MyIngress.send",
		standard.ActionData{{0, 7}}, &standard.EntryOptions{}))(t)
	if h != 0 {
		t.Errorf("the first entry has handle %d", h)
	}
	_, err := c.BmMtAddEntry(ctx, 0, table, standard.MatchKey{exact(mac...)}, "MyIngress.send",
		standard.ActionData{{7}}, &standard.EntryOptions{})
	failed(t, "an entry twice", err, standard.TableCode_DUPLICATE_ENTRY)

	// P4Runtime sees it, changes it, and has one of its own.
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
	e := must(c.BmMtGetEntry(ctx, 0, table, h))(t)
	if !reflect.DeepEqual(e.ActionEntry.ActionData, standard.ActionData{{8}}) {
		t.Errorf("Thrift reads %v", e)
	}
	all := must(c.BmMtGetEntries(ctx, 0, table))(t)
	if len(all) != 2 || all[1].EntryHandle != 1 ||
		!reflect.DeepEqual(all[1].ActionEntry.ActionData, standard.ActionData{{9}}) {
		t.Fatalf("Thrift reads %v", all)
	}
	ok(t, c.BmMtModifyEntry(ctx, 0, table, 1, "MyIngress.drop", nil))
	if n := must(c.BmMtGetNumEntries(ctx, 0, table))(t); n != 2 {
		t.Errorf("%d entries", n)
	}
	ok(t, c.BmMtDeleteEntry(ctx, 0, table, 1))
	if got := w.read(t, send(0, 2, 0, 0, 0, 0, 2)); len(got) != 0 {
		t.Errorf("P4Runtime reads what Thrift has deleted: %v", got)
	}
	ok(t, w.write(t, p4v1.Update_DELETE, send(8, mac...)))
	failed(t, "an entry that P4Runtime has deleted", c.BmMtDeleteEntry(ctx, 0, table, h),
		standard.TableCode_INVALID_HANDLE)

	// The index is used again, the handle is not.
	h = must(c.BmMtAddEntry(ctx, 0, table, standard.MatchKey{exact(mac...)}, "MyIngress.drop", nil,
		nil))(t)
	if h != 1<<24 {
		t.Errorf("the second entry at index 0 has handle %#x", h)
	}
	failed(t, "the handle of before", c.BmMtDeleteEntry(ctx, 0, table, 0),
		standard.TableCode_EXPIRED_HANDLE)
	e = must(c.BmMtGetEntryFromKey(ctx, 0, table, standard.MatchKey{exact(mac...)}, nil))(t)
	if e.EntryHandle != h || *e.ActionEntry.ActionName != "MyIngress.drop" {
		t.Errorf("by its key it is %v", e)
	}

	// Defaults, both ways.
	ok(t, c.BmMtSetDefaultAction(ctx, 0, table, "MyIngress.send", standard.ActionData{{3}}))
	got = w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "forward"), IsDefaultAction: true}))
	if len(got) != 1 || got[0].GetTableEntry().Action.GetAction().ActionId != w.id(t, "send") {
		t.Errorf("the default entry is %v", got)
	}
	ok(t, c.BmMtResetDefaultEntry(ctx, 0, table))
	d := must(c.BmMtGetDefaultEntry(ctx, 0, table))(t)
	if d.GetActionName() != "MyIngress.to_cpu" ||
		!reflect.DeepEqual(d.ActionData, standard.ActionData{{1}}) {
		t.Errorf("the program's default entry is %v", d)
	}
	failed(t, "a constant default", c.BmMtSetDefaultAction(ctx, 0, "MyIngress.route", "NoAction",
		nil), standard.TableCode_DEFAULT_ACTION_IS_CONST)
	ok(t, c.BmMtClearEntries(ctx, 0, table, true))
	if n := must(c.BmMtGetNumEntries(ctx, 0, table))(t); n != 0 {
		t.Errorf("%d entries of a table that has been cleared", n)
	}
}

// TestMatches writes an entry of every kind of key, and finds its priority turned round.
func TestMatches(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.dial(t), t.Context()
	key := standard.MatchKey{ternary([]byte{10, 1, 2, 3}, []byte{255, 0, 0, 0}),
		ranging([]byte{0, 64}, []byte{1, 0}), ternary([]byte{6}, []byte{255}), exact(0, 1)}
	h := must(c.BmMtAddEntry(ctx, 0, "MyIngress.acl", key, "MyIngress.mark",
		standard.ActionData{{5}}, &standard.EntryOptions{Priority: number(10)}))(t)
	got := w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "acl")}))
	if len(got) != 1 || got[0].GetTableEntry().Priority != 1<<31-1-10 {
		t.Fatalf("P4Runtime reads %v", got)
	}
	e := must(c.BmMtGetEntry(ctx, 0, "MyIngress.acl", h))(t)
	if e.Options.GetPriority() != 10 ||
		!bytes.Equal(e.MatchKey[0].Ternary.Key, []byte{10, 0, 0, 0}) {
		t.Errorf("it is %v", e)
	}
	h = must(c.BmMtAddEntry(ctx, 0, "MyIngress.route", standard.MatchKey{lpm(20, 10, 1, 255, 255)},
		"NoAction", nil, nil))(t)
	e = must(c.BmMtGetEntry(ctx, 0, "MyIngress.route", h))(t)
	if !bytes.Equal(e.MatchKey[0].Lpm.Key, []byte{10, 1, 240, 0}) {
		t.Errorf("what is behind a prefix is %v", e.MatchKey[0].Lpm)
	}
	// const entries, with the program's priorities
	fixed := must(c.BmMtGetEntries(ctx, 0, "MyIngress.fixed_ternary"))(t)
	priorities := map[int32]bool{}
	for _, e := range fixed {
		priorities[e.Options.GetPriority()] = true
	}
	if len(fixed) != 3 || !priorities[1] || !priorities[2] || !priorities[3] {
		t.Errorf("the const entries are %v", fixed)
	}
	_, err := c.BmMtAddEntry(ctx, 0, "MyIngress.fixed", standard.MatchKey{exact(9)},
		"MyIngress.mark", standard.ActionData{{5}}, nil)
	failed(t, "an entry of a const table", err, standard.TableCode_IMMUTABLE_TABLE_ENTRIES)

	add := func(table string, key standard.MatchKey, action string, data ...[]byte) error {
		_, err := c.BmMtAddEntry(ctx, 0, table, key, action, data, nil)
		return err
	}
	const forward = "MyIngress.forward"
	for _, x := range []struct {
		what string
		err  error
		code standard.TableCode
	}{
		{"no table", add("nothing", nil, "NoAction"), standard.TableCode_INVALID_TABLE_NAME},
		{"no action", add(forward, standard.MatchKey{exact(mac...)}, "nothing"),
			standard.TableCode_INVALID_ACTION_NAME},
		{"no parameters", add(forward, standard.MatchKey{exact(mac...)}, "MyIngress.send"),
			standard.TableCode_BAD_ACTION_DATA},
		{"a parameter of 10 bits", add(forward, standard.MatchKey{exact(mac...)}, "MyIngress.send",
			[]byte{2, 0}), standard.TableCode_BAD_ACTION_DATA},
		{"no key", add(forward, nil, "MyIngress.drop"), standard.TableCode_BAD_MATCH_KEY},
		{"a short key", add(forward, standard.MatchKey{exact(1)}, "MyIngress.drop"),
			standard.TableCode_BAD_MATCH_KEY},
		{"another kind of key", add(forward, standard.MatchKey{lpm(8, mac...)}, "MyIngress.drop"),
			standard.TableCode_BAD_MATCH_KEY},
		{"a key that says exact and is lpm", add(forward, standard.MatchKey{{
			Lpm: &standard.LPMMatch{Key: mac}}}, "MyIngress.drop"),
			standard.TableCode_BAD_MATCH_KEY},
		{"a prefix of 33 bits", add("MyIngress.route", standard.MatchKey{lpm(33, 1, 2, 3, 4)},
			"NoAction"), standard.TableCode_BAD_MATCH_KEY},
		{"a table without a key", add("MyIngress.keyless", nil, "NoAction"),
			standard.TableCode_NO_TABLE_KEY},
		{"a table with a profile", add("MyIngress.nexthop", standard.MatchKey{exact(1)},
			"NoAction"), standard.TableCode_WRONG_TABLE_TYPE},
		{"no such handle", c.BmMtDeleteEntry(ctx, 0, forward, 5),
			standard.TableCode_INVALID_HANDLE},
		{"a negative handle", c.BmMtDeleteEntry(ctx, 0, forward, -1),
			standard.TableCode_INVALID_HANDLE},
		{"a constant entry", c.BmMtDeleteEntry(ctx, 0, "MyIngress.fixed", 0),
			standard.TableCode_IMMUTABLE_TABLE_ENTRIES},
		{"ageing", c.BmMtSetEntryTTL(ctx, 0, "MyIngress.route", h, 1000),
			standard.TableCode_AGEING_DISABLED},
	} {
		failed(t, x.what, x.err, x.code)
	}
	if err := add("MyIngress.fixed", standard.MatchKey{nil}, "NoAction"); err == nil {
		t.Error("a key without a type was taken")
	}
	if _, err := c.BmMtGetNumEntries(ctx, 1, forward); err == nil {
		t.Error("context 1 was taken")
	}
}

// TestProfiles makes members and groups by both protocols.
func TestProfiles(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.dial(t), t.Context()
	const profile, table = "MyIngress.ecmp", "MyIngress.balance"
	m0 := must(c.BmMtActProfAddMember(ctx, 0, profile, "MyIngress.send_plain",
		standard.ActionData{{1}}))(t)
	m1 := must(c.BmMtActProfAddMember(ctx, 0, profile, "MyIngress.send_plain",
		standard.ActionData{{2}}))(t)
	g := must(c.BmMtActProfCreateGroup(ctx, 0, profile))(t)
	if m0 != 0 || m1 != 1 || g != 0 {
		t.Errorf("members %d and %d, group %d", m0, m1, g)
	}
	ok(t, c.BmMtActProfAddMemberToGroup(ctx, 0, profile, m0, g))
	ok(t, c.BmMtActProfAddMemberToGroup(ctx, 0, profile, m1, g))
	failed(t, "a member twice", c.BmMtActProfAddMemberToGroup(ctx, 0, profile, m1, g),
		standard.TableCode_MBR_ALREADY_IN_GRP)
	dst := []byte{10, 0, 0, 1}
	h := must(c.BmMtIndirectWsAddEntry(ctx, 0, table, standard.MatchKey{exact(dst...)}, g, nil))(t)
	failed(t, "a group in use", c.BmMtActProfDeleteGroup(ctx, 0, profile, g),
		standard.TableCode_GRP_STILL_USED)
	failed(t, "a member in use", c.BmMtActProfDeleteMember(ctx, 0, profile, m0),
		standard.TableCode_MBR_STILL_USED)

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
	all := must(c.BmMtActProfGetMembers(ctx, 0, profile))(t)
	if len(all) != 3 || all[2].MbrHandle != 2 || !bytes.Equal(all[0].ActionData[0], []byte{7}) {
		t.Errorf("Thrift reads %v", all)
	}
	ok(t, c.BmMtIndirectModifyEntry(ctx, 0, table, h, 2))
	e := must(c.BmMtGetEntry(ctx, 0, table, h))(t)
	if e.ActionEntry.GetMbrHandle() != 2 {
		t.Errorf("the entry is %v", e)
	}
	if err := w.write(t, p4v1.Update_DELETE, member(3, 0)); err == nil {
		t.Error("P4Runtime deletes a member to which Thrift's entry refers")
	}
	ok(t, c.BmMtIndirectDeleteEntry(ctx, 0, table, h))
	ok(t, c.BmMtActProfRemoveMemberFromGroup(ctx, 0, profile, m1, g))
	failed(t, "a member that is not in it", c.BmMtActProfRemoveMemberFromGroup(ctx, 0, profile, m1,
		g), standard.TableCode_MBR_NOT_IN_GRP)
	if got := must(c.BmMtActProfGetGroup(ctx, 0, profile, g))(t); len(got.MbrHandles) != 1 {
		t.Errorf("the group is %v", got)
	}
	ok(t, c.BmMtActProfDeleteGroup(ctx, 0, profile, g))
	ok(t, w.write(t, p4v1.Update_DELETE, member(3, 0)))
	ok(t, c.BmMtActProfDeleteMember(ctx, 0, profile, m0))
	_, err := c.BmMtActProfCreateGroup(ctx, 0, "MyIngress.nexthops")
	failed(t, "a group without a selector", err, standard.TableCode_NO_ACTION_PROFILE_SELECTION)
	_, err = c.BmMtActProfGetMembers(ctx, 0, "nothing")
	failed(t, "no profile", err, standard.TableCode_INVALID_ACTION_PROFILE_NAME)
	_, err = c.BmMtIndirectAddEntry(ctx, 0, table, standard.MatchKey{exact(dst...)}, 77, nil)
	failed(t, "no member", err, standard.TableCode_INVALID_MBR_HANDLE)
	_, err = c.BmMtIndirectWsAddEntry(ctx, 0, "MyIngress.nexthop", standard.MatchKey{exact(1)}, 0,
		nil)
	failed(t, "a group where there is no selector", err, standard.TableCode_WRONG_TABLE_TYPE)
}

// TestArrays reads and writes registers, counters, meters and value sets.
func TestArrays(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.dial(t), t.Context()
	registerFailed := func(what string, err error, code standard.RegisterCode) {
		t.Helper()
		var e *standard.RegisterError
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%s: %v, not %v", what, err, code)
		}
	}
	ok(t, c.BmRegisterWrite(ctx, 0, "MyIngress.last_len", 3, 1<<32-1))
	ok(t, c.BmRegisterWriteRange(ctx, 0, "MyIngress.narrow", 2, 5, -1))
	ok(t, c.BmRegisterWrite(ctx, 0, "MyIngress.deltas", 1, -300))
	ok(t, c.BmRegisterWrite(ctx, 0, "MyIngress.objects", 0, 77))
	if v := must(c.BmRegisterRead(ctx, 0, "MyIngress.last_len", 3))(t); v != 1<<32-1 {
		t.Errorf("last_len[3] is %d", v)
	}
	if v := must(c.BmRegisterReadAll(ctx, 0, "MyIngress.narrow"))(t); !reflect.DeepEqual(v,
		[]int64{0, 0, 511, 511, 511, 0, 0, 0}) {
		t.Errorf("narrow is %v", v)
	}
	if v := must(c.BmRegisterRead(ctx, 0, "MyIngress.deltas", 1))(t); v != 1<<16-300 {
		// p4c's JSON does not say that the cells have a sign
		t.Errorf("deltas[1] is %d", v)
	}
	if v := must(c.BmRegisterRead(ctx, 0, "MyIngress.objects", 0))(t); v != 77 {
		t.Errorf("objects[0] is %d", v)
	}
	ok(t, w.write(t, p4v1.Update_MODIFY, &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{
		RegisterEntry: &p4v1.RegisterEntry{RegisterId: w.id(t, "objects"),
			Index: &p4v1.Index{Index: 0}, Data: &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{
				Bitstring: append([]byte{1}, make([]byte, 8)...)}}}}}))
	_, err := c.BmRegisterRead(ctx, 0, "MyIngress.objects", 0)
	registerFailed("a value of 65 bits", err, standard.RegisterCode_ERROR)
	ok(t, c.BmRegisterReset(ctx, 0, "MyIngress.objects"))
	if v := must(c.BmRegisterRead(ctx, 0, "MyIngress.objects", 0))(t); v != 0 {
		t.Errorf("after a reset objects[0] is %d", v)
	}
	_, err = c.BmRegisterRead(ctx, 0, "nothing", 0)
	registerFailed("no register", err, standard.RegisterCode_INVALID_REGISTER_NAME)
	_, err = c.BmRegisterRead(ctx, 0, "MyIngress.narrow", 8)
	registerFailed("index 8 of 8", err, standard.RegisterCode_INVALID_INDEX)
	_, err = c.BmRegisterRead(ctx, 0, "MyIngress.narrow", -1)
	registerFailed("index -1", err, standard.RegisterCode_INVALID_INDEX)
	registerFailed("a range past the end",
		c.BmRegisterWriteRange(ctx, 0, "MyIngress.narrow", 7, 9, 0),
		standard.RegisterCode_INVALID_INDEX)

	ok(t, c.BmCounterWrite(ctx, 0, "MyIngress.pkts", 5, &standard.CounterValue{Bytes: 640,
		Packets: 10}))
	if v := must(c.BmCounterRead(ctx, 0, "MyIngress.pkts", 5))(t); v.Bytes != 640 ||
		v.Packets != 10 {
		t.Errorf("pkts[5] is %v", v)
	}
	ok(t, c.BmCounterResetAll(ctx, 0, "MyIngress.pkts"))
	if v := must(c.BmCounterRead(ctx, 0, "MyIngress.pkts", 5))(t); v.Bytes != 0 {
		t.Errorf("after a reset pkts[5] is %v", v)
	}
	var ce *standard.CounterError
	if _, err := c.BmCounterRead(ctx, 0, "MyIngress.pkts", 512); !errors.As(err, &ce) ||
		ce.Code != standard.CounterCode_INVALID_INDEX {
		t.Errorf("index 512 of 512: %v", err)
	}
	if err := c.BmCounterWrite(ctx, 0, "MyIngress.pkts", 0,
		&standard.CounterValue{Bytes: -1}); !errors.As(err, &ce) {
		t.Errorf("a negative count: %v", err)
	}
	h := must(c.BmMtAddEntry(ctx, 0, "MyIngress.forward", standard.MatchKey{exact(mac...)},
		"MyIngress.drop", nil, nil))(t)
	ok(t, c.BmMtWriteCounter(ctx, 0, "MyIngress.forward", h, &standard.CounterValue{Packets: 3}))
	if v := must(c.BmMtReadCounter(ctx, 0, "MyIngress.forward", h))(t); v.Packets != 3 {
		t.Errorf("the direct counter is %v", v)
	}
	ok(t, c.BmMtResetCounters(ctx, 0, "MyIngress.forward"))
	if v := must(c.BmMtReadCounter(ctx, 0, "MyIngress.forward", h))(t); v.Packets != 0 {
		t.Errorf("after a reset the direct counter is %v", v)
	}
	_, err = c.BmMtReadCounter(ctx, 0, "MyIngress.fixed", 0)
	failed(t, "a table without counters", err, standard.TableCode_COUNTERS_DISABLED)

	rates := []*standard.MeterRate{{UnitsPerMicros: 0.0001, BurstSize: 5},
		{UnitsPerMicros: 0.5, BurstSize: 9}}
	ok(t, c.BmMeterSetRates(ctx, 0, "MyIngress.port_meter", 2, rates))
	if v := must(c.BmMeterGetRates(ctx, 0, "MyIngress.port_meter", 2))(t); len(v) != 2 ||
		v[0].UnitsPerMicros != 0.0001 || v[1].BurstSize != 9 {
		t.Errorf("the rates are %v", v)
	}
	ok(t, c.BmMeterArraySetRates(ctx, 0, "MyIngress.port_meter", rates))
	if v := must(c.BmMeterGetRates(ctx, 0, "MyIngress.port_meter", 15))(t); len(v) != 2 {
		t.Errorf("the rates of all are %v", v)
	}
	var me *standard.MeterError
	err = c.BmMeterSetRates(ctx, 0, "MyIngress.port_meter", 2, rates[:1])
	if !errors.As(err, &me) || me.Code != standard.MeterCode_BAD_RATES_LIST {
		t.Errorf("one rate: %v", err)
	}
	rates[0].UnitsPerMicros = -1
	err = c.BmMeterSetRates(ctx, 0, "MyIngress.port_meter", 2, rates)
	if !errors.As(err, &me) || me.Code != standard.MeterCode_INVALID_INFO_RATE_VALUE {
		t.Errorf("a negative rate: %v", err)
	}

	ok(t, c.BmParseVsetAdd(ctx, 0, "MyParser.trill_types", []byte{0x22, 0xf3}))
	ok(t, c.BmParseVsetAdd(ctx, 0, "MyParser.trill_types", []byte{0x22, 0xf4}))
	ok(t, c.BmParseVsetRemove(ctx, 0, "MyParser.trill_types", []byte{0x22, 0xf3}))
	if v := must(c.BmParseVsetGet(ctx, 0, "MyParser.trill_types"))(t); !reflect.DeepEqual(v,
		[][]byte{{0x22, 0xf4}}) {
		t.Errorf("the value set is %x", v)
	}
	ok(t, c.BmParseVsetClear(ctx, 0, "MyParser.trill_types"))
	if v := must(c.BmParseVsetGet(ctx, 0, "MyParser.trill_types"))(t); len(v) != 0 {
		t.Errorf("the value set is %x", v)
	}
	var ve *standard.ValueSetError
	if err := c.BmParseVsetAdd(ctx, 0, "MyParser.trill_types", []byte{1, 0, 0}); !errors.As(err, &ve) {
		t.Errorf("a value of 17 bits: %v", err)
	}
}

// TestReplication makes groups and sessions by both protocols.
func TestReplication(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.dial(t), t.Context()
	ok(t, second(c.lag.BmMcMgrpCreate(ctx, 0, 5)))
	n := must(c.lag.BmMcNodeCreate(ctx, 0, 9, "110", "1"))(t)
	ok(t, c.lag.BmMcNodeAssociate(ctx, 0, 5, n))
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
	// A link aggregation group is one of its ports: the one that BMv2 takes.
	ok(t, c.lag.BmMcSetLagMembership(ctx, 0, 0, "11000"))
	if got := read(); !got[[2]uint32{4, 9}] || len(got) != 3 {
		t.Errorf("with a link aggregation group it is %v", got)
	}
	ok(t, c.sw.MirroringSessionAdd(ctx, 7, &simpleswitch.MirroringConfig{Mgid: number(5)}))
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
	// P4Runtime changes the group: the session follows, and so do the nodes.
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
	if got := must(c.lag.BmMcGetEntries(ctx, 0))(t); got != want {
		t.Errorf("multicast is %s", got)
	}
	if got := must(c.pre.BmMcGetEntries(ctx, 0))(t); got != want {
		t.Errorf("simple_pre has %s", got)
	}
	ok(t, c.lag.BmMcNodeDissociate(ctx, 0, 5, 1))
	ok(t, c.pre.BmMcNodeUpdate(ctx, 0, 0, "1000000"))
	if got := read(); !reflect.DeepEqual(got, map[[2]uint32]bool{{6, 1}: true}) {
		t.Errorf("after the changes it is %v", got)
	}
	ok(t, c.lag.BmMcNodeDestroy(ctx, 0, 0))
	ok(t, c.lag.BmMcMgrpDestroy(ctx, 0, 5))
	for what, err := range map[string]error{
		"group 0":        second(c.lag.BmMcMgrpCreate(ctx, 0, 0)),
		"group 65536":    second(c.lag.BmMcMgrpCreate(ctx, 0, 65536)),
		"no group":       c.lag.BmMcMgrpDestroy(ctx, 0, 5),
		"no node":        c.lag.BmMcNodeDestroy(ctx, 0, 99),
		"a map of x":     second(c.lag.BmMcNodeCreate(ctx, 0, 1, "x", "")),
		"rid 65536":      second(c.lag.BmMcNodeCreate(ctx, 0, 65536, "1", "")),
		"a map too long": second(c.lag.BmMcNodeCreate(ctx, 0, 1, string(make([]byte, 513)), "")),
	} {
		var e *simpleprelag.MulticastError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", what, err)
		}
	}

	ok(t, c.sw.MirroringSessionAdd(ctx, 0, &simpleswitch.MirroringConfig{Port: number(3)}))
	if m := must(c.sw.MirroringSessionGet(ctx, 0))(t); m.GetPort() != 3 || m.Mgid != nil {
		t.Errorf("session 0 is %v", m)
	}
	ok(t, c.sw.MirroringSessionDelete(ctx, 0))
	var e *simpleswitch.MirroringError
	if err := c.sw.MirroringSessionDelete(ctx, 0); !errors.As(err, &e) {
		t.Errorf("a session twice deleted: %v", err)
	}
	if err := c.sw.MirroringSessionAdd(ctx, 40000,
		&simpleswitch.MirroringConfig{Port: number(3)}); !errors.As(err, &e) {
		t.Errorf("session 40000: %v", err)
	}
	if n := must(c.sw.MirroringMappingAdd(ctx, 3, 4))(t); n != 0 {
		t.Errorf("the older call says %d", n)
	}
	if n := must(c.sw.MirroringMappingGetEgressPort(ctx, 3))(t); n != 4 {
		t.Errorf("the older call says port %d", n)
	}
}

func second[T any](_ T, err error) error { return err }

// TestPrograms loads, swaps and resets.
func TestPrograms(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	c, ctx := w.dial(t), t.Context()
	if got := must(c.BmGetConfig(ctx))(t); got != string(w.json) {
		t.Errorf("the program's source has %d bytes, not %d", len(got), len(w.json))
	}
	var se *standard.SwapError
	if err := c.BmSwapConfigs(ctx); !errors.As(err, &se) ||
		se.Code != standard.SwapCode_NO_ONGOING_SWAP {
		t.Errorf("a swap to nothing: %v", err)
	}
	ok(t, c.BmRegisterWrite(ctx, 0, "MyIngress.narrow", 0, 5))
	ok(t, c.BmLoadNewConfig(ctx, string(w.json)))
	if v := must(c.BmRegisterRead(ctx, 0, "MyIngress.narrow", 0))(t); v != 0 {
		t.Errorf("what is loaded has a register of %d", v)
	}
	h := must(c.BmMtAddEntry(ctx, 0, "MyIngress.forward", standard.MatchKey{exact(mac...)},
		"MyIngress.drop", nil, nil))(t)
	ok(t, c.BmSwapConfigs(ctx))
	ok(t, c.BmMtModifyEntry(ctx, 0, "MyIngress.forward", h, "MyIngress.send",
		standard.ActionData{{1}}))
	ok(t, c.BmResetState(ctx))
	if n := must(c.BmMtGetNumEntries(ctx, 0, "MyIngress.forward"))(t); n != 0 {
		t.Errorf("%d entries after a reset", n)
	}
	var ae thrift.TApplicationException
	if err := c.BmLoadNewConfig(ctx, "{}"); !errors.As(err, &ae) {
		t.Errorf("a program of nothing: %v", err)
	}
	if _, err := c.BmSerializeState(ctx); !errors.As(err, &ae) {
		t.Errorf("what this switch does not have: %v", err)
	}
	if id := must(c.BmGetIDFromName(ctx, 0, standard.ResourceType_REGISTER,
		"MyIngress.narrow"))(t); id != 1 {
		t.Errorf("the register's id is %d", id)
	}
	a, b := must(c.sw.GetTimeElapsedUs(ctx))(t), must(c.sw.GetTimeSinceEpochUs(ctx))(t)
	if a <= 0 || b < 1e15 {
		t.Errorf("the clock says %d and %d us", a, b)
	}
	if info := must(c.BmMgmtGetInfo(ctx))(t); info.DeviceID != 1 || info.ThriftPort == 0 {
		t.Errorf("the switch is %v", info)
	}

	var le *standard.LearnError
	if err := c.BmLearningAckBuffer(ctx, 0, 99, 0); !errors.As(err, &le) ||
		le.Code != standard.LearnCode_INVALID_LIST_ID {
		t.Errorf("a list that there is not: %v", err)
	}
	if err := c.BmLearningSetTimeout(ctx, 0, 1, 5); !errors.As(err, &ae) {
		t.Errorf("learning where nobody is notified: %v", err)
	}

	// With a P4Info a reset keeps P4Runtime's configuration.
	w = newWorld(t, func(w *world) {
		w.options.SwapDisabled, w.options.Publisher = true, deaf{}
		w.options.Notifications = "ipc:///nowhere"
	})
	c = w.dial(t)
	if info := must(c.BmMgmtGetInfo(ctx))(t); info.GetNotificationsSocket() != "ipc:///nowhere" {
		t.Errorf("the switch is %v", info)
	}
	ok(t, c.BmLearningSetTimeout(ctx, 0, 1, 5))
	ok(t, c.BmLearningSetBufferSize(ctx, 0, 1, 5))
	ok(t, c.BmLearningAck(ctx, 0, 1, 5, []int32{1, 2}))
	ok(t, c.BmLearningAckBuffer(ctx, 0, 1, 5))
	for _, n := range []int32{0, -1, 1 << 20} {
		if err := c.BmLearningSetBufferSize(ctx, 0, 1, n); !errors.As(err, &le) {
			t.Errorf("a buffer of %d samples: %v", n, err)
		}
	}
	ok(t, c.BmResetState(ctx))
	if n := len(w.read(t, entryOf(&p4v1.TableEntry{TableId: w.id(t, "fixed")}))); n != 2 {
		t.Errorf("P4Runtime reads %d const entries after a reset", n)
	}
	if err := c.BmLoadNewConfig(ctx, string(w.json)); !errors.As(err, &se) ||
		se.Code != standard.SwapCode_CONFIG_SWAP_DISABLED {
		t.Errorf("a program with --disable-swap: %v", err)
	}
}

// TestCRC changes the parameters of a program's custom CRCs.
func TestCRC(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	c, ctx := w.dial(t), t.Context()
	json, err := os.ReadFile("../ebpf/testdata/hashes.json")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := bmv2json.Parse(json)
	if err != nil {
		t.Fatal(err)
	}
	ok(t, c.BmLoadNewConfig(ctx, string(json)))
	ok(t, c.BmSwapConfigs(ctx))
	var e *standard.CRCError
	done := map[string]bool{}
	for _, k := range prog.Calculations {
		err16 := c.BmSetCrc16CustomParameters(ctx, 0, k.Name, &standard.CRC16Config{Polynomial: 1})
		err32 := c.BmSetCrc32CustomParameters(ctx, 0, k.Name, &standard.CRC32Config{Polynomial: 1})
		for algo, err := range map[string]error{"crc16_custom": err16, "crc32_custom": err32} {
			if k.Algo == algo {
				ok(t, err)
				done[algo] = true
			} else if !errors.As(err, &e) || e.Code != standard.CRCCode_WRONG_TYPE_CALCULATION {
				t.Errorf("%s of a %s: %v", algo, k.Algo, err)
			}
		}
	}
	if len(done) != 2 {
		t.Errorf("the program has only %v", done)
	}
	if err := c.BmSetCrc32CustomParameters(ctx, 0, "nothing",
		&standard.CRC32Config{}); !errors.As(err, &e) ||
		e.Code != standard.CRCCode_INVALID_CALCULATION_NAME {
		t.Errorf("no such calculation: %v", err)
	}
}

// deaf is a publisher without listeners.
type deaf struct{}

func (deaf) Publish([]byte) {}

// TestQueues sets rates and depths of queues, of which there is one for each port here; what cannot
// be is an exception, as clients look at nothing else.
func TestQueues(t *testing.T) {
	w := newWorld(t)
	c := w.dial(t)
	ctx := t.Context()
	for name, call := range map[string]func() (int32, error){
		"a rate":        func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, 1, 100) },
		"none":          func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, 1, 0) },
		"all":           func() (int32, error) { return c.sw.SetAllEgressQueueRates(ctx, 1000) },
		"a priority":    func() (int32, error) { return c.sw.SetEgressPriorityQueueRate(ctx, 1, 0, 5) },
		"a depth":       func() (int32, error) { return c.sw.SetEgressQueueDepth(ctx, 1, 100) },
		"a priority's":  func() (int32, error) { return c.sw.SetEgressPriorityQueueDepth(ctx, 1, 0, 5) },
		"every depth":   func() (int32, error) { return c.sw.SetAllEgressQueueDepths(ctx, 5) },
		"a depth of 0":  func() (int32, error) { return c.sw.SetAllEgressQueueDepths(ctx, 0) },
		"a later port":  func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, 500, 100) },
		"the CPU's too": func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, 255, 100) },
	} {
		if n, err := call(); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	for name, call := range map[string]func() (int32, error){
		"no such priority": func() (int32, error) { return c.sw.SetEgressPriorityQueueRate(ctx, 1, 1, 5) },
		"a negative one":   func() (int32, error) { return c.sw.SetEgressPriorityQueueRate(ctx, 1, -1, 5) },
		"a negative rate":  func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, 1, -1) },
		"a negative port":  func() (int32, error) { return c.sw.SetEgressQueueRate(ctx, -1, 1) },
		"a negative depth": func() (int32, error) { return c.sw.SetEgressQueueDepth(ctx, 1, -1) },
		"a huge depth":     func() (int32, error) { return c.sw.SetAllEgressQueueDepths(ctx, 1<<30) },
	} {
		var ae thrift.TApplicationException
		if _, err := call(); !errors.As(err, &ae) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoP4Info has P4Runtime say, of a program that came without a P4Info, that none is set: by
// that p4-utils tells that it has to push one.
func TestNoP4Info(t *testing.T) {
	w := newWorld(t, func(w *world) { w.noP4 = true })
	ask := &p4v1.GetForwardingPipelineConfigRequest{DeviceId: 1}
	_, err := w.p4rt.GetForwardingPipelineConfig(t.Context(), ask)
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a P4Info: %v", err)
	}
	ok(t, w.server.Load(&p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.json}))
	if got := must(w.p4rt.GetForwardingPipelineConfig(t.Context(), ask))(t); got.Config == nil {
		t.Error("with one: nothing")
	}
}
