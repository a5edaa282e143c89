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

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
	"github.com/netcraq/netcraq/controlplane/controller/switches"
	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/sessions"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// This file leases writer sessions (docs/protocol.md, "Sessions"). A session is leased to a host,
// and the switch at that host's port accepts it from no other host. Before the holder learns about
// its session, the session's record restarts at every switch of every chain. The new number is
// unpredictable and far from whatever the record said before, so that no packet of an earlier
// lease, late or forged, is mistaken for the holder's.

// maxSessions is the maximum number of sessions that one request can lease.
const maxSessions = 1024

// These limits bound how long opening sessions may take. They are shorter than clients wait
// (netcraqctl and the Python library 2 s, gateways 3 s), so that clients hear of a failure and its
// reason. openMore is added for each session beyond the number that clients normally request.
const (
	openTimeout = 1800 * time.Millisecond
	openMore    = 20 * time.Millisecond
	openUsual   = 64
	// otherTimeout is the limit for switches that are in no chain, plus a millisecond for each
	// session, up to twice otherTimeout. No client waits for their records.
	otherTimeout = 200 * time.Millisecond
	// joinerTimeout is the limit for a switch that is being brought in.
	joinerTimeout = 400 * time.Millisecond
)

// OpenSessions leases writer sessions to the host with the request's address.
func (c *Controller) OpenSessions(ctx context.Context, r admin.SessionsRequest) (*admin.Sessions, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout+openMore*time.Duration(min(max(0, r.Count-openUsual),
		maxSessions)))
	defer cancel()
	if r.Count < 1 || r.Count > maxSessions {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "%d sessions: ask for 1 to %d", r.Count, maxSessions)
	}
	name := rand.Text()
	var lease *sessions.Lease
	var host *topology.Host
	var failed error
	err := c.call(ctx, func() {
		if failed = c.inCharge(); failed != nil {
			return
		}
		for _, ch := range c.net().chains {
			if s := ch.m.Status(c.now()); !s.Decided && c.mayHoldKeys(ch, s) {
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
		lease, failed = c.sess.Open(c.now(), name, r.Owner, holder, r.Count)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, apiError(err)
	}
	out := &admin.Sessions{Lease: name, TTLSeconds: int(c.sess.TTL() / time.Second)}
	if out.Sessions, err = c.beginAnew(ctx, lease); err == nil {
		if err := c.saveNow(ctx); err != nil { // the lease must be durable before any client uses the sessions
			return nil, apiError(err) // nobody ends the new lease, so it expires
		}
		err = c.letIn(ctx, host)
	}
	if err != nil {
		c.post(func() {
			if c.sess.Close(c.now(), name) == nil {
				c.save(nil)
				c.publishLeases()
			}
		})
		return nil, admin.Errorf(admin.CodeUnavailable, "the controller could not write the sessions to the switches: %v", err)
	}
	return out, nil
}

// saveNow makes the state durable before it returns.
func (c *Controller) saveNow(ctx context.Context) error {
	saved := make(chan error, 1)
	if err := c.call(ctx, func() { c.save(func(err error) { saved <- err }) }); err != nil {
		return err
	}
	select {
	case err := <-saved:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return errStopped
	}
}

// holder returns the host with a client's address. It returns nil if the host does not matter,
// because hosts may use sessions that they have not leased.
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
		return nil, nil // the client is treated like an open host
	case h == nil:
		return nil, fmt.Errorf("%w: no host of this network has the address %v", chain.ErrInvalid, ip)
	case h.Principal == "":
		return nil, fmt.Errorf("%w: the port of %s is closed: it may not use the network's keys, and needs no sessions", chain.ErrRefused, h.Name)
	}
	return h, nil
}

// beginAnew restarts the records of a lease's sessions. It does so at every switch that the writes
// of some chain reach, and at switches that are being brought into a chain. It also does so at
// other switches, if these are reachable and answer soon. A chain without keys has no writes, so
// nothing waits for its switches. They get the records when the chain has its first key
// (ops.Chain.Equalise).
func (c *Controller) beginAnew(ctx context.Context, lease *sessions.Lease) ([]admin.Session, error) {
	b := &beginning{c: c, ids: lease.IDs, lease: lease.ID}
	for {
		keep, err := c.keepRecords(ctx)
		if err != nil {
			return nil, err
		}
		// A switch that keeps records may have failed without being noticed yet. Once the chain
		// continues without it, its answer is not needed.
		try, cancel := context.WithCancelCause(ctx)
		go c.watchRecords(try, keep.at, cancel)
		err = b.at(try, keep)
		again := errors.Is(context.Cause(try), errOthersNow)
		cancel(nil)
		if err == nil {
			return b.sessions(), nil
		}
		if !again {
			return nil, err
		}
	}
}

// errOthersNow says that the set of switches that keep records has changed meanwhile.
var errOthersNow = errors.New("the chains have changed")

// watchRecords cancels the work at the given switches when the set of switches that keep records
// has changed.
func (c *Controller) watchRecords(ctx context.Context, at []*device, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(installLook):
		}
		now, err := c.recordsNow(ctx)
		if err == nil && now.fencing == "" && slices.ContainsFunc(at, func(d *device) bool {
			return !slices.Contains(now.at, d)
		}) {
			cancel(errOthersNow)
			return
		}
	}
}

