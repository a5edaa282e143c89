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

	"github.com/anishathalye/porcupine"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
	"github.com/netcraq/netcraq/wire"
)

// The load of TestAdversary: clients that know keys by their names, and what a name may do.

// What is done to a name beside a client's reads and writes. Adding a key makes its slot, with a
// tombstone, and then gives it its value; removing one may leave a tombstone in it before it goes.
const (
	OpAdd wire.Op = 0xF0 + iota
	OpFirst
	OpClear
	OpRemove
	OpMove
)

// NamedCall is one call of a client's, or one change of where a name is. Times are Unix
// nanoseconds.
type NamedCall struct {
	Client     int
	Name       string
	Key        uint32 // the KEY_ID that was asked for; before a move
	To         uint32 // ... and after it
	Op         wire.Op
	Value      string // written
	Expected   wire.Version
	Begin, End int64
	Unknown    bool // whether it was executed
	Failed     bool // the CAS was
	Absent     bool // there is no such KEY_ID
	Got        string
	Version    wire.Version
}

// wanderer is a name's state in the checker: where it is, and what is there.
type wanderer struct {
	key uint32 // 0: it is nowhere
	cell
	cleared bool // by a removal: what takes it up again, after a controller has died or was not heard, may leave another tombstone
}

// Wandering is what a name may do: as registers, and it may be added, removed and moved, which
// keeps its value and gives it another KEY_ID.
var Wandering = porcupine.Model{
	Partition: partition(func(x NamedCall) string { return x.Name }),
	Init:      func() any { return wanderer{} },
	Step: func(state, input, _ any) (bool, any) {
		s, x := state.(wanderer), input.(NamedCall)
		here := s.key == x.Key
		switch {
		case x.Op == OpAdd && s.key == 0:
			return true, wanderer{key: x.Key, cell: cell{open: true}}
		case x.Op >= OpAdd && !here: // one that has not ended may come after everything else
			return x.Unknown || x.Op == OpClear, s
		case x.Op == OpAdd:
			return false, s
		case x.Op == OpFirst:
			return true, wanderer{key: x.Key, cell: cell{open: true, floor: s.below(), value: x.Value}}
		case x.Op == OpClear:
			return true, wanderer{key: x.Key, cell: cell{open: true, floor: s.below()}, cleared: true}
		case x.Op == OpRemove:
			return true, wanderer{}
		case x.Op == OpMove && x.To != x.Key:
			return true, wanderer{key: x.To, cell: cell{open: true, value: s.value}}
		case x.Op == OpMove:
			return true, s
		case x.Absent:
			return !here, s
		case !here:
			return x.Unknown, s // it is executed nowhere else
		}
		looks := x.Op == wire.Read || x.Failed
		if s.cleared && looks && x.Got == "" && x.Version > s.below() {
			s.cell = cell{open: true, floor: s.below()}
		}
		ok, next := registers.Step(s.cell, Call{Op: x.Op, Value: x.Value, Expected: x.Expected, Unknown: x.Unknown, Failed: x.Failed, Got: x.Got, Version: x.Version}, nil)
		return ok, wanderer{s.key, next.(cell), s.cleared && looks}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}

// NamedWork is what a client that knows keys by their names does.
type NamedWork struct {
	Client   int
	Admin    []string // addresses of the controllers
	Services []netip.Addr
	Names    []string
	Duration time.Duration
}

// A client process keeps its client, and with that its sessions, from one piece of work to the
// next.
var (
	ownClient     *client.Client
	makeOwnClient sync.Once
)

// run makes calls for a while, and gives the history.
func (w NamedWork) run() (history []NamedCall, err error) {
	ctx := context.Background()
	makeOwnClient.Do(func() {
		var cfg client.Config
		for _, a := range w.Services {
			cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(a, wire.Port))
		}
		cfg.Sessions = fromadmin.Sessions(api.NewClient(strings.Join(w.Admin, ",")), 2, "adversary")
		ownClient, err = client.New(ctx, cfg)
	})
	if ownClient == nil {
		return nil, fmt.Errorf("making the client: %w", err)
	}
	admin := api.NewClient(strings.Join(w.Admin, ","))
	defer admin.Close()
	r := rand.New(rand.NewPCG(3, uint64(w.Client)))
	places := map[string]uint32{}
	seen := map[uint32]wire.Version{}
	for n, end := 0, time.Now().Add(w.Duration); time.Now().Before(end); n++ {
		name := w.Names[r.IntN(len(w.Names))]
		if places[name] == 0 {
			limit, cancel := context.WithTimeout(ctx, time.Second)
			k, err := admin.Lookup(limit, name)
			cancel()
			if err != nil { // it is nowhere, on its way, or nobody leads
				time.Sleep(2 * time.Millisecond)
				continue
			}
			places[name] = k.KeyID
		}
		x := NamedCall{Client: w.Client, Name: name, Key: places[name], Op: wire.Read, Value: fmt.Sprintf("%d.%d", w.Client, n)}
		switch i := r.IntN(10); {
		case i < 4:
			x.Op = wire.Write
		case i < 6:
			x.Op, x.Expected = wire.CAS, seen[x.Key]
		}
		if executed := x.do(ctx, w.Services); executed {
			history = append(history, x)
		}
		if x.Absent || x.Unknown {
			delete(places, name)
		}
		if x.Version != 0 {
			seen[x.Key] = x.Version
		}
		time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
	}
	return history, nil
}

// do makes the call. It says whether it may have had an effect or an answer: what the library says
// was surely not executed is none.
func (x *NamedCall) do(ctx context.Context, services []netip.Addr) bool {
	limit, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := client.Request{Op: x.Op, Key: wire.Key(x.Key), Expected: x.Expected}
	if x.Op != wire.Read {
		req.Value = []byte(x.Value)
	}
	for _, a := range services { // the chain's own
		if a == ServiceAddrOf(int(wire.Key(x.Key).Chain())) {
			client.At(netip.AddrPortFrom(a, wire.Port))(&req)
		}
	}
	x.Begin = time.Now().UnixNano()
	res := ownClient.Batch(limit, []client.Request{req})[0]
	x.End = time.Now().UnixNano()
	x.Version, x.Got = res.Version, string(res.Value)
	var e *client.OpError
	switch {
	case res.Err == nil:
	case !errors.As(res.Err, &e):
		return false
	case e.OutcomeUnknown:
		x.Unknown, x.Version = true, 0
	case errors.Is(e, client.ErrNotFound) && e.Version == 0:
		x.Absent = true
	case errors.Is(e, client.ErrNotFound): // a tombstone: nobody deletes
		x.Version = e.Version
	case errors.Is(e, client.ErrCASFailed):
		x.Failed, x.Version, x.Got = true, e.Version, string(e.Value)
	default:
		return false
	}
	return true
}
