package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
	"github.com/netcraq/netcraq/internal/linearizable"
)

// This file has the load of TestAdversary. Its clients know keys by name.

// NamedWork is the work that a client does for some time. The client knows keys by name.
type NamedWork struct {
	Client   int
	Admin    []string // addresses of the controllers
	Services []netip.Addr
	Names    []string
	Duration time.Duration
}

// A client process keeps its client, and so its sessions, from one NamedWork to the next.
var (
	ownClient     *client.Client
	makeOwnClient sync.Mutex
)

// makeClient creates the process's client. Controllers may be dead or stopped, so it retries until
// the work's time is over.
func (w NamedWork) makeClient(ctx context.Context) (err error) {
	makeOwnClient.Lock()
	defer makeOwnClient.Unlock()
	cfg := client.Config{Sessions: fromadmin.Sessions(admin.NewClient(strings.Join(w.Admin, ",")), 2, "adversary")}
	for _, a := range w.Services {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(a, wire.Port))
	}
	for end := time.Now().Add(w.Duration); ownClient == nil; time.Sleep(100 * time.Millisecond) {
		if err != nil && time.Now().After(end) {
			return fmt.Errorf("making the client: %w", err)
		}
		ownClient, err = client.New(ctx, cfg)
	}
	return nil
}

// run makes calls for some time, and returns the history.
func (w NamedWork) run() (history []linearizable.Call, err error) {
	ctx := context.Background()
	if err := w.makeClient(ctx); err != nil {
		return nil, err
	}
	controller := admin.NewClient(strings.Join(w.Admin, ","))
	defer controller.Close()
	r := rand.New(rand.NewPCG(3, uint64(w.Client)))
	places := map[string]*admin.Key{}
	seen := map[string]wire.Version{} // the last known version of each name
	for n, end := 0, time.Now().Add(w.Duration); time.Now().Before(end); n++ {
		name := w.Names[r.IntN(len(w.Names))]
		if places[name] == nil {
			limit, cancel := context.WithTimeout(ctx, time.Second)
			k, err := controller.Lookup(limit, name)
			cancel()
			if err != nil { // The key does not exist or is being moved, or no controller leads.
				time.Sleep(2 * time.Millisecond)
				continue
			}
			places[name] = k
		}
		x := linearizable.Call{Client: w.Client, Name: name, Key: places[name].KeyID, Op: wire.Read,
			Value: fmt.Sprintf("%d.%d", w.Client, n)}
		switch i := r.IntN(10); {
		case i < 4:
			x.Op = wire.Write
		case i < 6:
			x.Op, x.Expected = wire.CAS, seen[name]
		}
		if executed := callByName(ctx, w.Services, places[name].VersionOffset, &x); executed {
			history = append(history, x)
		}
		if x.Absent || x.Unknown {
			delete(places, name)
		}
		if x.Version != 0 {
			seen[name] = x.Version
		}
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
	}
	return history, nil
}

// callByName makes the call x. It returns false if the call was certainly not executed and got no
// answer that counts. Versions in x belong to the name; adding offset converts them to versions of
// the KEY_ID.
func callByName(ctx context.Context, services []netip.Addr, offset uint64, x *linearizable.Call) bool {
	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := client.Request{Op: x.Op, Key: wire.Key(x.Key), Expected: x.Expected - wire.Version(offset)}
	if x.Op != wire.Read {
		req.Value = []byte(x.Value)
	}
	for _, a := range services { // Send the call only to the chain's own service address.
		if a == ServiceAddrOf(int(wire.Key(x.Key).Chain())) {
			client.AskAddresses(netip.AddrPortFrom(a, wire.Port))(&req)
		}
	}
	x.Begin = time.Now().UnixNano()
	res := ownClient.Batch(limit, []client.Request{req})[0]
	x.End = time.Now().UnixNano()
	byName := func(v wire.Version) wire.Version { return v + wire.Version(offset) }
	x.Version, x.Got, x.Found = byName(res.Version), string(res.Value), res.Err == nil
	var e *client.OpError
	switch {
	case res.Err == nil:
	case !errors.As(res.Err, &e):
		return false
	case e.OutcomeUnknown:
		x.Unknown, x.Version = true, 0
	case errors.Is(e, client.ErrNotFound) && e.Version == 0:
		x.Absent, x.Version = true, 0
	case errors.Is(e, client.ErrNotFound):
		// The answer is a tombstone, which also counts as an answer.
		x.Version = byName(e.Version)
	case errors.Is(e, client.ErrCASFailed):
		x.Failed, x.Version, x.Got, x.Found = true, byName(e.Version), string(e.Value), e.Found
	default:
		return false
	}
	return true
}
