package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// TestProfiles creates action profile members and groups, and entries that refer to them, on both
// engines. Each call must have the same result on both engines. After each call, both must treat
// packets equally.
func TestProfiles(t *testing.T) {
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		for _, specialised := range []bool{false, true} {
			t.Run(fmt.Sprintf("made for its tables %v", specialised), func(t *testing.T) {
				profilesAlike(t, h, specialised)
			})
		}
	})
}

// The action profiles of the program, and the tables that use them.
const (
	plain, chooser                    = "I.members", "I.chooser"
	profiled, profiledToo, chosenFrom = "I.profiled", "I.profiled_too", "I.selected"
)

func outBy(port byte) *target.ActionCall {
	return &target.ActionCall{Action: "I.out_by", Params: [][]byte{{0, port}}}
}

func profilesAlike(t *testing.T, h Hook, specialised bool) {
	prog := readProgram(t, "../stf/testdata/selector.json")
	c, err := newCaptured(t, prog, h)
	check(t, err)
	in, err := interp.New(prog, interp.Options{})
	check(t, err)
	random := rand.New(rand.NewPCG(22, 5))
	packets := func(after string) {
		t.Helper()
		if specialised {
			check(t, c.specialise(true))
		}
		for table := byte(0); table < 3; table++ {
			for range 40 {
				// The frame has Ethernet's smallest length. The program parses six bytes of it.
				frame := make([]byte, 60)
				for i := range frame {
					frame[i] = byte(random.Uint32())
				}
				frame[0], frame[1] = table, byte(random.IntN(6))
				want := in.Process(time.Second, 1, frame)
				got, err := c.process(1, frame, len(want))
				check(t, err)
				if len(got) != len(want) {
					t.Fatalf("after %s: %x leaves %d times, not %d", after, frame[:6], len(got), len(want))
				}
				for i := range want {
					if got[i].Port != want[i].Port || !bytes.Equal(got[i].Frame, want[i].Frame) {
						t.Fatalf("after %s: %x leaves by %d as %x, not by %d as %x", after, frame[:6],
							got[i].Port, got[i].Frame[:6], want[i].Port, want[i].Frame[:6])
					}
				}
			}
		}
	}
	do := func(what string, call func(target.Pipeline) error) {
		t.Helper()
		want, got := call(in), call(c.Pipeline())
		for _, kind := range []error{target.ErrExists, target.ErrNotFound, target.ErrInvalid,
			target.ErrFull, target.ErrUnsupported} {
			if errors.Is(want, kind) != errors.Is(got, kind) {
				t.Errorf("%s: %v, and %v by the interpreter", what, got, want)
			}
		}
		if (want == nil) != (got == nil) {
			t.Fatalf("%s: %v, and %v by the interpreter", what, got, want)
		}
		packets(what)
	}
	member := func(profile string, id uint32, a *target.ActionCall, insert bool) {
		t.Helper()
		do(fmt.Sprintf("member %d of %s: %v", id, profile, a.Action), func(p target.Pipeline) error {
			return p.SetMember(profile, id, a, insert)
		})
	}
	group := func(id uint32, insert bool, members ...target.WeightedMember) {
		t.Helper()
		do(fmt.Sprintf("group %d is %v", id, members), func(p target.Pipeline) error {
			return p.SetGroup(chooser, id, members, insert)
		})
	}
	entry := func(table string, key byte, m, g uint32) *target.TableEntry {
		e := &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{key}}}}
		if table == profiledToo {
			e.Match[0].Mask, e.Priority = []byte{0xff}, 1
		}
		if m != 0 {
			e.Member = &m
		}
		if g != 0 {
			e.Group = &g
		}
		return e
	}
	insert := func(table string, key byte, m, g uint32) {
		t.Helper()
		do(fmt.Sprintf("entry %d of %s: member %d, group %d", key, table, m, g),
			func(p target.Pipeline) error { return p.InsertEntry(table, entry(table, key, m, g)) })
	}
	modify := func(table string, key byte, m, g uint32) {
		t.Helper()
		do(fmt.Sprintf("entry %d of %s is now: member %d, group %d", key, table, m, g),
			func(p target.Pipeline) error { return p.ModifyEntry(table, entry(table, key, m, g)) })
	}
	for id := uint32(1); id <= 4; id++ {
		member(plain, id, outBy(byte(id)), true)
		member(chooser, id, outBy(byte(10+id)), true)
	}
	// the member already exists
	member(plain, 1, outBy(1), true)
	// the member does not exist
	member(plain, 9, outBy(1), false)
	// there is no such action
	member(plain, 8, &target.ActionCall{Action: "I.nothing"}, true)
	// the parameter is missing
	member(plain, 8, &target.ActionCall{Action: "I.out_by"}, true)
	// the member is unused
	member(plain, 4, &target.ActionCall{Action: "I.toss", Params: [][]byte{}}, false)
	insert(profiled, 0, 1, 0)
	insert(profiled, 1, 2, 0)
	insert(profiledToo, 1, 2, 0)
	insert(profiled, 2, 7, 0) // there is no such member
	insert(profiled, 2, 0, 1) // the table has no selector
	insert(profiled, 2, 0, 0) // neither a member nor a group is given
	member(plain, 2, outBy(5), false)
	member(plain, 1, &target.ActionCall{Action: "I.toss", Params: [][]byte{}}, false)
	group(1, true)
	insert(chosenFrom, 0, 0, 1) // the group is empty
	insert(chosenFrom, 1, 2, 0)
	insert(chosenFrom, 2, 0, 3) // there is no such group
	group(1, true)              // the group already exists
	group(2, false)             // the group does not exist
	group(1, false, target.WeightedMember{Member: 3, Weight: 1})
	group(1, false, target.WeightedMember{Member: 4, Weight: 2},
		target.WeightedMember{Member: 1, Weight: 1}, target.WeightedMember{Member: 3, Weight: 3})
	group(1, false, target.WeightedMember{Member: 9, Weight: 1}) // there is no such member
	group(1, false, target.WeightedMember{Member: 1, Weight: 0}) // the weight must not be 0
	group(2, true, target.WeightedMember{Member: 2, Weight: 1},
		target.WeightedMember{Member: 3, Weight: 1})
	insert(chosenFrom, 2, 0, 2)
	insert(chosenFrom, 3, 0, 2)
	member(chooser, 3, outBy(20), false) // the member is in both groups
	member(chooser, 2, &target.ActionCall{Action: "I.toss", Params: [][]byte{}}, false)
	modify(chosenFrom, 2, 0, 1)
	modify(chosenFrom, 3, 1, 0)
	modify(chosenFrom, 1, 0, 2)
	for _, id := range []uint32{3, 9} {
		do(fmt.Sprintf("deleting member %d", id), func(p target.Pipeline) error {
			return p.DeleteMember(chooser, id)
		})
		do(fmt.Sprintf("deleting group %d", id-2), func(p target.Pipeline) error {
			return p.DeleteGroup(chooser, id-2)
		})
	}
	group(1, false)
	// Create as many members as fit, many times. This works only if the engine reuses released
	// space.
	for i := range 100 {
		group(2, false, target.WeightedMember{Member: 1 + uint32(i)%4, Weight: 60})
	}
	for key := byte(0); key < 4; key++ {
		do(fmt.Sprintf("deleting entry %d", key), func(p target.Pipeline) error {
			return p.DeleteEntry(chosenFrom, entry(chosenFrom, key, 0, 0))
		})
	}
	for id := uint32(1); id <= 2; id++ {
		do(fmt.Sprintf("deleting group %d", id), func(p target.Pipeline) error {
			return p.DeleteGroup(chooser, id)
		})
		do(fmt.Sprintf("deleting member %d", id), func(p target.Pipeline) error {
			return p.DeleteMember(chooser, id)
		})
	}
	for _, name := range []string{plain, chooser} {
		want, err := in.Members(name)
		check(t, err)
		got, err := c.Pipeline().Members(name)
		check(t, err)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("members of %s: %v, and %v by the interpreter", name, got, want)
		}
		groups, err := c.Pipeline().Groups(name)
		check(t, err)
		if len(groups) != 0 {
			t.Errorf("%s is left with groups %v", name, groups)
		}
	}
}
