package controller

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	api "github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Writer sessions (docs/protocol.md, "Sessions"). A session is leased to a host, and the switch at
// that host's port takes it from nobody else. Before its holder hears of it, its record begins anew
// at every switch that a chain has, at a number that nobody can foretell and that is far from
// whatever the record said before, so that nothing of an earlier lease, late or forged, is taken
// for the holder's.

// maxSessions is how many sessions one request can ask for.
const maxSessions = 1024

// How long it may take to open sessions: less than clients wait for them (netcraqctl and the Python
// library 2 s, gateways 3 s), so that they hear of a failure, and why. For each session beyond
// those that clients ask for, openMore is added.
const (
	openTimeout = 1800 * time.Millisecond
	openMore    = 20 * time.Millisecond
	openUsual   = 64
	// otherTimeout is how long switches that are in no chain have, and a millisecond for each
	// session more, up to twice that. Nobody waits for what they hold.
	otherTimeout = 200 * time.Millisecond
)

// OpenSessions leases writer sessions to the host that the request names by its address.
func (c *Controller) OpenSessions(ctx context.Context, r api.SessionsRequest) (*api.Sessions, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout+openMore*time.Duration(min(max(0, r.Count-openUsual),
		maxSessions)))
	defer cancel()
	if r.Count < 1 || r.Count > maxSessions {
		return nil, api.Errorf(api.CodeInvalidArgument, "%d sessions: ask for 1 to %d", r.Count, maxSessions)
	}
	name := rand.Text()
	var lease *sessions.Lease
	var host *topology.Host
	var failed error
	saved := make(chan error, 1)
	err := c.call(ctx, func() {
		if failed = c.inCharge(); failed != nil {
			return
		}
		for _, ch := range c.net().chains {
			if s := ch.m.Status(c.now()); !s.Decided {
				failed = fmt.Errorf("%w: the chain %s is not set up yet (%s)", chain.ErrUnavailable, ch.topo.Name, s.Reason)
				return
			}
		}
		if host, failed = c.holder(r.Address); failed != nil {
			return
		}
		holder := ""
		if host != nil {
			holder = host.Name
		}
		if lease, failed = c.sess.Open(c.now(), name, r.Owner, holder, r.Count); failed == nil {
			c.save(func(err error) { saved <- err })
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, apiError(err)
	}
	select {
	case err = <-saved: // before anybody uses the sessions
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.stopped:
		err = errStopped
	}
	if err != nil {
		return nil, apiError(err) // the lease runs out by itself
	}
	out := &api.Sessions{Lease: name, TTLSeconds: int(c.sess.TTL() / time.Second)}
	if out.Sessions, err = c.beginAnew(ctx, lease.IDs); err == nil {
		err = c.letIn(ctx, host)
	}
	if err != nil {
		c.post(func() {
			if c.sess.Close(c.now(), name) == nil {
				c.save(nil)
				c.publishLeases()
			}
		})
		return nil, api.Errorf(api.CodeUnavailable, "the switches could not be told of the sessions: %v", err)
	}
	return out, nil
}

// holder is the host that a client's address is of; nil where it does not matter, because hosts may
// use sessions that they have not leased.
func (c *Controller) holder(address string) (*topology.Host, error) {
	t := c.net().topo
	if address == "" {
		if t.Host(func(h *topology.Host) bool { return !h.Open && h.Principal != "" }) != nil {
			return nil, fmt.Errorf("%w: say which host's the sessions are (address): a session is used by the host that it was leased to alone", chain.ErrInvalid)
		}
		return nil, nil
	}
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("%w: the address %q is not an IPv4 address", chain.ErrInvalid, address)
	}
	h := t.HostByAddress(ip)
	switch {
	case h == nil && t.Open():
		return nil, nil // as good as an open host's
	case h == nil:
		return nil, fmt.Errorf("%w: no host of this network has the address %v", chain.ErrInvalid, ip)
	case h.Principal == "":
		return nil, fmt.Errorf("%w: the port of %s is closed: it may not use the network's keys, and needs no sessions", chain.ErrRefused, h.Name)
	}
	return h, nil
}

// beginAnew makes the records of sessions begin anew at every switch that is of a chain, and at
// others as far as they are there: a chain that comes later may be made of those.
func (c *Controller) beginAnew(ctx context.Context, ids []uint16) ([]api.Session, error) {
	for {
		at, others, err := c.keepRecords(ctx)
		if err != nil {
			return nil, err
		}
		// One of them may have failed without anybody knowing it yet. When the chain goes on
		// without it, it need not be asked.
		try, cancel := context.WithCancelCause(ctx)
		go c.watchRecords(try, at, cancel)
		out, err := c.beginAt(try, ids, at, others)
		again := errors.Is(context.Cause(try), errOthersNow)
		cancel(nil)
		if !again {
			return out, err
		}
	}
}