// beginning is a set of sessions whose records are being restarted.
type beginning struct {
	c     *Controller
	lease string
	ids   []uint16
	begin []uint32 // the records' new values; nil if they are not chosen yet
}

func (b *beginning) sessions() []admin.Session {
	out := make([]admin.Session, len(b.ids))
	for i, id := range b.ids {
		out[i] = admin.Session{ID: id, NextRequest: b.begin[i] + 1}
	}
	return out
}

// at restarts the records at certain switches, and at switches that joined chains meanwhile.
func (b *beginning) at(ctx context.Context, keep *records) error {
	c := b.c
	places := make([]int, len(b.ids))
	for i := range places {
		places[i] = i
	}
	tell := func(ctx context.Context, d *device, set func(*ops.Switch, context.Context, uint16, uint32) error) error {
		return ops.Each(ctx, switches.Goroutines{}, places, func(ctx context.Context, i int) error {
			return set(d.Switch, ctx, b.ids[i], b.begin[i])
		})
	}
	// The chosen number's window contains no request that any of these switches has recorded.
	set := (*ops.Switch).BeginRecord
	patience := min(otherTimeout+time.Duration(len(b.ids))*time.Millisecond, 2*otherTimeout)
	var others []*device // switches that no chain's writes reach, and that answer in time
	if b.begin == nil {
		recorded := make([][]uint32, len(b.ids))
		var mu sync.Mutex
		quick, stop := context.WithTimeout(ctx, patience)
		others = c.answering(keep.others, func(d *device) error {
			return ops.Each(quick, switches.Goroutines{}, places, func(ctx context.Context, i int) error {
				records, err := lastOf(ctx, b.ids[i], []*device{d})
				mu.Lock()
				defer mu.Unlock()
				recorded[i] = append(recorded[i], records...)
				return err
			})
		})
		stop()
		if err := b.choose(ctx, places, keep.at, recorded); err != nil {
			return err
		}
		set = (*ops.Switch).ResetRecord
	}
	if err := ops.Each(ctx, switches.Goroutines{}, keep.at, func(ctx context.Context, d *device) error {
		return tell(ctx, d, set)
	}); err != nil {
		return err
	}
	quick, stop := context.WithTimeout(ctx, patience)
	c.answering(others, func(d *device) error { return tell(quick, d, set) })
	stop()
	// A switch whose filling began meanwhile may have copied the records before they were
	// restarted.
	for at := slices.Clone(keep.at); ; {
		untold := func(devices []*device) []*device {
			return slices.DeleteFunc(slices.Clone(devices), func(d *device) bool { return slices.Contains(at, d) })
		}
		late, joining := untold(keep.at), untold(keep.joiners)
		if err := ops.Each(ctx, switches.Goroutines{}, late, func(ctx context.Context, d *device) error {
			return tell(ctx, d, (*ops.Switch).BeginRecord)
		}); err != nil {
			return err
		}
		b.tellJoiners(ctx, joining, func(ctx context.Context, d *device) error {
			return tell(ctx, d, (*ops.Switch).BeginRecord)
		})
		at = slices.Concat(at, late, joining)
		var err error
		if keep, err = c.keepRecords(ctx); err != nil {
			return err
		}
		if len(untold(keep.at))+len(untold(keep.joiners)) == 0 {
			return nil
		}
	}
}

