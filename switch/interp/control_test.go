package interp

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

func u32(v uint32) *uint32 { return &v }

// TestControlPlaneErrors makes one mistake at a time. It expects the kind of error that
// target.Pipeline documents, and no change.
func TestControlPlaneErrors(t *testing.T) {
	exact := func(a ...byte) []target.FieldMatch {
		return []target.FieldMatch{{Value: a[:2]}, {Value: a[2:]}}
	}
	tables := load(t, "tables", Options{})
	must(t, tables.InsertEntry("I.exact_t",
		&target.TableEntry{Match: exact(0, 1, 1), Action: act("I.toss")}))
	stateful := load(t, "stateful", Options{})
	selector := load(t, "selector", Options{})
	must(t, selector.SetMember("I.members", 1, act("I.toss"), true))
	must(t, selector.SetMember("I.chooser", 1, act("I.toss"), true))
	must(t, selector.SetGroup("I.chooser", 1, []target.WeightedMember{{Member: 1, Weight: 1}},
		true))
	must(t, selector.InsertEntry("I.profiled",
		&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{7}}}, Member: u32(1)}))
	must(t, selector.InsertEntry("I.selected",
		&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{7}}}, Group: u32(1)}))
	parsing := load(t, "parsing", Options{})
	set := func(p ...[]byte) *target.ActionCall { return act("I.set", p...) }
	short := []target.FieldMatch{{Value: []byte{1}}, {Value: []byte{1}}}
	tests := []struct {
		name string
		do   func() error
		want error
	}{
		{"insert into an unknown table", func() error {
			return tables.InsertEntry("nope",
				&target.TableEntry{})
		}, target.ErrNotFound},
		{"insert what is there", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 1, 1), Action: act("I.toss")})
		}, target.ErrExists},
		{"insert with a key less", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 1, 1)[:1], Action: act("I.toss")})
		}, target.ErrInvalid},
		{"insert with a short key", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: short, Action: act("I.toss")})
		}, target.ErrInvalid},
		{"insert with a key of too many bits", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 1, 2), Action: act("I.toss")})
		}, target.ErrInvalid},
		{"insert without action", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 2, 1)})
		}, target.ErrInvalid},
		{"insert with an action of another table", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 2, 1), Action: set([]byte{1})})
		}, target.ErrInvalid},
		{"insert with a parameter less", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 2, 1), Action: act("I.counted")})
		}, target.ErrInvalid},
		{"insert with a parameter too wide", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 2, 1), Action: act("I.counted", []byte{0, 1})})
		}, target.ErrInvalid},
		{"insert a member into a table without profile", func() error {
			return tables.InsertEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 2, 1), Member: u32(1)})
		}, target.ErrInvalid},
		{"insert into a table without keys",
			func() error {
				return tables.InsertEntry("tbl_tables168",
					&target.TableEntry{Action: act("tables168")})
			}, target.ErrInvalid},
		{"insert a prefix that is too long", func() error {
			return tables.InsertEntry("I.lpm_t",
				&target.TableEntry{Match: []target.FieldMatch{{Value: make([]byte, 4),
					PrefixLen: 33}, {Value: []byte{0}}}, Action: set([]byte{1})})
		}, target.ErrInvalid},
		{"insert a ternary key without mask", func() error {
			return tables.InsertEntry("I.ternary_t",
				&target.TableEntry{Match: []target.FieldMatch{{Value: make([]byte, 4)},
					{Value: make([]byte, 9)}}, Action: set([]byte{1})})
		}, target.ErrInvalid},
		{"insert an empty range", func() error {
			return tables.InsertEntry("I.range_t",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 2},
					Mask: []byte{0, 1}},
					{Value: make([]byte, 4), Mask: make([]byte, 4)}}, Action: set([]byte{1})})
		}, target.ErrInvalid},
		{"insert into a const table", func() error {
			return tables.InsertEntry("I.valid_t",
				&target.TableEntry{Match: exact(1, 0, 0), Action: set([]byte{1})})
		}, target.ErrImmutable},
		{"modify an entry that is not there", func() error {
			return tables.ModifyEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 9, 1), Action: act("I.toss")})
		}, target.ErrNotFound},
		{"modify an entry of a const table", func() error {
			return tables.ModifyEntry("I.const_t", &target.TableEntry{Action: set([]byte{1})})
		}, target.ErrImmutable},
		{"delete an entry that is not there", func() error {
			return tables.DeleteEntry("I.exact_t",
				&target.TableEntry{Match: exact(0, 9, 1)})
		}, target.ErrNotFound},
		{"delete from a const table", func() error {
			return tables.DeleteEntry("I.const_t",
				&target.TableEntry{})
		}, target.ErrImmutable},
		{"delete from an unknown table", func() error {
			return tables.DeleteEntry("nope",
				&target.TableEntry{})
		}, target.ErrNotFound},
		{"list an unknown table", func() error { _, err := tables.Entries("nope"); return err },
			target.ErrNotFound},
		{"set the const default", func() error {
			return tables.SetDefault("I.const_t",
				&target.TableEntry{Action: set([]byte{1})})
		}, target.ErrImmutable},
		{"set a default with a match", func() error {
			return tables.SetDefault("I.wide_t", &target.TableEntry{Match: exact(0, 1, 1),
				Action: set([]byte{1})})
		}, target.ErrInvalid},
		{"set a default of an unknown table", func() error {
			return tables.SetDefault("nope",
				nil)
		}, target.ErrNotFound},
		{"read a default of an unknown table", func() error {
			_,
				err := tables.Default("nope")
			return err
		}, target.ErrNotFound},
		{"direct counter of a table that has none", func() error {
			_, err := tables.DirectCounter("I.wide_t", &target.TableEntry{})
			return err
		}, target.ErrInvalid},
		{"direct counter of an entry that is not there", func() error {
			_, err := tables.DirectCounter("I.exact_t", &target.TableEntry{Match: exact(0, 9, 1)})
			return err
		}, target.ErrNotFound},
		{"direct meter of a table that has none",
			func() error { return tables.SetDirectMeter("I.exact_t", &target.TableEntry{}, nil) },
			target.ErrInvalid},
		{"array counter by the name of a direct one",
			func() error { _, err := tables.ReadCounter("I.hits", 0); return err },
			target.ErrNotFound},
		{"unknown counter", func() error {
			return stateful.WriteCounter("nope", 0,
				target.CounterData{})
		}, target.ErrNotFound},
		{"counter beyond the array", func() error {
			_,
				err := stateful.ReadCounter("I.packets", 8)
			return err
		}, target.ErrOutOfRange},
		{"counter before the array", func() error {
			_,
				err := stateful.ReadCounter("I.packets", -1)
			return err
		}, target.ErrOutOfRange},
		{"unknown meter", func() error { _, err := stateful.ReadMeter("nope", 0); return err },
			target.ErrNotFound},
		{"meter beyond the array", func() error { return stateful.WriteMeter("I.limit", 4, nil) },
			target.ErrOutOfRange},
		{"meter with the peak below the committed rate", func() error {
			return stateful.WriteMeter("I.limit", 0,
				&target.MeterConfig{Committed: target.MeterRate{PerSecond: 2},
					Peak: target.MeterRate{PerSecond: 1}})
		}, target.ErrInvalid},
		{"unknown register", func() error {
			_,
				err := stateful.ReadRegister("nope", 0)
			return err
		}, target.ErrNotFound},
		{"register beyond the array", func() error {
			_,
				err := stateful.ReadRegister("I.narrow", 10)
			return err
		}, target.ErrOutOfRange},
		{"registers up to beyond the array", func() error {
			_,
				err := stateful.ReadRegisters("I.narrow", 8, 3)
			return err
		}, target.ErrOutOfRange},
		{"registers of a negative count", func() error {
			_,
				err := stateful.ReadRegisters("I.narrow", 8, -3)
			return err
		}, target.ErrOutOfRange},
		{"registers of a count that overflows", func() error {
			_,
				err := stateful.ReadRegisters("I.narrow", 8, 1<<62)
			return err
		},
			target.ErrOutOfRange},
		{"register of a value too short", func() error {
			return stateful.WriteRegister("I.narrow",
				0, []byte{1})
		}, target.ErrInvalid},
		{"register of a value of too many bits",
			func() error { return stateful.WriteRegister("I.narrow", 0, []byte{0x20, 0}) },
			target.ErrInvalid},
		{"fill with a value too long", func() error {
			return stateful.FillRegister("I.narrow",
				make([]byte, 3))
		}, target.ErrInvalid},
		{"fill an unknown register", func() error { return stateful.FillRegister("nope", nil) },
			target.ErrNotFound},
		{"an action where a member belongs", func() error {
			return selector.InsertEntry("I.profiled",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}},
					Action: act("I.toss")})
		}, target.ErrInvalid},
		{"a member that is not there", func() error {
			return selector.InsertEntry("I.profiled",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}}, Member: u32(9)})
		}, target.ErrNotFound},
		{"a group without selector", func() error {
			return selector.InsertEntry("I.profiled",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}}, Group: u32(1)})
		}, target.ErrInvalid},
		{"neither member nor group", func() error {
			return selector.InsertEntry("I.selected",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}}})
		}, target.ErrInvalid},
		{"both member and group", func() error {
			return selector.InsertEntry("I.selected",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}}, Member: u32(1),
					Group: u32(1)})
		}, target.ErrInvalid},
		{"a group that is not there", func() error {
			return selector.InsertEntry("I.selected",
				&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{8}}}, Group: u32(9)})
		}, target.ErrNotFound},
		{"insert a member that is there", func() error {
			return selector.SetMember("I.members", 1,
				act("I.toss"), true)
		}, target.ErrExists},
		{"modify a member that is not there", func() error {
			return selector.SetMember("I.members",
				2, act("I.toss"), false)
		}, target.ErrNotFound},
		{"a member with an unknown action", func() error {
			return selector.SetMember("I.members", 2,
				act("nope"), true)
		}, target.ErrInvalid},
		{"a member of an unknown profile", func() error {
			return selector.SetMember("nope", 2,
				act("I.toss"), true)
		}, target.ErrNotFound},
		{"delete a member that an entry uses",
			func() error { return selector.DeleteMember("I.members", 1) }, target.ErrInvalid},
		{"delete a member that a group uses",
			func() error { return selector.DeleteMember("I.chooser", 1) }, target.ErrInvalid},
		{"delete a member that is not there",
			func() error { return selector.DeleteMember("I.members", 5) }, target.ErrNotFound},
		{"delete a group that an entry uses",
			func() error { return selector.DeleteGroup("I.chooser", 1) }, target.ErrInvalid},
		{"delete a group that is not there", func() error {
			return selector.DeleteGroup("I.chooser",
				5)
		}, target.ErrNotFound},
		{"a group of a profile without selector",
			func() error { return selector.SetGroup("I.members", 1, nil, true) },
			target.ErrInvalid},
		{"insert a group that is there", func() error {
			return selector.SetGroup("I.chooser", 1,
				nil, true)
		}, target.ErrExists},
		{"a group of members that are not there", func() error {
			return selector.SetGroup("I.chooser", 2,
				[]target.WeightedMember{{Member: 9, Weight: 1}}, true)
		}, target.ErrNotFound},
		{"a group with a weight of 0", func() error {
			return selector.SetGroup("I.chooser", 2,
				[]target.WeightedMember{{Member: 1, Weight: 0}}, true)
		}, target.ErrInvalid},
		{"a group with a weight that is too large", func() error {
			return selector.SetGroup("I.chooser", 2,
				[]target.WeightedMember{{Member: 1, Weight: 1 << 40}}, true)
		}, target.ErrInvalid},
		{"multicast group 0", func() error {
			return tables.SetMulticastGroup(0,
				[]target.Replica{})
		}, target.ErrOutOfRange},
		{"a multicast group beyond 16 bits", func() error {
			return tables.SetMulticastGroup(1<<16,
				[]target.Replica{})
		}, target.ErrOutOfRange},
		{"delete a multicast group that is not there",
			func() error { return tables.SetMulticastGroup(5, nil) }, target.ErrNotFound},
		{"a clone session beyond 15 bits", func() error {
			return tables.SetCloneSession(1<<15,
				&target.CloneSession{})
		}, target.ErrOutOfRange},
		{"a clone session cut to less than nothing",
			func() error { return tables.SetCloneSession(1, &target.CloneSession{TruncateTo: -1}) },
			target.ErrInvalid},
		{"delete a clone session that is not there",
			func() error { return tables.SetCloneSession(1, nil) }, target.ErrNotFound},
		{"an unknown value set", func() error { return parsing.SetValueSet("nope", nil) },
			target.ErrNotFound},
		{"a value set with too many members", func() error {
			one := []target.FieldMatch{{Value: []byte{1}}}
			return parsing.SetValueSet("P.chosen", [][]target.FieldMatch{one, one, one, one, one})
		}, target.ErrFull},
		{"a value set with a member too wide", func() error {
			return parsing.SetValueSet("P.chosen", [][]target.FieldMatch{{{Value: []byte{0, 1}}}})
		}, target.ErrInvalid},
		{"a value set with two fields", func() error {
			return parsing.SetValueSet("P.chosen",
				[][]target.FieldMatch{{{Value: []byte{1}}, {Value: []byte{1}}}})
		}, target.ErrInvalid},
	}
	snapshot := func() []any {
		var s []any
		for _, p := range []*Pipeline{tables, stateful, selector, parsing} {
			for _, tb := range p.src.Tables() {
				e, err := p.Entries(tb.Name)
				must(t, err)
				d, err := p.Default(tb.Name)
				must(t, err)
				s = append(s, e, d)
			}
			for _, a := range p.src.ActionProfiles() {
				m, err := p.Members(a.Name)
				must(t, err)
				g, err := p.Groups(a.Name)
				must(t, err)
				s = append(s, m, g)
			}
			s = append(s, p.MulticastGroups(), p.CloneSessions())
		}
		return s
	}
	before := snapshot()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(); !errors.Is(err, tt.want) {
				t.Errorf("error is %v, want %v", err, tt.want)
			}
		})
	}
	if after := snapshot(); !reflect.DeepEqual(before, after) {
		t.Errorf("something changed:\n%+v\n%+v", before, after)
	}
}

