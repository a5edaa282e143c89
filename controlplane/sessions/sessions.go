// Package sessions hands out writer sessions. A session id (16 bits, an index into the switches'
// session tables) belongs to one writer at a time: the switches remember the last request of each
// id, so that a retried write executes once, and two writers under one id would take each other's
// writes for retries.
//
// Ids are therefore leased: the holder keeps its lease alive, and when it does not, the ids are
// given to others only after as long again, in which the holder must have noticed. The id that has
// been free the longest goes first. The package is pure; times are given.
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

// ErrNotFound: no such lease (any more). ErrFull: not as many ids are free.
var (
	ErrNotFound = errors.New("no such lease on sessions")
	ErrFull     = errors.New("not enough sessions are free")
)

// Gap is how many requests an earlier holder may have sent that no switch had recorded yet when
// the switches were read. The numbers of a new lease stay clear of those, so that they cannot be
// mistaken for the new holder's.
const Gap = 1024

// Begin is what the record of a session is set to when it is leased, so that the holder's first
// request is the next number: random, in the lower half of all numbers, so that a lease does not
// come to their end, and such that no request of an earlier lease, of which records were found at
// switches, is in its window (wire.RequestWindow), nor comes into it while the record grows by as
// much again.
func Begin(records []uint32, random func() uint32) uint32 {
	in := func(last, request uint32) bool { return request-last <= 2*wire.RequestWindow }
	for {
		last := random() >> 1
		if last != 0 && !slices.ContainsFunc(records, func(r uint32) bool { return in(last, r) || in(last, r+Gap) }) {
			return last
		}
	}
}

// Lease is some sessions, held by one owner.
type Lease struct {
	ID    string   `json:"id"`
	Owner string   `json:"owner,omitempty"`
	Host  string   `json:"host,omitempty"` // the host that may use them; "": any that may use sessions without a lease
	IDs   []uint16 `json:"ids"`
	// Begin holds the values that the records of IDs were set to before the holder learned about
	// the lease; empty: they are not known.
	Begin []uint32 `json:"begin,omitempty"`
	until Time
	freed Time // not 0: nobody holds it any more; its ids are free from then on
}

// Table is all sessions that clients can have. It is not safe for concurrent use.
type Table struct {
	ttl    time.Duration
	free   []uint16 // the longest free first
	leases map[string]*Lease
}

// New makes a table of the ids from first to last. saved are leases that an earlier controller
// gave; their holders have a whole TTL from now.
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

// Rest lets all free ids rest, because an earlier controller may have given leases on them that are
// not known: by the end of it those have run out.
func (t *Table) Rest(now Time) {
	const holder = "an earlier controller"
	ids := t.free
	if l := t.leases[holder]; l != nil {
		ids = append(ids, l.IDs...)
	}
	t.leases[holder] = &Lease{ID: holder, IDs: ids, freed: now + 2*t.ttl}
	t.free = nil
}

// TTL is the time within which a lease must be kept alive.
func (t *Table) TTL() time.Duration { return t.ttl }

// Open leases count ids to a host, under a name that the caller chose. A host has one, or as many
// ids as it leaves for the others at most; those of its leases that ran out count until they are
// free. This does not bound the host "", which stands for all hosts of a network without
// principals.
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

// heldBy is how many ids a host has that are not free.
func (t *Table) heldBy(host string) (n int) {
	for _, l := range t.leases {
		if l.Host == host {
			n += len(l.IDs)
		}
	}
	return n
}

// Begin notes what the records of a lease's ids are set to.
func (t *Table) Begin(lease string, begin []uint32) {
	if l := t.leases[lease]; l != nil {
		l.Begin = begin
	}
}

// Begun returns the values that the records of the sessions in use were set to, as far as they are
// known.
func (t *Table) Begun(now Time) map[uint16]uint32 {
	out := map[uint16]uint32{}
	for _, l := range t.Held(now) {
		for i, begin := range l.Begin {
			out[l.IDs[i]] = begin
		}
	}
	return out
}

// soon says when more ids will be free.
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

// Keep keeps a lease alive for another TTL. ErrNotFound: it has run out, and its holder must no
// longer use its sessions.
func (t *Table) Keep(now Time, lease string) (*Lease, error) {
	t.expire(now)
	l := t.leases[lease]
	if l == nil || l.freed > 0 {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, lease)
	}
	l.until = now + t.ttl
	return l, nil
}

// Close gives a lease back; the holder sends nothing under it any more.
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

// expire ends leases that were not kept alive, and frees the ids of those that ended a TTL ago.
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

// Held are the leases whose holders may use them.
func (t *Table) Held(now Time) []Lease {
	t.expire(now)
	return slices.DeleteFunc(t.Leases(), func(l Lease) bool { return l.freed > 0 })
}

// Leases are all whose ids are not free, by name, for saving.
func (t *Table) Leases() []Lease {
	out := []Lease{}
	for _, id := range slices.Sorted(maps.Keys(t.leases)) {
		out = append(out, *t.leases[id])
	}
	return out
}

// Free is the number of ids that can be leased now.
func (t *Table) Free(now Time) int {
	t.expire(now)
	return len(t.free)
}