// choose chooses the records' new values, above all recorded ones, and the switches that must get
// these values. From here on, a chain that gets its first key sets these values at its members.
func (b *beginning) choose(ctx context.Context, places []int, at []*device, recorded [][]uint32) error {
	begin := make([]uint32, len(b.ids))
	if err := ops.Each(ctx, switches.Goroutines{}, places, func(ctx context.Context, i int) error {
		records, err := lastOf(ctx, b.ids[i], at)
		if err == nil {
			begin[i], err = b.c.begin(append(records, recorded[i]...))
		}
		if err != nil {
			return fmt.Errorf("session %d: %w", b.ids[i], err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := b.c.call(ctx, func() { b.c.sess.Begin(b.lease, begin) }); err != nil {
		return err
	}
	b.begin = begin
	return nil
}

// tellJoiners sets the records at switches that are being brought in. A switch that does not answer
// in time is reported to its chain, which gives the switch up unless a later copy will bring the
// records.
func (b *beginning) tellJoiners(ctx context.Context, joiners []*device, tell func(context.Context, *device) error) {
	quick, stop := context.WithTimeout(ctx, joinerTimeout)
	defer stop()
	told := b.c.answering(joiners, func(d *device) error { return tell(quick, d) })
	for _, d := range joiners {
		if slices.Contains(told, d) || ctx.Err() != nil {
			continue
		}
		_ = b.c.call(ctx, func() {
			for _, ch := range b.c.net().chains {
				b.c.touch(ch).Untold(b.c.now(), d.Spec.Name, quick.Err())
			}
		})
	}
}

// answering calls ask for all devices at once, and returns the devices for which ask succeeds.
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

// installWait is how long to wait for chains whose configuration is being changed, and installLook
// is how often to check.
const (
	installWait = 3 * time.Second
	installLook = 10 * time.Millisecond
)

// waitWhile calls look repeatedly while it returns a reason to wait, for a bounded time.
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

// records says which switches keep records of sessions.
type records struct {
	at      []*device // switches that writes of some chain reach
	joiners []*device // switches that are being brought into a chain, unless `at` has them
	others  []*device // all other connected switches
	// fencing names a chain that has left out a switch that may still serve. That switch may still
	// consider itself the head, with a live lease and the former records, and cannot get new ones.
	// fencing is "" if there is no such chain.
	fencing string
}

// keepRecords returns the switches that keep records. It waits while a switch that was left out
// may still serve.
func (c *Controller) keepRecords(ctx context.Context) (keep *records, err error) {
	err = c.waitWhile(ctx, func() (reason string, err error) {
		if keep, err = c.recordsNow(ctx); err == nil && keep.fencing != "" {
			reason = fmt.Sprintf("the chain %s is being changed", keep.fencing)
		}
		return reason, err
	})
	return keep, err
}

// recordsNow is keepRecords without waiting.
func (c *Controller) recordsNow(ctx context.Context) (*records, error) {
	keep := &records{}
	add := func(list *[]*device, name string) {
		if d := c.net().byName[name]; d != nil && !slices.Contains(keep.at, d) && !slices.Contains(*list, d) {
			*list = append(*list, d)
		}
	}
	err := c.call(ctx, func() {
		var joining []string
		for _, ch := range c.net().chains {
			st := ch.m.Status(c.now())
			if !c.mayHoldKeys(ch, st) {
				continue
			}
			if !st.Fenced {
				keep.fencing = ch.topo.Name
			}
			for _, name := range st.Config.Members {
				add(&keep.at, name)
			}
			if st.Config.Shadow != "" {
				joining = append(joining, st.Config.Shadow)
			}
		}
		for _, name := range joining {
			add(&keep.joiners, name)
		}
		for _, d := range c.net().devices {
			if d.ready && !slices.Contains(keep.at, d) && !slices.Contains(keep.joiners, d) {
				keep.others = append(keep.others, d)
			}
		}
	})
	return keep, err
}

// mayHoldKeys reports whether a chain has keys, or may have some that this controller does not
// know yet.
func (c *Controller) mayHoldKeys(ch *chainState, st chain.Status) bool {
	return c.dir.Count(ch.topo.ID) > 0 || !ch.tidied && !(c.knows && !st.Doubt && !st.Stale)
}

// begin chooses the new value of a session's record. A switch that runs an earlier program does not
// reset records, and accepts any higher request number.
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

// random32 returns 32 unpredictable bits.
func random32() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // cannot fail
	return binary.NativeEndian.Uint32(b[:])
}

// lastOf returns the last requests that switches have recorded for a session.
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

// letIn makes a host's switch accept the sessions that are leased to the host.
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
		return switches.ErrGone
	}
	done := make(chan error, 1)
	d.Submit(func(ctx context.Context) {
		err := d.Read(ctx)
		if err == nil {
			err = d.WriteBase(ctx)
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

// publishLeases gives each switch's worker the sessions that are leased to the switch's hosts.
func (c *Controller) publishLeases() {
	t := c.net().topo
	leased := map[string][]p4rt.Entry{}
	for _, l := range c.sess.Held(c.now()) {
		h := t.Host(func(h *topology.Host) bool { return h.Name == l.Host })
		if h == nil || h.Open || h.Principal == "" {
			continue
		}
		for _, id := range l.IDs {
			leased[h.Switch.Name] = append(leased[h.Switch.Name], tableplan.LeaseEntry(id, h.Port))
		}
	}
	was := c.leased.Swap(&leased)
	for _, d := range c.net().devices {
		if !reflect.DeepEqual((*was)[d.Spec.Name], leased[d.Spec.Name]) {
			d.RefreshSoon()
		}
	}
}

// watchLeases takes back sessions whose leases have run out.
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

// recordsToCopy returns the sessions whose records a switch that is being filled must have. These
// are the sessions that some client may use.
func (c *Controller) recordsToCopy() []uint16 {
	var out []uint16
	if c.net().topo.Open() {
		for i := 1; i < c.prog.Sessions; i++ {
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
func (c *Controller) KeepSessions(ctx context.Context, lease string) (*admin.Sessions, error) {
	var out *admin.Sessions
	var failed error
	err := c.call(ctx, func() {
		if failed = c.inCharge(); failed != nil {
			// The leading controller knows this lease, or does not reuse its session ids yet.
			return
		}
		l, err := c.sess.Keep(c.now(), lease)
		if failed = err; err == nil {
			out = &admin.Sessions{Lease: lease, TTLSeconds: int(c.sess.TTL() / time.Second),
				Sessions: []admin.Session{}}
			for _, id := range l.IDs {
				out.Sessions = append(out.Sessions, admin.Session{ID: id})
			}
		}
	})
	return out, apiError(errors.Join(err, failed))
}

// CloseSessions ends a lease.
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
