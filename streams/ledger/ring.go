// Package ledger keeps account of a stream's partition. A ledger knows the objects in the
// partition's ring, the place of the next record, and the objects that each consumer holds. From
// these it decides for which consumers the writer must wait. A ledger stores no records, and has no
// goroutines and no clock. The broker passes it the time, and executes its decisions.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Rules says how a stream treats its consumers. Times are in nanoseconds.
type Rules struct {
	// Skip moves a consumer ahead to a newer record, without waiting, when it is a whole ring
	// behind.
	Skip bool
	// Stall is the longest time for which the writer waits for a consumer that releases nothing.
	// After it, the consumer is moved ahead to a newer record. The writer does not wait for it
	// again until the consumer has noticed the move.
	Stall int64
	// Keep is how long the objects that a named consumer has not released are held after it has
	// disconnected.
	Keep int64
	// Names is the maximum number of remembered consumers per owner. All owners together can have
	// twice as many.
	Names int
}

// ID identifies a connected consumer.
type ID uint64

// Ring is the ledger of one partition, whose objects form a ring. It is not safe for concurrent
// use.
type Ring struct {
	rules   Rules
	objects uint64
	room    int // number of bytes for records in each object

	base  uint64 // number of the first object that this ring ever had
	begun uint64
	next  uint64 // offset of the next record
	used  int    // number of bytes of records in the newest object
	count int
	first []uint64 // offset of the first record of each object, by the object's index in the ring

	there map[ID]*consumer
	named map[string]*consumer // the named consumers by name, whether connected or not
	waits map[string]wait      // for each owner, how long the writer has waited for its consumers
}

// wait is the time for which the writer has waited for the consumers of one owner. For one object,
// the writer waits at most [Rules].Keep plus Stall. This limit holds however many names the owner's
// consumers use, and however often they join.
type wait struct {
	object uint64 // number of the object that must be replaced next, which consumers of the owner hold
	since  int64  // when the writer first had to wait for a consumer that holds this object
	// the owner's time for objects below this number is used up, so the writer replaces them
	// without waiting
	spent uint64
}

type consumer struct {
	id   ID     // id of the connection; 0 if the consumer is not connected
	name string // the consumer's owner and name, combined by Owned
	held uint64 // the consumer holds the objects from this number on
	next uint64 // the consumer has finished with all records before this offset
	// start is the offset of the first record that the consumer gets. The consumer learns start
	// only from the answer to its subscription, but its cursor page contains start earlier. So
	// while the page still has start, next does not change. The consumer still counts as not
	// knowing how many records it missed before start.
	start  uint64
	before *consumer // state of the consumer's name before this consumer joined; nil if the name was unknown
	skip   bool
	waited bool  // the writer waits for this consumer, since the time in the field `since`
	since  int64 // when the writer began to wait for this consumer
	lost   bool  // the consumer was moved ahead and has not noticed it, so the writer does not wait for it
	until  int64 // time until which a consumer that is not connected holds objects
}

// Place is where a record goes in the ring.
type Place struct {
	Object uint64
	At     int // position of the record in the object's records, in bytes
	Offset uint64
	Begins bool   // the record is the first of a new object, which replaces an older object
	Used   int    // bytes of the object's records, including the new record
	Count  int    // number of the object's records, including the new record
	Moved  uint64 // number of consumers that were moved ahead to make room for the record
}

// Blocker is a consumer for which the writer has to wait.
type Blocker struct {
	ID    ID // id of the consumer; 0 if it has disconnected and its position is kept
	Until int64
	// Want is the number of the first object that the consumer may continue to hold. When it has
	// released the objects below, the writer has room for more than one record.
	Want uint64
}

// New makes the ledger of an empty ring.
func New(objects, room int, rules Rules) *Ring {
	return &Ring{rules: rules, objects: uint64(objects), room: room, first: make([]uint64, objects),
		there: map[ID]*consumer{}, named: map[string]*consumer{}, waits: map[string]wait{}}
}

// Held describes an object of a ring that is being restored.
type Held struct {
	First       uint64
	Used, Count int
}

// Restore makes the ledger of a ring that already has objects, numbered from base on. If it has no
// objects, next is the offset of the next record.
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

// Next returns the offset of the next record, and Begun returns the number of the next object.
func (r *Ring) Next() uint64  { return r.next }
func (r *Ring) Begun() uint64 { return r.begun }

// Oldest returns the number of the oldest object in the ring, and the offset of its first record.
func (r *Ring) Oldest() (object, offset uint64) {
	object = max(r.base, r.begun-min(r.begun, r.objects))
	if object == r.begun {
		return object, r.next
	}
	return object, r.first[object%r.objects]
}

