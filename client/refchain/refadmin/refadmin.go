// Package refadmin is a controller for tests of code that asks a controller where keys are. It has
// reference chains (package refchain), places keys in them, moves and removes keys, and can ignore
// requests.
package refadmin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/refchain"
)

// Controller is a controller for tests, which serves the admin API.
type Controller struct {
	server *httptest.Server
	start  time.Time
	slots  int

	mu       sync.Mutex
	names    []string
	chains   map[string]*refchain.Chain
	ids      map[string]uint8
	epochs   map[string]uint16
	next     map[string]uint32
	keys     map[string]*admin.Key
	moving   map[string]bool
	replaced map[string]time.Time
	floor    wire.Version
	session  uint16
	down     bool
	asked    map[string]int // number of requests, by method and path
}

// New starts a controller of the given chains. Each chain gets the given number of slots. The
// chains are named "a" with epoch 1, "b" with epoch 2, and so on.
func New(slots int, chains ...*refchain.Chain) *Controller {
	c := &Controller{start: time.Now(), slots: slots, chains: map[string]*refchain.Chain{}, ids: map[string]uint8{},
		epochs: map[string]uint16{}, next: map[string]uint32{},
		keys: map[string]*admin.Key{}, moving: map[string]bool{},
		replaced: map[string]time.Time{}, asked: map[string]int{}}
	for i, chain := range chains {
		name := string(rune('a' + i))
		c.names = append(c.names, name)
		c.chains[name], c.ids[name], c.epochs[name] = chain, chain.ID(), uint16(i+1)
		chain.SetEpoch(uint16(i + 1))
	}
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.down {
				panic(http.ErrAbortHandler)
			}
			c.asked[pattern]++
			out, err := f(r)
			w.Header().Set("Content-Type", "application/json")
			if err != nil {
				e := err.(*admin.Error)
				w.WriteHeader(e.Status)
				w.Write(admin.MarshalError(e))
				return
			}
			json.NewEncoder(w).Encode(out)
		})
	}
	handle("GET /v1/chains", func(*http.Request) (any, error) {
		var out []admin.Chain
		for _, n := range c.names {
			out = append(out, c.chain(n))
		}
		return out, nil
	})
	handle("GET /v1/chains/{chain}", func(r *http.Request) (any, error) {
		if c.chains[r.PathValue("chain")] == nil {
			return nil, admin.Errorf(admin.CodeNotFound, "no chain %q", r.PathValue("chain"))
		}
		return c.chain(r.PathValue("chain")), nil
	})
	handle("GET /v1/keys", func(r *http.Request) (any, error) {
		out := []admin.Key{}
		for name, k := range c.keys {
			if strings.HasPrefix(name, r.URL.Query().Get("prefix")) {
				out = append(out, *k)
			}
		}
		slices.SortFunc(out, func(a, b admin.Key) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	})
	handle("GET /v1/keys/{name}", func(r *http.Request) (any, error) { return c.lookup(r.PathValue("name")) })
	handle("POST /v1/keys", func(r *http.Request) (any, error) {
		var what admin.KeyRequest
		if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
		}
		return c.request(what)
	})
	handle("POST /v1/sessions", func(r *http.Request) (any, error) {
		var what admin.SessionsRequest
		if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
		}
		out := admin.Sessions{Lease: fmt.Sprint("l", c.session), TTLSeconds: 30}
		for range what.Count {
			c.session++
			out.Sessions = append(out.Sessions, admin.Session{ID: c.session, NextRequest: 1})
		}
		return out, nil
	})
	handle("PUT /v1/sessions/{lease}", func(r *http.Request) (any, error) {
		return admin.Sessions{Lease: r.PathValue("lease"), TTLSeconds: 30}, nil
	})
	handle("DELETE /v1/sessions/{lease}", func(*http.Request) (any, error) { return nil, nil })
	c.server = httptest.NewServer(mux)
	c.server.Config.ErrorLog = nil
	return c
}

// Close ends the controller.
func (c *Controller) Close() { c.server.CloseClientConnections(); c.server.Close() }

// URL returns the address of the controller's API.
func (c *Controller) URL() string { return c.server.URL }

// SetDown(true) makes the controller ignore requests. SetDown(false) ends that.
func (c *Controller) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

// Asked returns how many requests of a kind, such as "GET /v1/keys/{name}", the controller has got.
func (c *Controller) Asked(pattern string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[pattern]
}

func (c *Controller) chain(name string) admin.Chain {
	at := func(a netip.AddrPort) string { return a.String() }
	all := c.chains[name].Addresses()
	out := admin.Chain{Name: name, ID: c.ids[name], ServiceAddress: at(all[0]), Ready: true,
		ValueBytes: c.chains[name].ValueBytes(), Slots: c.slots}
	for i, a := range all[1:] {
		out.Members = append(out.Members, admin.Member{Switch: fmt.Sprint("s", i+1), Address: at(a)})
	}
	for _, k := range c.keys {
		if k.Chain == name {
			out.Keys++
		}
	}
	return out
}

