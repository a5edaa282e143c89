// Package ledger is the ledger of a stream's partition: the objects in its ring, the place of the
// next record, what each consumer holds, and the consumers that the writer must wait for. It has no
// memory of records, no goroutines and no clock: the broker executes its decisions, and passes it
// the time.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rules are a stream's rules for its consumers. Times are in nanoseconds.
type Rules struct {
	// Skip moves a consumer on without waiting when it is behind by the whole ring.
	Skip bool
	// Stall is the time for which the writer waits for a consumer that releases nothing. Then the
	// consumer is moved on, and the writer does not wait for it again until it has noticed that.
	Stall int64
	// Keep is the time for which unreleased objects of a named consumer are held after it has left.
	Keep int64
	// Names bounds the consumers of an owner whose positions are remembered. All owners together
	// have twice as many.
	Names int
}

// ID identifies a connected consumer.
type ID uint64

// Ring is the ledger of one partition. It is not safe for concurrent use.
type Ring struct {
	rules   Rules
	objects uint64
	room    int // bytes of records in an object

	base  uint64 // the number of the first object that this ring ever had
	begun uint64
	next  uint64 // offset of the next record
	used  int    // bytes of records in the newest object
	count int
	first []uint64 // by index in the ring: the offset of the first record

	there map[ID]*consumer
	named map[string]*consumer // by name, connected or not
	waits map[string]wait      // by owner
}

// wait is the time for which the writer has waited for the consumers of one owner. For one object,
// it is at most [Rules].Keep plus Stall, whatever names they have and however often they join.
type wait struct {
	object uint64 // they hold this object, which must be replaced next
	since  int64  // when the writer first had to wait for one of them
	spent  uint64 // their time is used up for objects below this number: the writer replaces those without waiting
}

type consumer struct {
	id   ID     // 0: it is not connected
	name string // its owner and its name (Owned)
	held uint64 // it holds the objects from this number on
	next uint64 // it is done with records before this offset
	// start is the first record that it gets. The cursor page contains start before the consumer
	// has its answer, so only a later offset changes next. Until then, the consumer still gets the
	// count of the records that it missed before start.
	start  uint64
	before *consumer // state of the name before this consumer joined; nil: the name was unknown
	skip   bool
	waited bool  // the writer waits for it, since the time in since
	since  int64 // the time from which waited is true
	lost   bool  // it was moved on and has not confirmed that, so the writer does not wait for it
	until  int64 // if it is not connected: the time until which it holds objects
}

// Place is the place of a record.
type Place struct {
	Object uint64
	At     int // offset in the object's records
	Offset uint64
	Begins bool   // the record begins the object, which replaces another one
	Used   int    // bytes of the object's records, including this one
	Count  int    // number of the object's records, including this one
	Moved  uint64 // number of consumers that were moved on to make room for the record
}

// Blocker is a consumer for which the writer has to wait.
type Blocker struct {
	ID    ID // 0: it has left, and its position is kept
	Until int64
	// Want is the first object that it may continue to hold. It leaves the writer room for more
	// than one record.
	Want uint64
}

// New makes the ledger of an empty ring.
func New(objects, room int, rules Rules) *Ring {
	return &Ring{rules: rules, objects: uint64(objects), room: room, first: make([]uint64, objects),
		there: map[ID]*consumer{}, named: map[string]*consumer{}, waits: map[string]wait{}}
}

// Held is an object of a restored ring.
type Held struct {
	First       uint64
	Used, Count int
}

// Restore makes the ledger of a ring that already has objects, from number base on. If there are
// none, next is the offset of the next record.
func Restore(objects, room int, rules Rules, base, next uint64, has []Held) (*Ring, error) {
	r := New(objects, room, rules)
	if len(has) > objects {
		return nil, fmt.Errorf("%d objects in a ring of %d", len(has), objects)
	}
	r.base, r.begun, r.next = base, base, next
	for i, o := range has {
		if i > 0 && o.First != r.next {
			return nil, fmt.Errorf("object %d begins with record %d; record %d is missing", r.begun, o.First, r.next)
		}
		if o.Used > room || o.Count < 0 || o.Used < 0 {
			return nil, fmt.Errorf("object %d has %d records of %d bytes, of %d", r.begun, o.Count, o.Used, room)
		}
		r.first[r.begun%r.objects] = o.First
		r.begun++
		r.next, r.used, r.count = o.First+uint64(o.Count), o.Used, o.Count
	}
	return r, nil
}