// Append assigns a place to a record of the given size. If the writer must first wait for
// consumers, Append returns these consumers as blockers instead of a place. The size must not
// exceed the room of an object.
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
// returns them as blockers. The result `moved` is the number of consumers that were moved ahead.
func (r *Ring) reclaim(now int64) (moved uint64, blockers []Blocker) {
	if r.begun-r.base < r.objects {
		return 0, nil
	}
	victim := r.begun - r.objects
	maps.DeleteFunc(r.waits, func(_ string, w wait) bool { return w.object != victim && w.spent <= victim })
	var late []*consumer
	var spent []string // owners whose time is used up
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
	if len(blockers) > 0 { // no consumer has been moved ahead up to this point
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

// waitsUntil returns until when the writer waits for those consumers of an owner that hold the
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

// all returns the consumers that may hold objects, in a deterministic order.
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

// From says how the position at which a consumer begins is determined.
type From int

const (
	// Known is the last position of the consumer's name. If that is unknown, it is the oldest
	// record.
	Known From = iota
	Earliest
	Latest
	At // the offset that the consumer requests
)

// Start is the position at which a consumer begins.
type Start struct {
	Object uint64 // the consumer holds objects from this number on
	Offset uint64 // offset of the first record that the consumer gets
	Missed uint64 // number of records that no longer exist, from the requested record to Offset
}

// These are the errors of Join and LetGo.
type (
	// Beyond means that the requested record does not exist yet.
	Beyond struct{ Offset, Next uint64 }
	// TooMany means that too many names are remembered.
	TooMany struct{ Names int }
	// Forged means that a consumer has reported an impossible position.
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

// Find returns where a consumer begins if it requests the record with the given offset.
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

// Join adds a consumer. If another consumer has the name, the new consumer takes over the name, and
// replaced is the id of the old consumer, which leaves. The name must be the result of Owned, also
// for a consumer without a name. With skip, the consumer is moved ahead to a newer record when it
// is slow, and the writer does not wait for it.
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

// Bare returns the consumer's name without its owner.
func Bare(name string) string {
	if _, bare, ok := strings.Cut(name, "\x00"); ok {
		return bare
	}
	return name
}

func ownerOf(name string) string { return name[:len(name)-len(Bare(name))] }

// find finds the consumer with a name. Earlier versions of the server remembered names without an
// owner. Such a name is assigned to the first owner that uses it.
func (r *Ring) find(name string) *consumer {
	bare := Bare(name)
	if c := r.named[bare]; c != nil && r.named[name] == nil && ownerOf(bare) == "" && c.id == 0 {
		delete(r.named, bare)
		c.name, r.named[name] = name, c
	}
	return r.named[name]
}

// roomForName reports whether another name may be remembered. If there are too many names, it
// forgets the name that has held nothing for the longest time. If the owner of the new name already
// has its full share, a name of the same owner is forgotten. Otherwise a name of the owner with the
// most names is forgotten, if that owner has more names than this one.
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

// LetGo processes a consumer's report of its position. The consumer holds objects from number held
// on, and has finished with all records before next. Values below those of an earlier report have
// no effect. Reports of consumers that are not connected are ignored.
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

// Withdraw undoes a Join, because the join failed later. The consumer's name gets its earlier
// position again. The consumer that had the name before the Join is not connected again.
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

// Leave removes a consumer that has disconnected. The objects of a consumer without a name are
// released. The objects of a named consumer are still held for some time.
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
// records are held for some time. Records that no longer exist also count as unread. So the
// consumer gets the number of missed records until it requests a later record, even if an answer is
// lost. Commit does nothing for a connected consumer.
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

// Where returns the position of a named consumer.
func (r *Ring) Where(name string) (next uint64, known bool) {
	if c := r.find(name); c != nil {
		return c.next, true
	}
	return 0, false
}

// Fits reports whether a record fits into the newest object. If it does, the writer need not wait
// for consumers.
func (r *Ring) Fits(size int) bool { return r.begun > r.base && r.used+size <= r.room }

// Forget removes a name and releases its objects, unless its consumer is connected.
func (r *Ring) Forget(name string) bool {
	c := r.named[name]
	if c == nil || c.id != 0 {
		return false
	}
	delete(r.named, name)
	return true
}

// Positions returns the offset of the record that each named consumer reads next.
func (r *Ring) Positions() map[string]uint64 {
	out := make(map[string]uint64, len(r.named))
	for name, c := range r.named {
		out[name] = c.next
	}
	return out
}

// Remember adds a name from an earlier ledger, as if its consumer had just disconnected. Records
// that no longer exist count as missed.
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
