package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// record is the last request of a session, and the version that the request's write was given. The
// version is 0 if the request was not executed.
type record struct {
	request uint32
	version wire.Version
}

// after reports whether a record is newer than another record of the same life of their session. It
// is newer if it names a later request, or if it has the result of the same request and the other
// record does not.
func (r record) after(other record) bool {
	if r.request == other.request {
		return other.version == 0
	}
	return r.request > other.request && (other.request == 0 || r.request-other.request <= wire.RequestWindow)
}

// foreign reports whether two records belong to different lives of their session. If they do,
// neither switch considers the other switch's record newer.
func (r record) foreign(other record) bool {
	return r.request != 0 && other.request != 0 && r.request-other.request > wire.RequestWindow &&
		other.request-r.request > wire.RequestWindow
}

// records returns the records of sessions at a switch.
func (c *Chain) records(ctx context.Context, at *Switch, epoch uint16, sessions []uint16) ([]record, error) {
	cells := make([]int, len(sessions))
	for i, s := range sessions {
		cells[i] = int(s)
	}
	out := make([]record, len(sessions))
	var both [2][][]byte
	err := c.ForEach(ctx, 2, 2, func(ctx context.Context, i int) (err error) {
		both[i], err = at.cells(ctx, []string{"session_request", "session_version"}[i], cells)
		return err
	})
	if errors.Is(err, ErrUnsupported) {
		return out, c.ForEach(ctx, len(sessions), window, func(ctx context.Context, i int) error {
			r, err := at.fetchIn(ctx, epoch, wire.MakeKey(c.ID, 0), wire.Session, sessions[i])
			if err == nil {
				out[i] = record{r.Request, r.Version}
			}
			return err
		})
	}
	for i := range sessions {
		if err == nil {
			out[i] = record{uint32(number(both[0][i])), wire.Version(number(both[1][i]))}
		}
	}
	return out, err
}

// unite handles sessions whose records at two switches belong to different lives of the session. It
// makes both records belong to the same life. Leased sessions do not need unite, because every
// switch of a chain has the records of a lease before the lease's holder learns of it. But the
// controller's own sessions begin again at each switch when they are first used there. So the
// donor, or a joiner that is also in another chain, may have the record of an earlier controller.
// The record that this controller continues from is right, even if the joiner has none. Records of
// sessions that no client has leased are taken from the donor.
func (c *Chain) unite(ctx context.Context, donor, to *Switch, d *difference) error {
	return c.ForEach(ctx, len(d.sessions), window, func(ctx context.Context, i int) error {
		session, ours, theirs := d.sessions[i], d.records[i][0], d.records[i][1]
		// own is read after the records, so the records name no later request of this controller.
		if own := (record{request: c.Pool.last(session)}); own.request != 0 {
			if own.foreign(ours) || ours.after(own) && ours.request != own.request {
				return donor.BeginRecord(ctx, session, own.request)
			}
		}
		if !ours.foreign(theirs) {
			return nil
		}
		// after this reset, SYNC can bring the donor's record with its version
		return to.ResetRecord(ctx, session, ours.request-1)
	})
}

// Recorded returns the last request that a switch has recorded for a session.
func (s *Switch) Recorded(ctx context.Context, session uint16) (uint32, error) {
	ctx, cancel := s.runtime.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	r, err := s.Fetch(ctx, 0, wire.Session, session)
	if err != nil {
		return 0, err
	}
	if r.Status != wire.OK {
		return 0, fmt.Errorf("%s answered for the session %d: %v", s.Name, session, r.Status)
	}
	return r.Request, nil
}

// ResetRecord sets a switch's record of a session to a given last request. It does nothing if the
// record already belongs to this lease, so it is idempotent.
func (s *Switch) ResetRecord(ctx context.Context, session uint16, last uint32) error {
	ctx, cancel := s.runtime.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	p := &wire.Packet{Op: wire.Sync, Flags: wire.Session | wire.Newest, Session: session, Request: last,
		Tombstone: true}
	r, err := s.Exchange(ctx, p, func(r *wire.Packet) bool { return r.Op == wire.SyncReply && r.Session == session })
	if err == nil && r.Status != wire.OK {
		err = fmt.Errorf("%s answered for the session %d: %v", s.Name, session, r.Status)
	}
	return err
}

// BeginRecord sets a switch's record of a session to a given last request, even if the record
// belongs to an earlier lease and by chance lies in this lease's window. ResetRecord would mistake
// such a record for a record of this lease. The switch must not have recorded a request of this
// lease.
func (s *Switch) BeginRecord(ctx context.Context, session uint16, last uint32) error {
	recorded, err := s.Recorded(ctx, session)
	if err != nil {
		return err
	}
	if recorded == last {
		return nil
	}
	if recorded-last <= wire.RequestWindow {
		if err := s.ResetRecord(ctx, session, last+1<<31); err != nil { // this number is out of the lease's window
			return err
		}
	}
	return s.ResetRecord(ctx, session, last)
}

// Equality tracks which chains of a controller have members with equal records of sessions. In the
// zero value, no chain has such members. It is safe for concurrent use.
type Equality struct {
	mu      sync.Mutex
	equal   map[uint8]bool
	emptied map[uint8]int // how often each chain has lost its last key
	busy    bool          // the members of some chain are being made equal
}

// Emptied notes that a chain has no keys. Switches may become its members without a recovery from
// now on.
func (e *Equality) Emptied(chain uint8) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set(chain, false)
	e.emptied[chain]++
}

// HasKeys notes that a chain already had keys when this controller started, so its members are
// equal.
func (e *Equality) HasKeys(chain uint8) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set(chain, true)
}

