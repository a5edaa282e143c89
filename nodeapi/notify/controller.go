package notify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// asker tells the controller which keys the node follows. It sends the complete set of keys
// whenever the set has changed, and again before the controller forgets it. Only one goroutine uses
// it.
type asker struct {
	r        *Receiver
	socket   *socket   // the socket for notifications; nil if none is open
	said     bool      // whether the controller may have keys for the socket
	last     time.Time // time of the last request to the controller
	again    time.Time // latest time of the next request, if there are keys to send
	failures int       // number of consecutive failures
	until    time.Time // time until which the controller has the keys of the last request; zero if it has none
	settle   time.Time // time when review must next check accepted keys; zero means never
	state    string    // the state that was logged last
	looked   time.Time // time of the last request for the chains
}

// run sends requests to the controller until the receiver is closed.
func (r *Receiver) run() {
	a := &asker{r: r}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-r.ctx.Done():
			a.end()
			return
		case <-r.changed:
		case <-timer.C:
		}
		a.review(time.Now())
		if at, any := a.next(); any && !time.Now().Before(at) {
			a.attempt()
		}
		wait := time.Hour
		if at, any := a.next(); any {
			wait = time.Until(at)
		}
		for _, t := range []time.Time{a.until, a.settle} {
			if !t.IsZero() {
				wait = min(wait, time.Until(t))
			}
		}
		timer.Reset(max(wait, 0))
	}
}

// next returns the time of the next request to the controller. It returns false if no request is
// needed. While the controller answers, a change of the followed keys makes the next request
// earlier.
func (a *asker) next() (at time.Time, any bool) {
	a.r.mu.RLock()
	defer a.r.mu.RUnlock()
	at = a.again
	if soon := a.last.Add(a.r.pace.gather); a.failures == 0 && a.r.dirty && soon.Before(at) {
		at = soon
	}
	return at, a.said || len(a.r.keys) > 0
}

// chosen returns the keys for which to request notifications from the controller.
func (a *asker) chosen() []uint32 {
	r := a.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = false
	all := make([]*followed, 0, len(r.keys))
	for _, e := range r.keys {
		all = append(all, e)
	}
	if len(all) > r.o.Keys {
		slices.SortFunc(all, func(a, b *followed) int { return int(int64(a.number) - int64(b.number)) })
		all = all[:r.o.Keys]
	}
	ids := make([]uint32, 0, len(all))
	for _, e := range all {
		ids = append(ids, uint32(e.key))
	}
	slices.Sort(ids)
	return ids
}

// attempt sends one request to the controller.
func (a *asker) attempt() {
	a.last = time.Now()
	ids := a.chosen()
	if len(ids) == 0 && !a.said {
		a.again, a.failures = a.last.Add(time.Hour), 0 // a change of the followed keys triggers an earlier request
		return
	}
	ctx, cancel := context.WithTimeout(a.r.ctx, a.r.pace.request)
	defer cancel()
	err := a.prepare(ctx, ids)
	var got *admin.Watch
	if err == nil {
		if got, err = a.tell(ctx, ids); err != nil && a.succeeds(err) {
			got, err = a.tell(ctx, ids)
		}
	}
	if a.r.ctx.Err() != nil {
		return
	}
	if err != nil {
		a.failed(err)
		return
	}
	a.accepted(ids, got)
}

// prepare gets the data that are needed for a request. It gets the addresses of the chains, and
// from them the address of this host.
func (a *asker) prepare(ctx context.Context, ids []uint32) error {
	known := a.r.chains.Load()
	unknown := func(id uint32) bool { return !known.has(wire.Key(id).Chain()) }
	rested := time.Since(a.looked) >= a.r.pace.chains
	if len(known.all) == 0 || a.failures > 0 || rested && (a.r.doubted.Load() || slices.ContainsFunc(ids, unknown)) {
		a.looked = time.Now()
		a.r.doubted.Store(false)
		chains, err := a.r.o.Admin.Chains(ctx)
		if err != nil {
			return err
		}
		if known, err = sourcesOf(chains); err != nil {
			return err
		}
		a.r.chains.Store(known)
	}
	if a.socket != nil && a.failures == 0 {
		return nil
	}
	if len(known.all) == 0 {
		return errors.New("there are no chains")
	}
	local := client.HostAddress(known.all[0].service)
	if !local.IsValid() {
		return fmt.Errorf("there is no way to the chains, at %v", known.all[0].service)
	}
	if a.socket != nil && a.socket.local().Addr() == local {
		return nil
	}
	a.drop() // close the socket, because it belongs to an earlier address of the host
	return a.open(local, 0)
}

func (a *asker) open(local netip.Addr, port uint16) error {
	s, err := openSocket(local, port)
	if err != nil {
		return err
	}
	a.drop()
	a.socket = s
	a.r.work.Go(func() { a.r.receive(s) })
	return nil
}

// succeeds replaces a server on this host that has died without ending its watch. If the server has
// died, its port is free, and succeeds opens that port. It ignores ports that programs cannot open.
func (a *asker) succeeds(err error) bool {
	var said *admin.Error
	if !errors.As(err, &said) || said.WatchedAt < 1024 || said.WatchedAt == wire.Port || a.socket == nil {
		return false
	}
	local := a.socket.local()
	return said.WatchedAt != local.Port() && a.open(local.Addr(), said.WatchedAt) == nil
}

