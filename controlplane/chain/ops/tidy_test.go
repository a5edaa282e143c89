package ops_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// TestTidy checks which entries are inserted and deleted, and which keys are adopted, forgotten and
// retired. Chain 1 has the members a, b and c; x is another switch. In the directory the keys 1 and
// 2 are placed, and the KEY_IDs below 5 have been given.
func TestTidy(t *testing.T) {
	key := func(n uint32) wire.Key { return wire.MakeKey(1, n) }
	entry := func(k keyspace.Key) ops.Entry { return ops.Entry{ID: k.ID, Slot: k.Slot, Realm: 7} }
	const all = "a:1,2 b:1,2 c:1,2"
	for _, test := range []struct {
		name, entries, untidy string
		older                 bool
		busy                  uint32
		steps                 string
		adopted               int
		forgotten             int
		retired               int
	}{
		{name: "all agree", entries: all, untidy: "abc"},
		{name: "missing entries are made, tail first", entries: "a:2", untidy: "abc", steps: "+c:1,2 +b:1,2 +a:1"},
		{name: "... at those that have come up", entries: "a:2", untidy: "b", steps: "+b:1,2"},
		{name: "another realm", entries: "a:1,2 b:1!,2 c:1,2", untidy: "abc", steps: "+b:1"},
		{name: "what was given and is no key's is dropped, head first", entries: "a:1,2,4 b:1,2,4 c:1,2,4", untidy: "abc",
			steps: "-a:4 -b:4 -c:4"},
		{name: "what was never given, and all have, is taken in", entries: "a:1,2,9 b:1,2,9 c:1,2,9", untidy: "abc",
			adopted: 1},
		{name: "... but for what is hidden at one of them: it was not added to the end", untidy: "abc",
			entries: "a:1,2,9? b:1,2,9 c:1,2,9", steps: "-a:9 -b:9 -c:9", retired: 1},
		{name: "... and what only some have is dropped, and never given", entries: "a:1,2,9 b:1,2 c:1,2,9", untidy: "abc",
			steps: "-a:9 -c:9", retired: 1},
		{name: "who is no member keeps nothing", entries: all + " x:1,2", untidy: "abcx", steps: "-x:1,2"},
		{name: "keys that are being changed are left alone", entries: "a:2 b:1,2 c:2,4", untidy: "abc", busy: 1,
			steps: "-c:4"},
		{name: "an older directory follows the switches", entries: "a:2 b:2 c:2", untidy: "abc", older: true, forgotten: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, err := keyspace.New([]keyspace.Space{{Chain: 1, Count: 16}}, keyspace.Snapshot{
				Keys: []keyspace.Key{{Name: "one", ID: key(1), Slot: 1, State: keyspace.Placed},
					{Name: "two", ID: key(2), Slot: 2, State: keyspace.Placed}},
				Next: map[uint8]uint32{1: 5}})
			if err != nil {
				t.Fatal(err)
			}
			in := ops.Indexes{Members: []string{"a", "b", "c"}, Others: []string{"x"}, Untidy: map[string]bool{},
				Entries: map[string]map[wire.Key]ops.Entry{}, Busy: map[wire.Key]bool{key(test.busy): true},
				Older: test.older, Slots: 16, Entry: entry}
			for _, part := range strings.Fields(test.entries) {
				sw, list, _ := strings.Cut(part, ":")
				in.Entries[sw] = map[wire.Key]ops.Entry{}
				for _, word := range strings.Split(list, ",") {
					e := ops.Entry{Realm: 7}
					if strings.HasSuffix(word, "!") {
						e.Realm = 8
					}
					e.Hidden = strings.HasSuffix(word, "?")
					var n uint32
					if _, err := fmt.Sscanf(word, "%d", &n); err != nil {
						t.Fatal(err)
					}
					e.ID, e.Slot = key(n), int(n)
					in.Entries[sw][e.ID] = e
				}
			}
			for _, sw := range test.untidy {
				in.Untidy[string(sw)] = true
			}
			got := ops.Tidy(dir, 1, in)
			var steps []string
			for _, s := range got.Steps {
				var ids []string
				for _, e := range s.Entries {
					ids = append(ids, fmt.Sprint(uint32(e.ID)&0xFFFFFF))
				}
				steps = append(steps, map[bool]string{true: "+", false: "-"}[s.Insert]+s.Switch+":"+strings.Join(ids, ","))
			}
			if found := strings.Join(steps, " "); found != test.steps {
				t.Errorf("steps %q, want %q", found, test.steps)
			}
			if got.Adopted != test.adopted || got.Forgotten != test.forgotten || got.Retired != test.retired {
				t.Errorf("adopted %d, forgotten %d, retired %d; want %d, %d, %d", got.Adopted, got.Forgotten, got.Retired,
					test.adopted, test.forgotten, test.retired)
			}
		})
	}
}
