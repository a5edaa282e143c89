package lifecycle

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestRemovedUnderWrites removes keys while they are written and read at every switch. When any
// client has got the answer that the key has no slot, no later request may get a value. Then the
// test takes a switch out of the chain, and brings it in again when the chain has no key. The
// switch must have forgotten the keys' data.
func TestRemovedUnderWrites(t *testing.T) {
	for _, engine := range []string{"interp", "auto"} {
		t.Run(engine, func(t *testing.T) { removedUnderWrites(t, engine) })
	}
}

func removedUnderWrites(t *testing.T, engine string) {
	if !lab.InNamespace(t) {
		return
	}
	const switches, keys = 3, 20
	nw := lab.NewNetwork(t, engine, lab.Line(switches, 1000))
	c := nw.StartController("")
	c.WaitReady()
	add := func(name string) uint32 {
		k, err := c.API.AddKey(t.Context(), "main", admin.KeySpec{Name: name, Value: []byte("first")})
		if err != nil {
			t.Fatal(err)
		}
		return k.KeyID
	}
	refused, told := 0, 0
	for i := range keys {
		id := add(fmt.Sprintf("removed-%d", i))
		answers := hammer(nw, id, func() {
			if err := c.API.RemoveKey(t.Context(), "main", fmt.Sprintf("removed-%d", i)); err != nil {
				t.Fatal(err)
			}
		})
		slices.SortFunc(answers, func(a, b answer) int { return a.end.Compare(b.end) })
		at := slices.IndexFunc(answers, func(a answer) bool { return a.Status == wire.NotFound && a.Version == 0 })
		if at < 0 {
			t.Fatalf("nobody was told that %v has no slot", wire.Key(id))
		}
		first, late := answers[at], 0
		for _, a := range answers {
			switch {
			case a.Status == wire.Retry:
				refused++
			case (a.Status == wire.OK || a.Status == wire.Superseded) && a.begin.After(first.end):
				if late++; late == 1 {
					t.Errorf("%v has no slot, said s%d; %v after that s%d was asked, and answered %v", wire.Key(id), first.at, a.begin.Sub(first.end), a.at, a.Packet)
				}
			case a.Status == wire.NotFound && a.Version == 0:
				told++
			case a.Status != wire.OK && a.Status != wire.Superseded && a.Status != wire.NotFound:
				t.Errorf("%v", a.Packet)
			}
		}
	}
	t.Logf("%d keys removed: %d answers of no slot, %d writes were told to come again", keys, told, refused)

	id := add("of before")
	members := func(names ...string) {
		if _, err := c.API.ChangeChain(t.Context(), "main", admin.ChainChange{Members: &names}); err != nil {
			t.Fatal(err)
		}
		c.WaitReady()
	}
	members("s1", "s3")
	if err := c.API.RemoveKey(t.Context(), "main", "of before"); err != nil {
		t.Fatal(err)
	}
	members("s1", "s3", "s2")
	for i := range switches {
		if r, err := nw.Hosts[0].Read(lab.SwitchAddr(i+1), id); err != nil || r.Status != wire.NotFound ||
			r.Version != 0 {
			t.Errorf("s%d says %v (%v) of a key that was removed while s2 was away", i+1, r, err)
		}
	}
}

// answer is a switch's answer, with the time of the request.
type answer struct {
	*wire.Packet
	at         int
	begin, end time.Time
}

// hammer writes a key and reads it at every switch, from before `do` until a while after it.
func hammer(nw *lab.Network, id uint32, do func()) (all []answer) {
	nw.T.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	over := make(chan struct{})
	for i, h := range nw.Hosts {
		for _, op := range []wire.Op{wire.Read, wire.Write} {
			wg.Go(func() {
				for n := uint32(1); ; n++ {
					select {
					case <-over:
						return
					default:
					}
					p := &wire.Packet{Op: op, Key: wire.Key(id), Request: n<<3 | uint32(i)}
					if op == wire.Write {
						p.Value = fmt.Appendf(nil, "%d.%d", i, n)
					}
					begin := time.Now()
					r, err := h.Ask(lab.SwitchAddr(i+1), p, 50*time.Millisecond)
					if err != nil {
						continue // the packet was lost
					}
					mu.Lock()
					all = append(all, answer{r, i + 1, begin, time.Now()})
					mu.Unlock()
				}
			})
		}
	}
	time.Sleep(5 * time.Millisecond)
	do()
	time.Sleep(5 * time.Millisecond)
	close(over)
	wg.Wait()
	return all
}
