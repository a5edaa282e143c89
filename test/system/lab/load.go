package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/internal/linearizable"
)

// This file has the load of TestSurvive. It is the work of clients, which runs in the host
// processes.

// Workload is the work that a host does for some time.
type Workload struct {
	Client  int
	Service netip.Addr
	Others  []netip.Addr
	Reads   bool // the workload only reads
	Writes  bool // the workload only writes
	// if it is not 0, the workload makes only this number of CAS calls, without pauses, each on the
	// last known version
	Swaps    int
	Keys     []uint32
	Session  admin.Session
	Duration time.Duration
	Until    string // path of a file; when the file exists, the work ends early
}

// over returns whether the time `end` has passed, or the file `until` exists.
func over(end time.Time, until string) bool {
	if until != "" {
		if _, err := os.Stat(until); err == nil {
			return true
		}
	}
	return !time.Now().Before(end)
}

// run makes calls for some time, and returns the history.
func (l Workload) run() ([]linearizable.Call, error) {
	cfg := client.Config{Sessions: client.StaticSessions(client.Session{ID: l.Session.ID,
		NextRequest: l.Session.NextRequest})}
	for _, a := range append([]netip.Addr{l.Service}, l.Others...) {
		cfg.Addresses = append(cfg.Addresses, netip.AddrPortFrom(a, wire.Port))
	}
	ctx := context.Background()
	c, err := client.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r := rand.New(rand.NewPCG(1, uint64(l.Client)))
	seen := map[uint32]wire.Version{}
	var history []linearizable.Call
	for n, end := 0, time.Now().Add(l.Duration); !over(end, l.Until) && (l.Swaps == 0 || n < l.Swaps); n++ {
		k := l.Keys[r.IntN(len(l.Keys))]
		x := linearizable.Call{Client: l.Client, Key: k, Op: wire.Read, Value: fmt.Sprintf("%d.%d", l.Client, n)}
		switch i := r.IntN(10); {
		case l.Swaps > 0:
			x.Op, x.Expected = wire.CAS, seen[k]
		case l.Reads:
		case l.Writes:
			x.Op = wire.Write
		case i < 4:
			x.Op = wire.Write
		case i < 6:
			x.Op, x.Expected = wire.CAS, seen[k]
		}
		limit, cancel := context.WithTimeout(ctx, 3*time.Second)
		x.Begin = time.Now().UnixNano()
		req := client.Request{Op: x.Op, Key: wire.Key(k), Expected: x.Expected}
		if x.Op != wire.Read {
			req.Value = []byte(x.Value)
		}
		res := c.Batch(limit, []client.Request{req})[0]
		x.End = time.Now().UnixNano()
		cancel()
		x.Version, x.Got, x.Found = res.Version, string(res.Value), res.Err == nil
		var e *client.OpError
		if errors.As(res.Err, &e) {
			switch {
			case e.OutcomeUnknown:
				x.Unknown = true
			case errors.Is(e, client.ErrNotFound):
				x.Version = e.Version
			case errors.Is(e, client.ErrCASFailed):
				x.Failed, x.Version, x.Got, x.Found = true, e.Version, string(e.Value), e.Found
			case errors.Is(e, client.ErrTimeout):
				x.Nothing = true
			default:
				return history, e
			}
		}
		if x.Version != 0 {
			seen[k] = x.Version
		}
		history = append(history, x)
		if l.Swaps == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(4 * time.Millisecond))))
		}
	}
	return history, nil
}

// Watch reads a key at one switch continuously, to find times without answers. No client writes the
// key.
type Watch struct {
	Switch   netip.Addr
	Key      uint32
	Value    string
	Duration time.Duration
	Until    string // has the same meaning as in Workload
}

// readers is the number of concurrent readers, so that a single lost frame causes no gap.
const readers = 4

// run returns the times of the answers, in Unix nanoseconds, sorted.
func (w Watch) run() ([]int64, error) {
	var mu sync.Mutex
	var answers []int64
	var wrong error
	end := time.Now().Add(w.Duration)
	var wg sync.WaitGroup
	for n := range readers {
		wg.Go(func() {
			for i := uint32(1); !over(end, w.Until); i++ {
				p := &wire.Packet{Op: wire.Read, Key: wire.Key(w.Key), Request: i<<4 | uint32(n)}
				payload, err := p.Marshal(wire.Profile128)
				if err != nil {
					panic(err)
				}
				r := exchangeUDP(HostRequest{To: netip.AddrPortFrom(w.Switch, wire.Port), Payload: payload,
					Timeout: 20 * time.Millisecond})
				var q wire.Packet
				if r.Err != "" || q.Unmarshal(r.Payload, wire.Profile128) != nil || q.Request != p.Request ||
					q.Status != wire.OK {
					continue
				}
				mu.Lock()
				if string(q.Value) != w.Value {
					wrong = fmt.Errorf("%v answered %q for a key that is %q", w.Switch, q.Value, w.Value)
				}
				answers = append(answers, time.Now().UnixNano())
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	slices.Sort(answers)
	return answers, wrong
}