// Equal reports whether a chain's members have equal records. If so, their records may come from
// writes in that chain.
func (e *Equality) Equal(chain uint8) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.equal[chain]
}

func (e *Equality) set(chain uint8, equal bool) {
	if e.equal == nil {
		e.equal, e.emptied = map[uint8]bool{}, map[uint8]int{}
	}
	e.equal[chain] = equal
}

// begin reports whether a chain's members are already equal (equal), or whether the caller must
// make them equal (begun). If both are false, another chain's members are being made equal.
func (e *Equality) begin(chain uint8) (equal, begun bool, emptied int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.equal[chain] || e.busy {
		return e.equal[chain], false, 0
	}
	e.busy = true
	return false, true, e.emptied[chain]
}

func (e *Equality) end(chain uint8, emptied int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = false
	if err == nil && e.emptied[chain] == emptied {
		e.set(chain, true)
	}
}

// Equalise sets the records of clients' sessions at members of a chain to the initial values of the
// sessions' leases (begun), if the chain had no keys before. Before a chain has its first key, no
// client writes in it, and its members' records do not matter. A member may have missed that a
// session was leased, and may have the record of an earlier lease. Equalise sets only members that
// are in no other chain that is Equal. The others have the right records, which writes in that
// chain may have changed. Members that are being filled for such a chain may already have the right
// records, and must keep these. So a record of theirs is set only if it belongs to no request of
// the lease. members is called when no other chain is being made equal.
func (c *Chain) Equalise(ctx context.Context, members func() (unequal, joining []string),
	begun func() map[uint16]uint32) error {
	for {
		equal, ours, emptied := c.Equality.begin(c.ID)
		if equal {
			return nil
		}
		if ours {
			unequal, joining := members()
			err := c.equalise(ctx, unequal, joining, begun())
			c.Equality.end(c.ID, emptied, err)
			return err
		}
		if err := c.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (c *Chain) equalise(ctx context.Context, unequal, joining []string, begun map[uint16]uint32) error {
	at, err := c.switches(slices.Concat(unequal, joining))
	if err != nil {
		return err
	}
	type item struct {
		at      *Switch
		session uint16
		set     func(*Switch, context.Context, uint16, uint32) error
	}
	var items []item
	for i, s := range at {
		set := (*Switch).BeginRecord
		if i >= len(unequal) {
			set = (*Switch).ResetRecord
		}
		for _, id := range slices.Sorted(maps.Keys(begun)) {
			items = append(items, item{s, id, set})
		}
	}
	return Each(ctx, c, items, func(ctx context.Context, it item) error {
		return it.set(it.at, ctx, it.session, begun[it.session])
	})
}

// Pool holds the controller's own writer sessions, numbered 1 to Size. It is safe for concurrent
// use.
type Pool struct {
	Size int
	// begin returns the initial value of a session's record, which is set when this controller
	// first uses the session. It gets the requests that switches have recorded for the session.
	begin func(recorded []uint32) (uint32, error)
	all   []*session
	mu    sync.Mutex
	free  []*session
}

// session is one session of a Pool. Only one write uses it at a time.
type session struct {
	id   uint16
	next atomic.Uint32 // the session's last request; 0: it has made none yet
	// told holds, for each switch whose record this controller has set, the connection
	// (Target.Connection) in which it set the record.
	told map[*Switch]int
}

// NewPool makes a pool of size sessions.
func NewPool(size int, begin func(recorded []uint32) (uint32, error)) *Pool {
	p := &Pool{Size: size, begin: begin}
	for i := range size {
		p.all = append(p.all, &session{id: uint16(i + 1), told: map[*Switch]int{}})
	}
	p.free = slices.Clone(p.all)
	return p
}

// get waits for a free session, and takes over its record at the members of a chain.
func (p *Pool) get(ctx context.Context, c *Chain, members []*Switch) (*session, error) {
	var s *session
	for s = p.take(); s == nil; s = p.take() {
		if err := c.Sleep(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := p.announce(ctx, c, s, members); err != nil {
		p.put(s)
		return nil, err
	}
	return s, nil
}

// announce sets a session's record at the members of a chain at which this controller has not set
// it yet. A switch that becomes a member of a chain without keys may have the record of an earlier
// controller.
func (p *Pool) announce(ctx context.Context, c *Chain, s *session, members []*Switch) error {
	connections := make([]int, len(members))
	var strange []int
	for i, m := range members {
		connections[i] = m.target.Connection()
		if told, ok := s.told[m]; !ok || told != connections[i] {
			strange = append(strange, i)
		}
	}
	set := (*Switch).BeginRecord
	if s.next.Load() == 0 {
		// The window of the number that begin chose contains none of the members' records.
		set = (*Switch).ResetRecord
		var recorded []uint32
		for _, m := range members {
			r, err := m.Recorded(ctx, s.id)
			if err != nil {
				return err
			}
			recorded = append(recorded, r)
		}
		begin, err := p.begin(recorded)
		if err != nil {
			return fmt.Errorf("the controller's session %d: %w", s.id, err)
		}
		s.next.Store(begin)
	}
	if err := Each(ctx, c, strange, func(ctx context.Context, i int) error {
		return set(members[i], ctx, s.id, s.next.Load())
	}); err != nil {
		return err
	}
	for _, i := range strange {
		s.told[members[i]] = connections[i]
	}
	return nil
}

func (p *Pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return nil
	}
	s := p.free[0]
	p.free = p.free[1:]
	return s
}

func (p *Pool) put(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// last returns the last request of one of the controller's sessions. It returns 0 if there was no
// request, or if the session is not in the pool.
func (p *Pool) last(session uint16) uint32 {
	if session == 0 || int(session) > p.Size {
		return 0
	}
	return p.all[session-1].next.Load()
}