// Next returns the offset of the next record, Begun the number of the next object.
func (r *Ring) Next() uint64  { return r.next }
func (r *Ring) Begun() uint64 { return r.begun }

// Oldest returns the number of the oldest existing object, and the offset of its first record.
func (r *Ring) Oldest() (object, offset uint64) {
	object = max(r.base, r.begun-min(r.begun, r.objects))
	if object == r.begun {
		return object, r.next
	}
	return object, r.first[object%r.objects]
}

// Append finds the place of a record of the given size. If the writer must first wait for
// consumers, it returns them as blockers, and no place. size must not exceed the room of an object.
func (r *Ring) Append(size int, now int64) (p Place, blockers []Blocker) {
	if r.begun == r.base || r.used+size > r.room {
		if p.Moved, blockers = r.reclaim(now); len(blockers) > 0 {
			return p, blockers
		}
		r.first[r.begun%r.objects] = r.next
		r.begun++
		r.used, r.count, p.Begins = 0, 0, true
	}
	p.Object, p.At, p.Offset = r.begun-1, r.used, r.next
	r.used += size
	r.count++
	r.next++
	p.Used, p.Count = r.used, r.count
	return p, nil
}

// reclaim makes room for the next object. If consumers hold the object that must be replaced, it
// returns them as blockers. moved is the number of consumers that were moved on.
func (r *Ring) reclaim(now int64) (moved uint64, blockers []Blocker) {
	if r.begun-r.base < r.objects {
		return 0, nil
	}
	victim := r.begun - r.objects
	maps.DeleteFunc(r.waits, func(_ string, w wait) bool { return w.object != victim && w.spent <= victim })
	var late []*consumer
	var spent []string // owners
	for _, c := range r.all() {
		if c.held > victim || c.id == 0 && now >= c.until {
			continue
		}
		if c.id != 0 && (c.skip || r.rules.Skip || c.lost) {
			late = append(late, c)
			continue
		}
		b := Blocker{Until: c.until}
		if c.id != 0 {
			if !c.waited {
				c.waited, c.since = true, now
			}
			b = Blocker{c.id, c.since + r.rules.Stall, victim + 1 + r.objects/4}
		}
		owner := ownerOf(c.name)
		b.Until = min(b.Until, r.waitsUntil(owner, victim, now))
		if now < b.Until {
			blockers = append(blockers, b)
			continue
		}
		late, spent = append(late, c), append(spent, owner)
	}
	if len(blockers) > 0 { // no consumer was moved on yet
		return 0, blockers
	}
	for _, owner := range spent {
		if w := r.waits[owner]; victim >= w.spent && now >= r.waitsUntil(owner, victim, now) {
			w.spent = r.begun
			r.waits[owner] = w
		}
	}
	for _, c := range late {
		if c.id == 0 {
			c.until = now
			continue
		}
		c.held, c.waited, c.lost = r.begun, false, !c.skip && !r.rules.Skip
		moved++
	}
	return moved, nil
}

// waitsUntil returns the time until which the writer waits for an owner's consumers that hold an
// object.
func (r *Ring) waitsUntil(owner string, object uint64, now int64) int64 {
	w, ok := r.waits[owner]
	if object < w.spent {
		return now
	}
	if !ok || w.object != object {
		w = wait{object: object, since: now}
		r.waits[owner] = w
	}
	return w.since + r.rules.Keep + r.rules.Stall
}

// all returns the consumers that may hold something, in a deterministic order.
func (r *Ring) all() []*consumer {
	out := make([]*consumer, 0, len(r.there)+len(r.named))
	for _, id := range slices.Sorted(maps.Keys(r.there)) {
		out = append(out, r.there[id])
	}
	for _, name := range slices.Sorted(maps.Keys(r.named)) {
		if c := r.named[name]; c.id == 0 {
			out = append(out, c)
		}
	}
	return out
}

// From is the kind of position at which a consumer begins.
type From int

