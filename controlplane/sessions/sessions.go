// Package sessions hands out writer sessions. A session id (16 bits, an index into the switches'
// session tables) belongs to one writer at a time. The switches remember the last request of each
// id, so that a retried write executes once. If two writers used one id, the switches would take
// their writes for retries of each other.
//
// Ids are therefore leased, and the holder must keep its lease alive. If it does not, other writers
// get the ids only after a second TTL, in which the holder must notice the loss. The id that has
// been free the longest is given first. The package has no clock, so callers pass the time.
package sessions

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Time is the time since the controller started.
type Time = time.Duration

// ErrNotFound says that a lease does not exist, or that it has ended. ErrFull says that too few ids
// are free.
var (
	ErrNotFound = errors.New("no such lease on sessions")
	ErrFull     = errors.New("not enough sessions are free")
)

// Gap is the maximum number of requests of an earlier holder that no switch has recorded when the
// controller reads the switches. A new lease's request numbers avoid these requests, so that no
// switch mistakes them for the new holder's.
const Gap = 1024

// Begin chooses the initial value of a session's record for a new lease. The holder's first request
// is the next number. The value is random, in the lower half of all numbers, so a lease does not
// reach the highest number. records are the requests of earlier leases that switches have recorded.
// None of these requests may be in the value's window (wire.RequestWindow), nor get into the window
// while the record grows by another window.
func Begin(records []uint32, random func() uint32) uint32 {
	in := func(last, request uint32) bool { return request-last <= 2*wire.RequestWindow }
	for {
		last := random() >> 1
		if last != 0 && !slices.ContainsFunc(records, func(r uint32) bool { return in(last, r) || in(last, r+Gap) }) {
			return last
		}
	}
}

// Lease is a set of sessions with one owner.
type Lease struct {
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty"`
	// the host that may use the sessions; "" for all hosts that may use sessions without a lease
	Host string   `json:"host,omitempty"`
	IDs  []uint16 `json:"ids"`
	// Begin holds the values to which the records of IDs were set before the holder learned about
	// the lease. It is empty if the values are not known.
	Begin []uint32 `json:"begin,omitempty"`
	until Time
	freed Time // the time from which the ids are free, if the lease has ended; otherwise 0
}

// Table holds all sessions for clients. It is not safe for concurrent use.
type Table struct {
	ttl    time.Duration
	free   []uint16 // free ids; the id that has been free the longest comes first
	leases map[string]*Lease
}

// New makes a table of the ids from first to last. saved holds an earlier controller's leases. Each
// holder has a full TTL from now.
func New(first, last uint16, ttl time.Duration, saved []Lease) *Table {
	t := &Table{ttl: ttl, leases: map[string]*Lease{}}
	held := map[uint16]bool{}
	for _, l := range saved {
		l.until = ttl
		t.leases[l.ID] = &l
		for _, id := range l.IDs {
			held[id] = true
		}
	}
	for id := int(first); id <= int(last); id++ {
		if !held[uint16(id)] {
			t.free = append(t.free, uint16(id))
		}
	}
	return t
}

// Rest keeps all free ids from being leased for as long as unknown leases of an earlier controller
// may last.
func (t *Table) Rest(now Time) {
	const holder = "an earlier controller"
	ids := t.free
	if l := t.leases[holder]; l != nil {
		ids = append(ids, l.IDs...)
	}
	t.leases[holder] = &Lease{ID: holder, IDs: ids, freed: now + 2*t.ttl}
	t.free = nil
}

// TTL returns the time within which a holder must renew its lease.
func (t *Table) TTL() time.Duration { return t.ttl }

// Open leases count ids to a host. The caller chooses the lease's name. A host may have one id, or
// n ids if at least n stay free for other hosts. Ids of the host's leases that ran out count until
// they are free. The limit does not apply to the host "", which stands for all hosts of a network
// without principals.
func (t *Table) Open(now Time, lease, owner, host string, count int) (*Lease, error) {
	t.expire(now)
	if count > len(t.free) {
		return nil, fmt.Errorf("%w: %d asked for, %d free%s", ErrFull, count, len(t.free), t.soon(now))
	}
	if has := t.heldBy(host); host != "" && has+count > max(1, len(t.free)-count) {
		return nil, fmt.Errorf("%w for one host: %s has %d and asks for %d of the %d that are free. It may not have more than it leaves for others: give some back",
			ErrFull, host, has, count, len(t.free))
	}
	l := &Lease{ID: lease, Owner: owner, Host: host, IDs: slices.Clone(t.free[:count]), until: now + t.ttl}
	t.free = t.free[count:]
	t.leases[lease] = l
	return l, nil
}

// heldBy returns how many ids a host holds or has not freed yet.
func (t *Table) heldBy(host string) (n int) {
	for _, l := range t.leases {
		if l.Host == host {
			n += len(l.IDs)
		}
	}
	return n
}

// Begin stores the initial values of the records of a lease's ids.
func (t *Table) Begin(lease string, begin []uint32) {
	if l := t.leases[lease]; l != nil {
		l.Begin = begin
	}
}

// Begun returns the known initial values of the records of all leased sessions.
func (t *Table) Begun(now Time) map[uint16]uint32 {
	out := map[uint16]uint32{}
	for _, l := range t.Held(now) {
		for i, begin := range l.Begin {
			out[l.IDs[i]] = begin
		}
	}
	return out
}

// soon returns a text that says when more ids become free.
func (t *Table) soon(now Time) string {
	var next Time
	for _, l := range t.leases {
		if l.freed > 0 && (next == 0 || l.freed < next) {
			next = l.freed
		}
	}
	if next == 0 {
		return ""
	}
	return fmt.Sprintf("; more in %v", (next - now).Round(time.Second))
}

// Keep keeps a lease alive for another TTL. If the lease has run out, Keep returns ErrNotFound, and
// the holder must no longer use its sessions.
func (t *Table) Keep(now Time, lease string) (*Lease, error) {
	t.expire(now)
	l := t.leases[lease]
	if l == nil || l.freed > 0 {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, lease)
	}
	l.until = now + t.ttl
	return l, nil
}

// Close ends a lease. The holder must not use it any more.
func (t *Table) Close(now Time, lease string) error {
	t.expire(now)
	l := t.leases[lease]
	if l == nil || l.freed > 0 {
		return fmt.Errorf("%w: %q", ErrNotFound, lease)
	}
	delete(t.leases, lease)
	t.free = append(t.free, l.IDs...)
	return nil
}

// expire ends leases that were not kept alive. It frees the ids of leases that ended a TTL ago.
func (t *Table) expire(now Time) {
	for _, id := range slices.Sorted(maps.Keys(t.leases)) {
		l := t.leases[id]
		if l.freed == 0 && now >= l.until {
			l.freed = l.until + t.ttl
		}
		if l.freed > 0 && now >= l.freed {
			t.free = append(t.free, l.IDs...)
			delete(t.leases, id)
		}
	}
}

// Held returns the leases that are valid.
func (t *Table) Held(now Time) []Lease {
	t.expire(now)
	return slices.DeleteFunc(t.Leases(), func(l Lease) bool { return l.freed > 0 })
}

// Leases returns all leases whose ids are not free, sorted by name, for saving.
func (t *Table) Leases() []Lease {
	out := []Lease{}
	for _, id := range slices.Sorted(maps.Keys(t.leases)) {
		out = append(out, *t.leases[id])
	}
	return out
}

// Free returns the number of ids that can be leased now.
func (t *Table) Free(now Time) int {
	t.expire(now)
	return len(t.free)
}