func (c *Controller) settled(k admin.Key) admin.Key {
	from := c.start
	if at, ok := c.replaced[k.Name]; ok {
		from = at
	}
	k.SettledMillis = time.Since(from).Milliseconds()
	return k
}

func (c *Controller) lookup(name string) (any, error) {
	switch k := c.keys[name]; {
	case c.moving[name]:
		return nil, admin.Errorf(admin.CodeUnavailable, "%q is being moved", name)
	case k == nil:
		e := admin.Errorf(admin.CodeNotFound, "no key %q", name)
		e.SettledMillis = c.settled(admin.Key{Name: name}).SettledMillis
		return nil, e
	default:
		return c.settled(*k), nil
	}
}

func (c *Controller) request(r admin.KeyRequest) (any, error) {
	if c.moving[r.Name] {
		return nil, admin.Errorf(admin.CodeUnavailable, "%q is being moved", r.Name)
	}
	if k := c.keys[r.Name]; k != nil {
		return admin.RequestedKey{Key: c.settled(*k)}, nil
	}
	if q := r.Quota; q != nil {
		n := 0
		for name := range c.keys {
			if strings.HasPrefix(name, q.Prefix) {
				n++
			}
		}
		if n >= q.Keys {
			return nil, admin.Errorf(admin.CodeQuotaExceeded, "there are %d keys, and there may be %d", n, q.Keys)
		}
	}
	best := ""
	for _, n := range c.names {
		if len(r.Chains) > 0 && !slices.Contains(r.Chains, n) || c.chain(n).Keys >= c.slots {
			continue
		}
		if best == "" || c.chain(n).Keys < c.chain(best).Keys {
			best = n
		}
	}
	if best == "" {
		return nil, admin.Errorf(admin.CodeResourceExhausted, "no chain has a slot free: %d slots each", c.slots)
	}
	k := c.place(r.Name, best)
	first := wire.MakeVersion(c.epochs[best], 1)
	c.chains[best].Put(wire.Key(k.KeyID), first, nil, false)
	if first <= c.floor {
		k.VersionOffset = uint64(c.floor + 1 - first)
	}
	k.Unwritten = uint64(first) + k.VersionOffset
	c.keys[r.Name] = k
	return admin.RequestedKey{Key: c.settled(*k), Created: true}, nil
}

func (c *Controller) place(name, chain string) *admin.Key {
	c.next[chain]++
	return &admin.Key{Name: name, Chain: chain, KeyID: uint32(wire.MakeKey(c.ids[chain], c.next[chain]))}
}

// Move moves a key to another chain. During the move, which lasts for the duration `takes`, the key
// is in no chain.
func (c *Controller) Move(name, to string, takes time.Duration) {
	c.mu.Lock()
	old := c.keys[name]
	if old == nil || old.Chain == to || c.moving[name] {
		c.mu.Unlock()
		return
	}
	c.moving[name] = true
	c.mu.Unlock()
	v, value, found, _ := c.chains[old.Chain].Take(wire.Key(old.KeyID))
	gone := time.Now()
	time.Sleep(takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.place(name, to)
	first := wire.MakeVersion(c.epochs[to], 1)
	k.VersionOffset = uint64(v) + old.VersionOffset - uint64(first)
	k.Unwritten = old.Unwritten
	c.chains[to].Put(wire.Key(k.KeyID), first, value, found)
	c.keys[name] = k
	c.replaced[name] = gone
	delete(c.moving, name)
}

// PutBack removes a key from its chain for the duration `takes`, and then puts it back, as after a
// failed move.
func (c *Controller) PutBack(name string, takes time.Duration) {
	c.mu.Lock()
	k := c.keys[name]
	c.moving[name] = true
	c.mu.Unlock()
	v, value, found, _ := c.chains[k.Chain].Take(wire.Key(k.KeyID))
	time.Sleep(takes)
	c.chains[k.Chain].Put(wire.Key(k.KeyID), v, value, found)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.moving, name)
}

// Remove removes a key from its chain and from the controller.
func (c *Controller) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.keys[name]
	if k == nil {
		return
	}
	v, _, _, _ := c.chains[k.Chain].Take(wire.Key(k.KeyID))
	c.floor = max(c.floor, v+wire.Version(k.VersionOffset)+1) // the deletion has this version
	delete(c.keys, name)
	c.replaced[name] = time.Now()
}

// Key returns a key's present state, or nil if the key does not exist.
func (c *Controller) Key(name string) *admin.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[name]
}
