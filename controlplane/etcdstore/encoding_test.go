package etcdstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/controller/statetest"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// kept is a directory in a simulated etcd, whose transactions take only a few changes.
type kept struct {
	t      *testing.T
	stored map[string]string
	size   int
}

func (x *kept) image() *Image {
	x.t.Helper()
	m, err := NewImage(x.stored)
	if err != nil {
		x.t.Fatal(err)
	}
	return m
}

func (x *kept) state() *saved.State {
	x.t.Helper()
	s, err := x.image().State()
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// save writes a state, and calls between after each transaction.
func (x *kept) save(s *saved.State, between func()) {
	x.t.Helper()
	transactions, err := x.image().Transactions(s, 77, x.size)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, changes := range transactions {
		if len(changes) > x.size {
			x.t.Fatalf("%d changes in one transaction of %d", len(changes), x.size)
		}
		for _, c := range changes {
			if delete(x.stored, c.Name); !c.Delete {
				x.stored[c.Name] = c.Value
			}
		}
		between()
	}
}

var testSpaces = []keyspace.Space{{Chain: 0, First: 0, Count: 40}, {Chain: 7, First: 40, Count: 40}}

// TestBetweenTransactions: if a leader ends between two transactions of one save, the next leader
// can continue from the state in etcd. A name that exists before and after the save exists exactly
// once in that state. The data that prevents reuse of versions and KEY_IDs is not older than the
// keys.
func TestBetweenTransactions(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		x := &kept{t: t, stored: map[string]string{}, size: 12}
		d, err := keyspace.New(testSpaces, keyspace.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		epoch := uint16(1)
		version := func() wire.Version { return wire.MakeVersion(epoch, uint64(r.IntN(50))) }
		add := func(chain uint8, name string) (keyspace.Key, bool) {
			k, err := d.Add(chain, name, nil)
			if err == nil {
				d.SetState(k.ID, keyspace.Placed)
				d.Written(k.ID, version(), true)
			}
			return k, err == nil
		}
		state := func() *saved.State {
			return &saved.State{Version: saved.Version, Directory: d.Snapshot(), Spaces: testSpaces,
				Chains: map[string]chain.Record{"a": {Config: chain.Config{Epoch: epoch}}}}
		}
		x.save(state(), func() {})
		for range 40 {
			before := x.state().Directory
			for range 1 + r.IntN(6) { // the number of steps in one save
				name := fmt.Sprint("k", r.IntN(30))
				k, ok := d.ByName(name)
				switch {
				case !ok:
					add(pick(r, uint8(0), 7), name)
				case r.IntN(2) == 0: // remove the key
					d.Leave(k.ID, version())
					d.Delete(k.ID)
				default: // move the key
					d.StartMove(k.ID)
					if to, ok := add(7-k.ID.Chain(), keyspace.MovingPrefix+name); ok {
						d.Delete(d.FinishMove(k.ID, to.ID, version()).ID)
					} else {
						d.StayPut(k.ID)
					}
				}
			}
			epoch += uint16(r.IntN(2))
			after := state()
			names := func(s keyspace.Snapshot) map[string]bool {
				out := map[string]bool{}
				for _, k := range s.Keys {
					out[k.FinalName()] = true
				}
				return out
			}
			was, will := names(before), names(after.Directory)
			x.save(after, func() {
				now := x.state().Directory
				if _, err := keyspace.New(testSpaces, now); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				is := names(now)
				for name := range was {
					switch {
					case will[name] && !is[name]:
						t.Fatalf("seed %d: %q is lost", seed, name)
					case !will[name] && !is[name] && now.Floor != after.Directory.Floor:
						t.Fatalf("seed %d: %q is gone, and the floor is %v, not %v", seed, name, now.Floor, after.Directory.Floor)
					}
				}
				if !maps.Equal(now.Next, after.Directory.Next) && !maps.Equal(now.Next, before.Next) {
					t.Fatalf("seed %d: next is %v", seed, now.Next)
				}
			})
			if diff := statetest.Diff(after, x.state()); diff != "" {
				t.Fatalf("seed %d: read (-want +got):\n%s", seed, diff)
			}
		}
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// TestStateWithoutFloor: after a state without a floor was loaded, names continue above all
// versions that they have had, across moves, removals, changes of chains, and removed chains.
func TestStateWithoutFloor(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		chains := map[uint8]bool{1: true, 2: true}
		epochs := map[uint8]uint16{1: 1, 2: 1}
		highest := uint16(1)
		sequence := map[uint8]uint64{}
		var spaces []keyspace.Space
		for i := range 4 {
			spaces = append(spaces, keyspace.Space{Chain: uint8(i), First: i * 50, Count: 50})
		}
		d, err := keyspace.New(spaces[1:3], keyspace.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		var top wire.Version // the highest version of the name that anybody got
		write := func(id wire.Key) wire.Version {
			c := id.Chain()
			sequence[c]++
			v := wire.MakeVersion(epochs[c], sequence[c])
			if k, ok := d.ByID(id); ok && k.Made != 0 {
				top = max(top, k.Version(v))
			}
			return v
		}
		add := func(c uint8, name string) (keyspace.Key, bool) {
			k, err := d.Add(c, name, nil)
			if err != nil {
				return k, false
			}
			d.SetState(k.ID, keyspace.Placed)
			d.Written(k.ID, write(k.ID), true)
			k, _ = d.ByID(k.ID)
			return k, true
		}
		for range 300 {
			c := pick(r, slices.Sorted(maps.Keys(chains))...)
			name := fmt.Sprint("k", r.IntN(20))
			k, ok := d.ByName(name)
			switch n := r.IntN(10); {
			case n == 0: // change the chain
				epochs[c] += uint16(1 + r.IntN(3))
				highest = max(highest, epochs[c])
			case n == 1 && d.Count(c) == 0 && len(chains) > 1: // remove the chain
				delete(chains, c)
			case n == 2: // add a chain, which may have existed before
				if c = uint8(r.IntN(4)); !chains[c] {
					highest++
					chains[c], epochs[c] = true, highest
					var now []keyspace.Space
					for c := range chains {
						now = append(now, spaces[c])
					}
					d.SetSpaces(now)
				}
			case !ok:
				if k, ok := add(c, name); ok {
					top = max(top, k.Made)
				}
			case n < 6:
				write(k.ID)
			case n < 8:
				d.Leave(k.ID, write(k.ID))
				d.Delete(k.ID)
			case c != k.ID.Chain():
				d.StartMove(k.ID)
				last := wire.MakeVersion(epochs[k.ID.Chain()], sequence[k.ID.Chain()])
				if to, ok := add(c, keyspace.MovingPrefix+name); ok {
					d.Delete(d.FinishMove(k.ID, to.ID, last).ID)
					write(to.ID)
				} else {
					d.StayPut(k.ID)
				}
			}
		}
		s := &saved.State{Version: saved.Version, Directory: d.Snapshot(),
			Chains: map[string]chain.Record{}, Epoch: highest}
		for c := range chains {
			s.Chains[fmt.Sprint("chain", c)] = chain.Record{Config: chain.Config{Epoch: epochs[c]}}
		}
		x := &kept{t: t, stored: map[string]string{}, size: 100}
		x.save(s, func() {})
		x.stored[revisionName] = "77" // older controllers write a plain number
		got := x.state().Directory.Floor
		if got < top || got < d.Snapshot().Floor {
			t.Fatalf("seed %d: the floor is %v, the highest version by name was %v, and the floor of then %v", seed, got,
				top, d.Snapshot().Floor)
		}
		if most := wire.Version(4*(int(highest)+1)) << 48; got > most {
			t.Fatalf("seed %d: the floor is %v, and the highest epoch %d", seed, got, highest)
		}
		if seed < 3 {
			t.Logf("floor %v for a highest version of %v, epochs %v of %v", got, top, epochs, chains)
		}
	}
}

// TestFloorOfUsedUpEpochs: if the bound over all chains would leave no versions, the floor is that
// of one chain's epochs, so that keys can be added.
func TestFloorOfUsedUpEpochs(t *testing.T) {
	s := &saved.State{Version: saved.Version, Chains: map[string]chain.Record{}}
	for i := range 3 {
		s.Chains[fmt.Sprint(i)] = chain.Record{Config: chain.Config{Epoch: 30000}}
	}
	if got, want := s.FloorAbove(), wire.MakeVersion(30001, 0); got != want {
		t.Errorf("%v, not %v", got, want)
	}
	s.Epoch = 65535
	if got := s.FloorAbove(); got != keyspace.LastFloor {
		t.Errorf("%v", got)
	}
}

// TestForeignKey: a key that a later version has written is an error.
func TestForeignKey(t *testing.T) {
	m, err := NewImage(map[string]string{"version": "1", "of-tomorrow": "{}"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := m.State(); err == nil {
		t.Errorf("%+v", s)
	}
}