func TestTableFull(t *testing.T) {
	p := load(t, "tables", Options{})
	for i := range 3 {
		must(t, p.InsertEntry("I.exact_t",
			&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, byte(i)}},
				{Value: []byte{0}}}, Action: act("I.toss")}))
	}
	e := &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 9}}, {Value: []byte{0}}},
		Action: act("I.toss")}
	if err := p.InsertEntry("I.exact_t", e); !errors.Is(err, target.ErrFull) {
		t.Errorf("the fourth of three entries: %v", err)
	}
	must(t, p.DeleteEntry("I.exact_t",
		&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 0}}, {Value: []byte{0}}}}))
	must(t, p.InsertEntry("I.exact_t", e))
}

// TestDefaults changes a default entry and then restores the program's own default entry.
func TestDefaults(t *testing.T) {
	p := load(t, "tables", Options{})
	const f = "01 0000 00000000 00 000000000000000000"
	check := func(want byte) {
		t.Helper()
		if got := single(t, p, f).Frame[0]; got != want {
			t.Errorf("the default action sets %02x, want %02x", got, want)
		}
	}
	check(0xee)
	must(t, p.SetDefault("I.wide_t", &target.TableEntry{Action: act("I.set", []byte{0x44})}))
	check(0x44)
	d, err := p.Default("I.wide_t")
	must(t, err)
	if d.Action.Action != "I.set" || d.Action.Params[0][0] != 0x44 || d.IsConst {
		t.Errorf("the default entry is %+v", d)
	}
	must(t, p.SetDefault("I.wide_t", nil))
	check(0xee)
	if d, err = p.Default("I.const_t"); err != nil || !d.IsConst {
		t.Errorf("the const default entry is %+v, %v", d, err)
	}
	if d, err = load(t, "selector", Options{}).Default("I.profiled"); err != nil || d != nil {
		t.Errorf("the default entry of a table without one is %+v, %v", d, err)
	}
}