const (
	// Known: the last position of the consumer's name; if that is unknown, the oldest record.
	Known From = iota
	Earliest
	Latest
	At // the given offset
)

// Start is the position at which a consumer begins.
type Start struct {
	Object uint64 // the consumer holds objects from this number on
	Offset uint64 // the first record that the consumer gets
	Missed uint64 // number of records from the requested one to Offset, which are gone
}

// Errors of Join and LetGo.
type (
	// Beyond: the record does not exist yet.
	Beyond struct{ Offset, Next uint64 }
	// TooMany: too many names are remembered.
	TooMany struct{ Names int }
	// Forged: a consumer's report is impossible.
	Forged struct{ Held, Begun, Offset, Next uint64 }
)

func (e Beyond) Error() string {
	return fmt.Sprintf("record %d is not there yet: the next one is %d", e.Offset, e.Next)
}
func (e TooMany) Error() string {
	return fmt.Sprintf("positions of %d names are remembered: there is no room for another", e.Names)
}
func (e Forged) Error() string {
	return fmt.Sprintf("a consumer says it holds objects from %d on, of %d, and wants record %d, of %d",
		e.Held, e.Begun, e.Offset, e.Next)
}

// Find returns where a consumer begins if it requests the record with an offset.
func (r *Ring) Find(offset uint64) (Start, error) {
	if offset > r.next {
		return Start{}, Beyond{offset, r.next}
	}
	oldest, first := r.Oldest()
	if offset < first {
		return Start{oldest, first, first - offset}, nil
	}
	s := Start{Object: oldest, Offset: offset}
	for s.Object+1 < r.begun && r.first[(s.Object+1)%r.objects] <= offset {
		s.Object++
	}
	return s, nil
}

// Join adds a consumer. If another one has the name, the new one takes over the name, and replaced
// is the old one, which has left. A consumer without a name is Owned by its owner, too. skip: it is
// moved on instead of waited for.
func (r *Ring) Join(id ID, name string, from From, offset uint64, skip bool, now int64) (s Start, replaced ID,
	err error) {
	before := r.find(name)
	switch {
	case from == Latest:
		offset = r.next
	case from == Earliest, from == Known && before == nil:
		_, offset = r.Oldest()
	case from == Known:
		offset = before.next
	}
	if s, err = r.Find(offset); err != nil {
		return s, 0, err
	}
	if Bare(name) != "" && before == nil && !r.roomForName(name, now) {
		return s, 0, TooMany{len(r.named)}
	}
	c := &consumer{id: id, name: name, held: s.Object, next: s.Offset - s.Missed, start: s.Offset, before: before,
		skip: skip}
	if before != nil {
		replaced, before.before = before.id, nil
		delete(r.there, before.id)
	}
	r.there[id] = c
	if Bare(name) != "" {
		r.named[name] = c
	}
	return s, replaced, nil
}

// Owned combines an owner and a name, so that consumers of different owners are always different.
// An owner's name contains no zero byte.
func Owned(owner, name string) string { return owner + "\x00" + name }

// Bare returns the part of a name after the owner.
func Bare(name string) string {
	if _, bare, ok := strings.Cut(name, "\x00"); ok {
		return bare
	}
	return name
}

func ownerOf(name string) string { return name[:len(name)-len(Bare(name))] }

// find finds the consumer with a name. A name that an earlier version of the server remembered
// without an owner is assigned to the first owner that uses it.
func (r *Ring) find(name string) *consumer {
	bare := Bare(name)
	if c := r.named[bare]; c != nil && r.named[name] == nil && ownerOf(bare) == "" && c.id == 0 {
		delete(r.named, bare)
		c.name, r.named[name] = name, c
	}
	return r.named[name]
}

// roomForName reports whether another name may be remembered. If there are too many, it forgets the
// name that has held nothing for the longest time. It chooses among the names of the same owner if
// that owner has its full share, and otherwise among those of the owner with most names, if that
// has more.
func (r *Ring) roomForName(name string, now int64) bool {
	owner, of := ownerOf(name), map[string]int{}
	for other := range r.named {
		of[ownerOf(other)]++
	}
	full := of[owner] >= r.rules.Names
	if !full && len(r.named) < 2*r.rules.Names {
		return true
	}
	var idle *consumer
	most := of[owner]
	for _, other := range slices.Sorted(maps.Keys(r.named)) {
		c, n := r.named[other], of[ownerOf(other)]
		if c.id != 0 || now < c.until || n < most || ownerOf(other) != owner && (full || n == of[owner]) {
			continue
		}
		if idle == nil || n > most || c.until < idle.until {
			idle, most = c, n
		}
	}
	if idle != nil {
		delete(r.named, idle.name)
	}
	return idle != nil
}