// errOthersNow: other switches than those that were asked keep records.
var errOthersNow = errors.New("the chains have changed")

// watchRecords cancels what is being done at some switches when it is not done at all of them any
// more.
func (c *Controller) watchRecords(ctx context.Context, at []*device, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(installLook):
		}
		now, _, installing, err := c.recordsNow(ctx)
		if err == nil && installing == "" && slices.ContainsFunc(at, func(d *device) bool {
			return !slices.Contains(now, d)
		}) {
			cancel(errOthersNow)
			return
		}
	}
}

// beginAt is beginAnew at certain switches, and at those that have come to the chains when it is
// done.
func (c *Controller) beginAt(ctx context.Context, ids []uint16, at, others []*device) ([]api.Session, error) {
	out := make([]api.Session, len(ids))
	places := make([]int, len(ids))
	for i := range places {
		places[i] = i
	}
	// What the others have recorded, as far as they answer in their time.
	recorded := make([][]uint32, len(ids))
	patience := min(otherTimeout+time.Duration(len(ids))*time.Millisecond, 2*otherTimeout)
	quick, stop := context.WithTimeout(ctx, patience)
	var mu sync.Mutex
	others = c.answering(others, func(d *device) error {
		return ops.Each(quick, goroutines{}, places, func(ctx context.Context, i int) error {
			records, err := lastOf(ctx, ids[i], []*device{d})
			mu.Lock()
			defer mu.Unlock()
			recorded[i] = append(recorded[i], records...)
			return err
		})
	})
	stop()
	err := ops.Each(ctx, goroutines{}, places, func(ctx context.Context, i int) error {
		records, err := lastOf(ctx, ids[i], at)
		if err != nil {
			return err
		}
		last, err := c.begin(append(records, recorded[i]...))
		if err != nil {
			return fmt.Errorf("session %d: %w", ids[i], err)
		}
		out[i] = api.Session{ID: ids[i], NextRequest: last + 1}
		return ops.Each(ctx, goroutines{}, at, func(ctx context.Context, d *device) error {
			return d.ResetRecord(ctx, ids[i], last)
		})
	})
	if err == nil {
		quick, stop := context.WithTimeout(ctx, patience)
		c.answering(others, func(d *device) error {
			return ops.Each(quick, goroutines{}, out, func(ctx context.Context, s api.Session) error {
				return d.ResetRecord(ctx, s.ID, s.NextRequest-1)
			})
		})
		stop()
	}
	// A switch that has begun to fill up meanwhile may have been told of the records as they were.
	for err == nil {
		var now []*device
		if now, _, err = c.keepRecords(ctx); err != nil {
			break
		}
		late := slices.DeleteFunc(now, func(d *device) bool { return slices.Contains(at, d) })
		if len(late) == 0 {
			break
		}
		at = append(at, late...)
		err = ops.Each(ctx, goroutines{}, out, func(ctx context.Context, s api.Session) error {
			for _, d := range late {
				if err := d.ResetRecord(ctx, s.ID, s.NextRequest-1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return out, err
}

// answering is those of some switches for which ask, which is called for all at once, gives no
// error.
func (c *Controller) answering(devices []*device, ask func(*device) error) (out []*device) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, d := range devices {
		wg.Go(func() {
			if ask(d) == nil {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, d)
			}
		})
	}
	wg.Wait()
	return out
}

// installWait is how long is waited for chains whose configuration is being changed, and
// installLook how often it is looked at.
const (
	installWait = 3 * time.Second
	installLook = 10 * time.Millisecond
)

// waitWhile looks again and again while there is a reason to wait, for a bounded time.
func (c *Controller) waitWhile(ctx context.Context, look func() (reason string, err error)) error {
	for end := c.now() + installWait; ; {
		reason, err := look()
		if err != nil || reason == "" {
			return err
		}
		if c.now() > end {
			return fmt.Errorf("%w: %s", chain.ErrUnavailable, reason)
		}
		select {
		case <-time.After(installLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// keepRecords is the switches that some chain's writes come to, and all others that are there. It
// waits while a configuration is on its way: a switch that it leaves out may still think that it is
// the head, with a live lease and the records of before, and cannot be told of new ones.
func (c *Controller) keepRecords(ctx context.Context) (at, others []*device, err error) {
	err = c.waitWhile(ctx, func() (reason string, err error) {
		installing := ""
		if at, others, installing, err = c.recordsNow(ctx); err == nil && installing != "" {
			reason = fmt.Sprintf("the chain %s is being changed", installing)
		}
		return reason, err
	})
	return at, others, err
}

// recordsNow is keepRecords without waiting: installing is a chain whose configuration is on its
// way.
func (c *Controller) recordsNow(ctx context.Context) (at, others []*device, installing string, err error) {
	err = c.call(ctx, func() {
		for _, ch := range c.net().chains {
			st := ch.m.Status(c.now())
			if !st.Installed {
				installing = ch.topo.Name
			}
			for _, name := range st.Config.Learners() {
				if d := c.net().byName[name]; d != nil && !slices.Contains(at, d) {
					at = append(at, d)
				}
			}
		}
		for _, d := range c.net().devices {
			if d.ready && !slices.Contains(at, d) {
				others = append(others, d)
			}
		}
	})
	return at, others, installing, err
}

// begin is what the record of a session is set to. A switch that runs the program of before does
// not set it back, and takes whatever is above it.
func (c *Controller) begin(records []uint32) (uint32, error) {
	if !c.openness() {
		return sessions.Begin(records, random32), nil
	}
	highest := slices.Max(append(records, 0))
	if highest > 1<<32-1-2*sessions.Gap {
		return 0, errors.New("its request numbers are used up until all switches run this version's program")
	}
	return highest + sessions.Gap, nil
}

// random32 is 32 bits that nobody can foretell.
func random32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint32(b[:])
}

// lastOf is the last requests that switches have recorded for a session.
func lastOf(ctx context.Context, session uint16, at []*device) (out []uint32, err error) {
	for _, d := range at {
		r, err := d.Recorded(ctx, session)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// letIn has a host's switch take the sessions that are leased to the host.
func (c *Controller) letIn(ctx context.Context, h *topology.Host) error {
	var d *device
	if err := c.call(ctx, func() {
		c.publishLeases()
		if h != nil {
			d = c.net().byName[h.Switch.Name]
		}
	}); err != nil || h == nil || h.Open {
		return err
	}
	if d == nil {
		return errGone
	}
	done := make(chan error, 1)
	d.submit(func(ctx context.Context) {
		err := d.read(ctx)
		if err == nil {
			err = d.writeBase(ctx)
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return errStopped
	}
}

// publishLeases tells the switches' workers which sessions are leased to their hosts.
func (c *Controller) publishLeases() {
	t := c.net().topo
	leased := map[string][]p4rt.Entry{}
	for _, l := range c.sess.Held(c.now()) {
		h := t.Host(func(h *topology.Host) bool { return h.Name == l.Host })
		if h == nil || h.Open || h.Principal == "" {
			continue
		}
		for _, id := range l.IDs {
			leased[h.Switch.Name] = append(leased[h.Switch.Name], leaseEntry(id, h.Port))
		}
	}
	was := c.leased.Swap(&leased)
	for _, d := range c.net().devices {
		if !reflect.DeepEqual((*was)[d.sw.Name], leased[d.sw.Name]) {
			d.refreshSoon()
		}
	}
}

// leasedTo is the entries of the sessions that are leased to a switch's hosts.
func (c *Controller) leasedTo(sw *topology.Switch) []p4rt.Entry {
	return slices.Clone((*c.leased.Load())[sw.Name])
}

// watchLeases takes sessions back whose leases have run out.
func (c *Controller) watchLeases(ctx context.Context) {
	every := time.NewTicker(c.sess.TTL() / 8)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			c.post(c.publishLeases)
		}
	}
}

// recordsToCopy is the sessions whose records a switch that is filled must have: those that
// somebody may use.
func (c *Controller) recordsToCopy() []uint16 {
	var out []uint16
	if c.net().topo.Open() {
		for i := 1; i < c.prog.sessions; i++ {
			out = append(out, uint16(i))
		}
		return out
	}
	for i := 1; i <= c.pool.Size; i++ {
		out = append(out, uint16(i))
	}
	for _, l := range c.sess.Leases() {
		out = append(out, l.IDs...)
	}
	slices.Sort(out)
	return out
}

// KeepSessions keeps a lease alive.
func (c *Controller) KeepSessions(ctx context.Context, lease string) (*api.Sessions, error) {
	var out *api.Sessions
	var failed error
	err := c.call(ctx, func() {
		if failed = c.inCharge(); failed != nil {
			return // the controller that is knows of this lease, or lets the ids rest
		}
		l, err := c.sess.Keep(c.now(), lease)
		if failed = err; err == nil {
			out = &api.Sessions{Lease: lease, TTLSeconds: int(c.sess.TTL() / time.Second), Sessions: []api.Session{}}
			for _, id := range l.IDs {
				out.Sessions = append(out.Sessions, api.Session{ID: id})
			}
		}
	})
	return out, apiError(errors.Join(err, failed))
}

// CloseSessions gives a lease back.
func (c *Controller) CloseSessions(ctx context.Context, lease string) error {
	var failed error
	err := c.call(ctx, func() {
		if failed = c.sess.Close(c.now(), lease); failed == nil {
			c.save(nil)
			c.publishLeases()
		}
	})
	return apiError(errors.Join(err, failed))
}