func (a *asker) tell(ctx context.Context, ids []uint32) (*admin.Watch, error) {
	if len(ids) > 0 {
		// set before the request, because the controller may accept the keys although its answer is
		// lost
		a.said = true
	}
	local := a.socket.local()
	return a.r.o.Admin.Watch(ctx, admin.WatchRequest{Address: local.Addr().String(), Port: local.Port(), KeyIDs: ids})
}

// These are limits for the TTL in a controller's answers.
const (
	leastTTL = time.Second
	mostTTL  = 5 * time.Minute
)

// accepted processes the answer of a controller that has accepted a request.
func (a *asker) accepted(ids []uint32, got *admin.Watch) {
	r, now := a.r, time.Now()
	resumed := a.failures > 0 || a.until.IsZero()
	ttl := min(max(time.Duration(got.TTLSeconds)*time.Second, leastTTL), mostTTL)
	a.failures = 0
	a.again = a.last.Add(ttl/4 + rand.N(ttl/8))
	a.said = len(ids) > 0
	a.until = a.last.Add(ttl) // this is early enough, because the controller begins to count later
	if !a.said {
		a.until = time.Time{}
	}
	refused := make(map[wire.Key]bool, len(got.Refused))
	for _, id := range got.Refused {
		refused[wire.Key(id)] = true
	}
	var lost []wire.Key
	r.mu.Lock()
	for _, n := range ids {
		e := r.keys[wire.Key(n)]
		switch {
		case e == nil: // the key no longer has followers
		case refused[e.key]:
			if r.withdraw(e) {
				lost = append(lost, e.key)
			}
		// resumed means that the controller may be a new one, which must first write its table
		// entries
		case e.accepted.IsZero() || resumed:
			e.accepted, e.settled = now, false
			a.settle = earlier(a.settle, now.Add(r.pace.settle))
		}
	}
	r.mu.Unlock()
	r.hint(lost)
	switch {
	case len(ids) == 0:
	case len(refused) == len(ids):
		a.say("refused all", "the controller does not allow this host any notifications: the server polls watched keys instead",
			"keys", len(ids))
	default:
		a.say("told", "the switch tells of keys that are watched", "at", a.socket.local(), "keys", len(ids),
			"refused", len(refused))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// withdraw records that the switch no longer reports a key. It returns whether the switch reported
// the key before. The caller holds r.mu.
func (r *Receiver) withdraw(e *followed) bool {
	was := e.helped
	if was {
		r.count.keys.Dec()
	}
	e.accepted, e.settled, e.helped = time.Time{}, false, false
	return was
}

// review triggers reads of two kinds of keys: keys whose table entries should be installed by now,
// and keys that the controller has forgotten.
func (a *asker) review(now time.Time) {
	r := a.r
	over := !a.until.IsZero() && !now.Before(a.until)
	if !over && (a.settle.IsZero() || now.Before(a.settle)) {
		return
	}
	var read []wire.Key
	a.settle = time.Time{}
	r.mu.Lock()
	for _, e := range r.keys {
		at := e.accepted.Add(r.pace.settle)
		switch {
		case e.accepted.IsZero() || e.settled && !over:
		case over:
			if r.withdraw(e) {
				read = append(read, e.key)
			}
		case now.Before(at):
			a.settle = earlier(a.settle, at)
		default:
			if !e.helped {
				r.count.keys.Inc()
			}
			e.settled, e.helped = true, true
			read = append(read, e.key)
		}
	}
	r.mu.Unlock()
	if over {
		a.until = time.Time{}
	}
	r.hint(read)
}

// failed schedules the next attempt after a failure. The pauses grow with each failure.
func (a *asker) failed(err error) {
	p := a.r.pace
	wait := min(p.failed<<min(a.failures, 16), p.failures)
	state, until := "no answer", "answers"
	var said *admin.Error
	if errors.As(err, &said) {
		state = said.Code
		switch said.Code {
		case admin.CodeNotFound, admin.CodePermissionDenied, admin.CodeUnauthenticated:
			wait, until = p.absent, "does"
		case admin.CodeFailedPrecondition, admin.CodeInvalidArgument, admin.CodeResourceExhausted:
			wait, until = p.refused, "takes that"
		}
	}
	a.failures++
	wait = wait/2 + rand.N(wait)
	a.again = time.Now().Add(wait)
	if a.until.IsZero() { // if until is set, the keys that were accepted earlier are still valid
		a.say(state, "the server polls watched keys, because no controller lets the switch report their commits. "+
			"This goes on until one "+until, "error", err)
	}
}

// drop closes the socket. The controller's entries for the socket expire later.
func (a *asker) drop() {
	if a.socket != nil {
		a.socket.close()
		a.socket, a.said = nil, false
	}
}

// say logs a state, unless it is the state that was logged last.
func (a *asker) say(state, text string, args ...any) {
	if a.state != state {
		a.state = state
		a.r.log.Info(text, args...)
	}
}

// end withdraws all keys from the controller.
func (a *asker) end() {
	if a.said && a.socket != nil {
		ctx, cancel := context.WithTimeout(context.Background(), a.r.pace.end)
		defer cancel()
		_, _ = a.tell(ctx, []uint32{}) // if this fails, the controller's entries expire
	}
	a.drop()
}