// LetGo processes a consumer's report: it holds objects from number held on, and is done with
// records before next. Smaller values than in an earlier report have no effect. Reports of
// consumers that are not connected are ignored.
func (r *Ring) LetGo(id ID, held, next uint64) error {
	c := r.there[id]
	if c == nil {
		return nil
	}
	if held > r.begun || next > r.next {
		return Forged{held, r.begun, next, r.next}
	}
	if held > c.held {
		c.held, c.waited = held, false
	}
	c.lost = c.lost && held < c.held
	if next > c.start {
		c.next = max(c.next, next)
	}
	return nil
}

// Withdraw undoes a Join, because the consumer was told that it failed: its name gets its earlier
// position. The consumer that had the name before has left.
func (r *Ring) Withdraw(id ID, now int64) {
	c := r.there[id]
	if c == nil {
		return
	}
	delete(r.there, id)
	switch b := c.before; {
	case Bare(c.name) == "":
	case b == nil:
		delete(r.named, c.name)
	default:
		r.named[c.name] = b
		if b.id != 0 {
			r.there[b.id] = b
			r.Leave(b.id, now)
		}
	}
}

// Leave removes a consumer. If it has no name, its objects are released. If it has one, they are
// held for some time.
func (r *Ring) Leave(id ID, now int64) {
	c := r.there[id]
	if c == nil {
		return
	}
	delete(r.there, id)
	if Bare(c.name) == "" {
		return
	}
	c.id, c.waited, c.until = 0, false, now
	if !c.skip && !r.rules.Skip {
		c.until += r.rules.Keep
	}
}

// Commit records the position of a named consumer that reads without being connected. Its unread
// records are held for some time. Records that are gone still count as unread. So the consumer gets
// their number until it requests a later record, even if an answer is lost. Commit does nothing for
// a connected consumer.
func (r *Ring) Commit(name string, next uint64, now int64) error {
	c := r.find(name)
	if c != nil && c.id != 0 {
		return nil
	}
	s, err := r.Find(next)
	if err != nil {
		return err
	}
	if c == nil {
		if !r.roomForName(name, now) {
			return TooMany{len(r.named)}
		}
		c = &consumer{name: name}
		r.named[name] = c
	}
	c.held, c.next, c.until = s.Object, next, now
	if !r.rules.Skip {
		c.until += r.rules.Keep
	}
	return nil
}

// Where returns the position of the consumer with a name.
func (r *Ring) Where(name string) (next uint64, known bool) {
	if c := r.find(name); c != nil {
		return c.next, true
	}
	return 0, false
}

// Fits reports whether a record fits into the newest object, so that the writer need not wait.
func (r *Ring) Fits(size int) bool { return r.begun > r.base && r.used+size <= r.room }

// Forget forgets a name, and releases its objects, unless its consumer is connected.
func (r *Ring) Forget(name string) bool {
	c := r.named[name]
	if c == nil || c.id != 0 {
		return false
	}
	delete(r.named, name)
	return true
}

// Positions returns, by name, the offsets of the records that consumers read next.
func (r *Ring) Positions() map[string]uint64 {
	out := make(map[string]uint64, len(r.named))
	for name, c := range r.named {
		out[name] = c.next
	}
	return out
}

// Remember adds a name from an earlier ledger, as if its consumer had just left. Records that are
// gone count as missed.
func (r *Ring) Remember(name string, next uint64, now int64) {
	if r.named[name] != nil || len(r.named) >= 2*r.rules.Names {
		return
	}
	s, err := r.Find(min(next, r.next))
	if err != nil {
		return
	}
	c := &consumer{name: name, held: s.Object, next: next, until: now}
	if !r.rules.Skip {
		c.until += r.rules.Keep
	}
	r.named[name] = c
}
