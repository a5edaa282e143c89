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

// This file has the load of TestLateMessages. Its clients use the library for named keys, where
// versions belong to names.

// KeptWork is the work that such a client does for some time.
type KeptWork struct {
	Client   int
	Run      string   // part of all values; it follows the name in each value
	Admin    []string // addresses of the controllers
	Names    []string // keys to read, write, change by CAS and delete
	Locks    []string // locks to acquire and release
	Duration time.Duration
	Until    string // has the same meaning as in Workload
}

// Section is a period in which a client held a lock.
type Section struct {
	Lock  string
	Token wire.Version
	// Unix nanoseconds; From is when the client knew that it held the lock, and To is when it
	// released the lock
	From, To int64
}

// A host process keeps its cached names and its sessions from one KeptWork to the next.
var (
	ownNames     *fromadmin.Names
	makeOwnNames sync.Once
)

// keptTimeout is the time limit for a call.
const keptTimeout = 4 * time.Second

// callers is the number of concurrent calls of a client.
const callers = 3

// run makes calls for some time, and returns the history.
func (w KeptWork) run() (history []linearizable.Call, sections []Section) {
	makeOwnNames.Do(func() {
		ownNames = fromadmin.NewNames(fromadmin.NamesOptions{Admin: admin.NewClient(strings.Join(w.Admin, ",")),
			Sessions: 4, Owner: "kept"})
	})
	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(w.Duration)
	for i := range callers {
		all.Go(func() {
			c := &keptCaller{w: w, id: w.Client*callers + i, seen: map[string]wire.Version{}}
			c.random = rand.New(rand.NewPCG(35, uint64(c.id)))
			for !over(end, w.Until) {
				if len(w.Locks) > 0 && (len(w.Names) == 0 || c.random.IntN(4) == 0) {
					c.lock(w.Locks[c.random.IntN(len(w.Locks))])
				} else {
					c.call(w.Names[c.random.IntN(len(w.Names))])
				}
				time.Sleep(time.Duration(c.random.Int64N(int64(8 * time.Millisecond))))
			}
			mu.Lock()
			defer mu.Unlock()
			history, sections = append(history, c.history...), append(sections, c.sections...)
		})
	}
	all.Wait()
	return history, sections
}

// keptCaller makes one call after the other.
type keptCaller struct {
	w        KeptWork
	id, n    int
	random   *rand.Rand
	seen     map[string]wire.Version
	history  []linearizable.Call
	sections []Section
}

// value returns a value that no other call writes.
func (c *keptCaller) value(name string) string {
	c.n++
	return fmt.Sprintf("%s:%s%d.%d", name, c.w.Run, c.id, c.n)
}

// call makes a call of a random kind on a name.
func (c *keptCaller) call(name string) {
	switch i := c.random.IntN(20); {
	case i < 8:
		c.do(linearizable.Call{Name: name, Op: wire.Read})
	case i < 14:
		c.do(linearizable.Call{Name: name, Op: wire.Write, Value: c.value(name)})
	case i < 19:
		c.do(linearizable.Call{Name: name, Op: wire.CAS, Value: c.value(name), Expected: c.seen[name]})
	default:
		c.do(linearizable.Call{Name: name, Op: wire.Write, Delete: true})
	}
}

// do makes a call, and returns it with its result. It records the call, unless the call was
// certainly not executed.
func (c *keptCaller) do(x linearizable.Call) (linearizable.Call, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), keptTimeout)
	defer cancel()
	x.Client, x.Begin = c.id, time.Now().UnixNano()
	var got fromadmin.Named
	var err error
	switch {
	case x.Op == wire.Read:
		got, err = ownNames.Get(ctx, x.Name, false)
	case x.Op == wire.CAS && x.Delete:
		got, err = ownNames.CompareAndDelete(ctx, x.Name, x.Expected)
	case x.Op == wire.CAS:
		got, err = ownNames.CompareAndSwap(ctx, x.Name, x.Expected, []byte(x.Value))
	case x.Delete:
		got.Version, err = ownNames.Delete(ctx, x.Name)
	default:
		got.Version, err = ownNames.Put(ctx, x.Name, []byte(x.Value))
	}
	x.End, x.Version, x.Got, x.Found = time.Now().UnixNano(), got.Version, string(got.Value), got.Found
	var e *fromadmin.NameError
	switch {
	case err == nil:
	case !errors.As(err, &e) || x.Op == wire.Read:
		return x, false
	case e.OutcomeUnknown:
		x.Unknown, x.Version = true, 0
	case errors.Is(err, client.ErrCASFailed):
		x.Failed = true
	default: // The call was certainly not executed.
		return x, false
	}
	if !x.Unknown {
		c.seen[x.Name] = x.Version
	}
	c.history = append(c.history, x)
	return x, true
}

// lock acquires a lock if it is free, and releases it after a moment.
func (c *keptCaller) lock(name string) {
	free, ok := c.do(linearizable.Call{Name: name, Op: wire.Read})
	if !ok || free.Found {
		return
	}
	mine := c.value(name)
	x, ok := c.do(linearizable.Call{Name: name, Op: wire.CAS, Value: mine, Expected: free.Version})
	if !ok || x.Failed {
		return
	}
	// If it is unknown whether the write succeeded, reading the key shows that, because no other
	// client writes this value.
	for tries := 0; x.Unknown || x.Op == wire.Read && !ok; tries++ {
		if x, ok = c.do(linearizable.Call{Name: name, Op: wire.Read}); ok && x.Got != mine || tries == 20 {
			return
		}
	}
	s := Section{Lock: name, Token: x.Version, From: x.End}
	time.Sleep(time.Duration(c.random.Int64N(int64(10 * time.Millisecond))))
	s.To = time.Now().UnixNano()
	c.sections = append(c.sections, s)
	for tries := 0; tries < 20; tries++ {
		x, ok = c.do(linearizable.Call{Name: name, Op: wire.CAS, Delete: true, Expected: s.Token})
		if ok && !x.Unknown {
			return
		}
		if x, ok = c.do(linearizable.Call{Name: name, Op: wire.Read}); ok && x.Got != mine {
			return
		}
	}
}

// Spy reads KEY_IDs at one switch for some time, including KEY_IDs that no key has yet.
type Spy struct {
	Switch   netip.Addr
	Keys     []uint32
	Profile  wire.Profile
	Duration time.Duration
}

// Seen counts the values in the answers, by KEY_ID.
type Seen map[uint32]map[string]int

// run reads the KEY_IDs one after the other.
func (s Spy) run() (Seen, error) {
	out := Seen{}
	r := rand.New(rand.NewPCG(35, 1))
	for end := time.Now().Add(s.Duration); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		key := s.Keys[r.IntN(len(s.Keys))]
		payload, err := (&wire.Packet{Op: wire.Read, Key: wire.Key(key), Request: 7}).Marshal(s.Profile)
		if err != nil {
			return out, err
		}
		reply := exchangeUDP(HostRequest{To: netip.AddrPortFrom(s.Switch, wire.Port), Payload: payload,
			Timeout: 100 * time.Millisecond})
		var q wire.Packet
		if reply.Err == "" && q.Unmarshal(reply.Payload, s.Profile) == nil && q.Status == wire.OK {
			if out[key] == nil {
				out[key] = map[string]int{}
			}
			out[key][string(q.Value)]++
		}
	}
	return out, nil
}