// TestConstEntries lists entries that are part of the program. Their priorities must be those of
// target.Pipeline, in which the largest wins.
func TestConstEntries(t *testing.T) {
	p := load(t, "tables", Options{})
	entries, err := p.Entries("I.const_t")
	must(t, err)
	if len(entries) != 4 || !entries[0].IsConst {
		t.Fatalf("%+v", entries)
	}
	for i, e := range entries {
		if e.Priority != 4-i {
			t.Errorf("entry %d has priority %d", i, e.Priority)
		}
	}
}

// TestSelector sends flows through an action selector while it adds and removes members.
func TestSelector(t *testing.T) {
	p := load(t, "selector", Options{})
	port := func(n byte) *target.ActionCall { return act("I.out_by", []byte{0, n}) }
	key := []target.FieldMatch{{Value: []byte{7}}}
	flow := func(n int) Out { return single(t, p, fmt.Sprintf("02 07 %08x", uint32(n)*2654435761)) }
	if got := flow(1); got.Port != 9 || got.Frame[1] != 7 {
		t.Fatalf("a table without entries and default gave %+v", got)
	}
	must(t, p.SetGroup("I.chooser", 5, nil, true))
	must(t, p.InsertEntry("I.selected", &target.TableEntry{Match: key, Group: u32(5)}))
	if got := flow(1); got.Port != 9 || got.Frame[1] != 0xff {
		t.Fatalf("an empty group, which is a hit without an action, gave %+v", got)
	}
	for n := range byte(3) {
		must(t, p.SetMember("I.chooser", uint32(n), port(n), true))
	}
	count := func() map[uint32]int {
		ports := map[uint32]int{}
		for n := range 200 {
			o := flow(n)
			if again := flow(n); again.Port != o.Port {
				t.Fatalf("flow %d went to port %d and then %d", n, o.Port, again.Port)
			}
			ports[o.Port]++
		}
		return ports
	}
	must(t, p.SetGroup("I.chooser", 5,
		[]target.WeightedMember{{Member: 0, Weight: 1}, {Member: 1, Weight: 1},
			{Member: 2, Weight: 2}}, false))
	if c := count(); len(c) != 3 || c[2] < c[0]+10 || c[2] < c[1]+10 {
		t.Errorf("flows by port: %v", c)
	}
	must(t, p.SetGroup("I.chooser", 5, []target.WeightedMember{{Member: 1, Weight: 1}}, false))
	if c := count(); c[1] != 200 {
		t.Errorf("flows by port with one member: %v", c)
	}
	must(t, p.SetMember("I.chooser", 1, port(6), false))
	if c := count(); c[6] != 200 {
		t.Errorf("flows by port after the member was changed: %v", c)
	}
	must(t, p.DeleteMember("I.chooser", 0)) // no entry or group uses the member any more
	must(t, p.ModifyEntry("I.selected", &target.TableEntry{Match: key, Member: u32(2)}))
	must(t, p.DeleteGroup("I.chooser", 5)) // no entry uses the group any more
	if c := count(); c[2] != 200 {
		t.Errorf("flows by port of a single member: %v", c)
	}
	entries, err := p.Entries("I.selected")
	must(t, err)
	if len(entries) != 1 || entries[0].Member == nil || *entries[0].Member != 2 {
		t.Errorf("entries: %+v", entries)
	}
	// In a table without a default entry, the control plane can set a member or a group as the
	// default entry.
	must(t, p.SetDefault("I.profiled", nil))
	must(t, p.SetMember("I.members", 4, port(4), true))
	must(t, p.SetDefault("I.profiled", &target.TableEntry{Member: u32(4)}))
	if o := single(t, p, "00 33 00000000"); o.Port != 4 {
		t.Errorf("the default member sent the packet to port %d", o.Port)
	}
	if err := p.DeleteMember("I.members", 4); !errors.Is(err, target.ErrInvalid) {
		t.Errorf("the default's member could be deleted: %v", err)
	}
	// Two tables share the members of an action profile.
	must(t, p.InsertEntry("I.profiled_too",
		&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0x30}, Mask: []byte{0xf0}}},
			Priority: 1, Member: u32(4)}))
	if o := single(t, p, "01 33 00000000"); o.Port != 4 {
		t.Errorf("the other table's member sent the packet to port %d", o.Port)
	}
}

