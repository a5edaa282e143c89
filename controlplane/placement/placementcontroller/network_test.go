package placementcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// fakeNetwork is a controller with chains of two switches. It outlives the controllers that use it.
type fakeNetwork struct {
	t     *testing.T
	start time.Time

	mu     sync.Mutex
	chains []admin.Chain
	keys   map[string]*fakeKey // keys by their names in the directory
	next   uint32
	rates  map[string]policy.Heat // rates that the switches count, by key
	events []string
	down   map[string]bool // switches that do not answer, by name
	refuse error           // the error of AddKeys and RemoveKey
	meddle []byte          // content that another writer puts into each new slot
}

type fakeKey struct {
	admin.Key
	value   []byte // the slot's value; nil means NOT_FOUND
	version uint64
}

func newNetwork(t *testing.T, cell int, slots ...int) *fakeNetwork {
	n := &fakeNetwork{t: t, start: time.Now(), keys: map[string]*fakeKey{},
		rates: map[string]policy.Heat{}, down: map[string]bool{}}
	for i, s := range slots {
		n.chains = append(n.chains, admin.Chain{Name: fmt.Sprintf("c%d", i+1), ID: uint8(i + 1), Slots: s,
			Ready: true, ValueBytes: cell,
			Members: []admin.Member{{Switch: fmt.Sprintf("s%d", 2*i+1), Ready: true},
				{Switch: fmt.Sprintf("s%d", 2*i+2), Ready: true}}})
	}
	return n
}

func (n *fakeNetwork) chain(name string) *admin.Chain {
	for i := range n.chains {
		if n.chains[i].Name == name {
			return &n.chains[i]
		}
	}
	return nil
}

func (n *fakeNetwork) Chains(context.Context) ([]admin.Chain, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.chains)
	for i := range out {
		for _, k := range n.keys {
			if k.Chain == out[i].Name {
				out[i].Keys++
			}
		}
	}
	return out, nil
}

func (n *fakeNetwork) Directory(_ context.Context, prefix string, _ bool) ([]admin.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := []admin.Key{}
	for _, name := range slices.Sorted(maps.Keys(n.keys)) {
		if strings.HasPrefix(name, prefix) {
			out = append(out, n.keys[name].Key)
		}
	}
	return out, nil
}

func (n *fakeNetwork) LookupTail(ctx context.Context, name string) (*admin.Key, error) {
	k, err := n.Lookup(ctx, name, true)
	if err == nil {
		k.State = k.State[len(k.State)-1:]
	}
	return k, err
}

func (n *fakeNetwork) Lookup(_ context.Context, name string, _ bool) (*admin.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.keys[name]
	if k == nil {
		return nil, admin.Errorf(admin.CodeNotFound, "no key %q", name)
	}
	out := k.Key
	for _, m := range n.chain(k.Chain).Members {
		s := admin.KeyState{Switch: m.Switch, Status: "OK", Value: slices.Clone(k.value),
			Length: len(k.value), Version: k.version, Newest: k.version}
		if n.down[m.Switch] {
			s = admin.KeyState{Switch: m.Switch, Status: "UNREACHABLE"}
		} else if k.value == nil {
			s = admin.KeyState{Switch: m.Switch, Status: "NOT_FOUND", Length: -1}
		}
		out.State = append(out.State, s)
	}
	return &out, nil
}

func (n *fakeNetwork) AddKeys(_ context.Context, chain string, specs []admin.KeySpec) ([]admin.Key, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return nil, n.refuse
	}
	ch := n.chain(chain)
	used := 0
	for _, k := range n.keys {
		if k.Chain == chain {
			used++
		}
	}
	out := make([]admin.Key, len(specs))
	for i, s := range specs {
		switch {
		case n.keys[s.Name] != nil:
			out[i].Error = admin.Errorf(admin.CodeAlreadyExists, "%s is there", s.Name)
			continue
		case used == ch.Slots:
			out[i].Error = admin.Errorf(admin.CodeResourceExhausted, "no slot")
			continue
		case len(s.Value) == 0:
			n.t.Errorf("%s is placed without a clear slot", s.Name)
		}
		used++
		n.next++
		out[i] = admin.Key{Name: s.Name, KeyID: uint32(ch.ID)<<24 | n.next, Chain: chain}
		n.keys[s.Name] = &fakeKey{Key: out[i], value: slices.Clone(s.Value), version: 7}
		if n.meddle != nil {
			n.keys[s.Name].value, n.keys[s.Name].version = n.meddle, 8
		}
	}
	return out, nil
}

func (n *fakeNetwork) RemoveKey(_ context.Context, chain, nameOrID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	k := n.keys[nameOrID]
	if k == nil || k.Chain != chain {
		return admin.Errorf(admin.CodeNotFound, "no key %q", nameOrID)
	}
	delete(n.keys, nameOrID)
	return nil
}

func (n *fakeNetwork) Counters(_ context.Context, sw string) (*admin.Counters, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down[sw] {
		return nil, admin.Errorf(admin.CodeUnavailable, "%s is down", sw)
	}
	out := &admin.Counters{Switch: sw}
	elapsed := time.Since(n.start).Seconds()
	for _, k := range n.keys {
		if !slices.ContainsFunc(n.chain(k.Chain).Members, func(m admin.Member) bool { return m.Switch == sw }) {
			continue
		}
		r := n.rates[k.Name]
		out.Slots = append(out.Slots, admin.SlotCounters{KeyID: k.KeyID, Name: k.Name,
			Reads:  uint64(elapsed * (r.Reads + r.Writes) / 2),
			Writes: uint64(elapsed * r.Writes * versionsPerWrite)})
	}
	return out, nil
}

func (n *fakeNetwork) Announce(kind, chain, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, kind+" "+message)
}

func (n *fakeNetwork) has(event string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events, func(e string) bool { return strings.Contains(e, event) })
}

// set gives a placed key's slot a value.
func (n *fakeNetwork) set(key string, slot []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.keys[DirectoryName(key)]
	if k == nil {
		n.t.Fatalf("%s is not in the switches", key)
	}
	k.value = slot
	k.version++
}

// inSwitches returns the placed etcd keys in the switches.
func (n *fakeNetwork) inSwitches() map[string]wire.Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]wire.Key{}
	for name, k := range n.keys {
		if text, ok := strings.CutPrefix(name, namePrefix); ok {
			key, err := placement.ParsePrintable(text)
			if err != nil {
				n.t.Errorf("%s: %v", name, err)
			}
			out[key] = wire.Key(k.KeyID)
		}
	}
	return out
}

// fakeSource is a Prometheus that answers at once.
type fakeSource struct {
	mu   sync.Mutex
	heat map[string]policy.Heat
	err  error
}

func (s *fakeSource) Heat(context.Context) (map[string]policy.Heat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return maps.Clone(s.heat), nil
}

func (s *fakeSource) Scalar(context.Context, string) (float64, bool) { return 0, false }
func (s *fakeSource) Name() (string, string)                         { return "http://fake", "10s" }

func (s *fakeSource) set(heat map[string]policy.Heat, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heat, s.err = heat, err
}