// TestDirectMeterAndCounter limits the rate of one entry in bytes.
func TestDirectMeterAndCounter(t *testing.T) {
	p := load(t, "stateful", Options{})
	e := &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 9}}},
		Action: act("I.measured", []byte{9, 9})}
	must(t, p.InsertEntry("I.metered", e))
	// a frame of 27 bytes
	f := frame(t, "05 0009 0000000000000000 00000000000000000000000000000000")
	verdict := func(now time.Duration) byte {
		outs := p.Process(now, 0, f)
		return outs[0].Frame[22]
	}
	if v := verdict(0); v != 0 {
		t.Errorf("a meter without a configuration says %d", v)
	}
	cfg := &target.MeterConfig{Committed: target.MeterRate{PerSecond: 27, Burst: 27},
		Peak: target.MeterRate{PerSecond: 54, Burst: 60}}
	must(t, p.SetDirectMeter("I.metered", e, cfg))
	got, err := p.DirectMeter("I.metered", e)
	must(t, err)
	if *got != *cfg {
		t.Errorf("the meter is %+v", got)
	}
	for i, want := range []byte{0, 1, 2, 2} {
		if v := verdict(0); v != want {
			t.Errorf("packet %d is %d, want %d", i, v, want)
		}
	}
	if v := verdict(time.Second); v != 0 {
		t.Errorf("a second later it is %d", v)
	}
	must(t, p.SetDirectMeter("I.metered", e, nil))
	if v := verdict(time.Second); v != 0 {
		t.Errorf("with the configuration taken away it is %d", v)
	}

	p = load(t, "tables", Options{})
	e = &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 9}}, {Value: []byte{1}}},
		Action: act("I.counted", []byte{1})}
	must(t, p.InsertEntry("I.exact_t", e))
	must(t, p.SetDirectCounter("I.exact_t", e, target.CounterData{Packets: 10, Bytes: 100}))
	single(t, p, "00 0009 00000000 01 000000000000000000 0000")
	d, err := p.DirectCounter("I.exact_t", e)
	must(t, err)
	if d != (target.CounterData{Packets: 11, Bytes: 119}) {
		t.Errorf("the counter is %+v", d)
	}
	must(t, p.ModifyEntry("I.exact_t", e))
	if d2, err := p.DirectCounter("I.exact_t", e); err != nil || d2 != d {
		t.Errorf("after a change of the action the counter is %+v, %v", d2, err)
	}
}
