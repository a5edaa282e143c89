package guarded

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// The simulator consists of slots, an etcd, gateways and a placement. Only one task runs at a time,
// and a seeded random generator chooses the next one. A task gives up control only where a server
// sends a request or waits. The same seed gives the same run.

// perStep is the simulated duration of one step.
const perStep = 5 * time.Millisecond

const simPrefix = "/n/"

var simKeys = []string{"a", "b", "c"}

// task is a sequence of work that yields control from time to time.
type task struct {
	gw       *gateway // the gateway that runs the task; nil if the world runs it
	turn     chan struct{}
	blocked  func() bool // reports whether the task has to wait
	inFlight func()      // a request that the task has sent and that has not arrived
	over     bool
	killed   bool
}

type world struct {
	r     *rand.Rand
	now   int
	tasks []*task
	self  *task         // the task that has control
	back  chan struct{} // gives control back to the world
	log   []string
	trace bool

	etcd  *fakeEtcd
	slots map[wire.Key]*simSlot
	late  []func() // requests that may still arrive

	gateways []*gateway
	leases   int64
	nextID   wire.Key
	freeIDs  []wire.Key // KEY_IDs of removed keys, which may be used again
	without  string     // the rule that is disabled
	faults   float64    // probability that a message is lost or late
	codec    fixedCodec

	states  map[string][]state // states of each key, in order of time
	placing []placement.Change // changes of the directory, in order
	history []*op
	values  int
	broken  []string // violations that were found so far
	hits    int      // number of reads that the slots answered

	ring    *seal.Ring // the sealing keys in etcd
	rotated int
	// whether an attacker, which is not a gateway, writes into slots
	hostile bool
	seen    []sealedFor                // all cells that gateways have sent to slots
	names   map[wire.Key]placement.Key // placements of all slots that ever existed
	evict   map[wire.Key]chan struct{} // closed when placement is asked to remove the key
	forged  int                        // number of slots that gateways have found forged
}

// sealedFor is a cell that a gateway has sealed, and the sequence of the version that it was sealed
// for.
type sealedFor struct {
	id       wire.Key
	sequence uint64
	value    []byte
}

// state is the state of a key in etcd, and the time at which that state began.
type state struct {
	from     int
	revision int64
	kv       *mvccpb.KeyValue
}

type simSlot struct {
	value   []byte
	version wire.Version
	gone    bool
}

type fixedCodec struct{ c *slotcodec.Codec }

func (f fixedCodec) Codec() *slotcodec.Codec                    { return f.c }
func (f fixedCodec) Want(context.Context, uint32) (bool, error) { return false, nil }

var simCodec = func() fixedCodec {
	c, err := slotcodec.NewCodec()
	if err != nil {
		panic(err)
	}
	return fixedCodec{c}
}()

func newWorld(seed uint64, gateways int) *world {
	w := &world{
		r: rand.New(rand.NewPCG(seed, 0x6775617264)), back: make(chan struct{}), etcd: newFakeEtcd(),
		slots: map[wire.Key]*simSlot{}, nextID: 1,
		states: map[string][]state{}, faults: 0.06, codec: simCodec,
		names: map[wire.Key]placement.Key{}, evict: map[wire.Key]chan struct{}{},
	}
	w.etcd.leases[7] = true
	w.ring = newRing()
	w.hostile = w.chance(0.5)
	for _, k := range simKeys {
		w.states[k] = []state{{}}
	}
	w.etcd.changed = func(key string, kv *mvccpb.KeyValue) {
		if s, ok := w.states[key]; ok {
			w.states[key] = append(s, state{w.now, w.etcd.revision, kv})
			w.note("etcd: %s = %v", key, kv)
		}
		if name, ok := strings.CutPrefix(key, placement.Name(simPrefix, "")); ok {
			ch := placement.Change{Key: name, Deleted: kv == nil, Entry: placement.Entry{Mod: w.etcd.revision}}
			if kv != nil {
				ch.Entry = entryOf(kv)
			}
			w.placing = append(w.placing, ch)
			w.note("directory: %+v", ch)
		}
	}
	for range gateways {
		w.gateway()
	}
	return w
}

func entryOf(kv *mvccpb.KeyValue) placement.Entry {
	e := placement.Entry{Chain: "0", Mod: kv.ModRevision}
	fmt.Sscan(string(kv.Value), (*uint32)(&e.ID), (*uint64)(&e.Version))
	return e
}

func newRing() *seal.Ring {
	r, err := seal.NewRing()
	if err != nil {
		panic(err)
	}
	return r
}

// rotate makes a new sealing key, which gateways learn one after another.
func (w *world) rotate() {
	r, err := w.ring.Rotated()
	if err != nil {
		panic(err)
	}
	w.ring = r
	w.rotated++
	w.note("a new key to seal with")
}

// allKeys are the sealing keys in etcd.
type allKeys struct{ *world }

func (k allKeys) Ring() *seal.Ring                           { return k.ring }
func (k allKeys) Want(context.Context, uint32) (bool, error) { panic("it knows all keys") }

// judge returns a server that opens slots as gateways do, with all sealing keys.
func (w *world) judge() *Server {
	s := &Server{Config: Config{Seals: allKeys{w}}}
	leaveOut(s, w.without)
	return s
}

// attack writes into a slot as an attacker. The attacker may write every slot, has seen all cells
// that were ever sent to slots, and has no sealing key. It writes random bytes, a cell without a
// seal, or a cell that a gateway has sealed for this or another key, perhaps with one bit changed.
// Or it deletes the cell.
func (w *world) attack() {
	ids := slices.Sorted(maps.Keys(w.slots))
	if len(ids) == 0 {
		return
	}
	id := ids[w.r.IntN(len(ids))]
	at := w.slots[id]
	plain := func(c slotcodec.Cell) []byte {
		b, err := simCodec.c.Encode(c, 64)
		if err != nil {
			panic(err)
		}
		return b
	}
	var value []byte
	gone := false
	switch w.r.IntN(9) {
	case 0:
		value = make([]byte, w.r.IntN(64))
		for i := range value {
			value[i] = byte(w.r.IntN(256))
		}
	case 1, 2:
		value = []byte(slotcodec.Unsealed)
	case 3:
		value = plain(slotcodec.Cell{Kind: slotcodec.Value, Create: 1, Mod: 1 << 62, Version: 1, Value: []byte("forged")})
	case 4:
		value = plain(slotcodec.Cell{Kind: slotcodec.Absent, Revision: w.etcd.revision})
	case 5, 6: // The attacker writes a sealed cell, preferably a cell for this version.
		var fits []sealedFor
		for _, s := range w.seen {
			if s.sequence == at.version.Sequence()+1 || w.chance(0.02) || s.id == id && w.chance(0.2) {
				fits = append(fits, s)
			}
		}
		if len(fits) == 0 {
			return
		}
		value = fits[w.r.IntN(len(fits))].value
	case 7:
		if value = slices.Clone(at.value); len(value) == 0 {
			return
		}
		value[w.r.IntN(len(value))] ^= 1 << w.r.IntN(8)
	case 8:
		gone = true
	}
	at.value, at.gone = value, gone
	at.version++
	w.note("slot %d: forged: %x, version %d", id, value, at.version)
}

func (w *world) note(format string, args ...any) {
	if w.trace {
		w.log = append(w.log, fmt.Sprintf("%5d %s", w.now, fmt.Sprintf(format, args...)))
	}
}

func (w *world) chance(p float64) bool { return w.r.Float64() < p }

func (w *world) spawn(gw *gateway, work func()) {
	t := &task{gw: gw, turn: make(chan struct{})}
	w.tasks = append(w.tasks, t)
	go func() {
		defer func() {
			t.over = true
			w.back <- struct{}{}
		}()
		<-t.turn
		if !t.killed {
			work()
		}
	}()
}

// yield gives up control until the task is chosen again.
func (w *world) yield() {
	t := w.self
	w.back <- struct{}{}
	<-t.turn
	if t.killed {
		runtime.Goexit()
	}
}

// checkAlive ends the current task if its gateway has crashed.
func (w *world) checkAlive() {
	if w.self.killed {
		runtime.Goexit()
	}
}

// run lets a task run until it gives up control.
func (w *world) run(t *task) {
	w.self = t
	t.turn <- struct{}{}
	<-w.back
	if t.over {
		w.tasks = slices.DeleteFunc(w.tasks, func(x *task) bool { return x == t })
	}
}

func (w *world) step() {
	w.now++
	var ready []*task
	for _, t := range w.tasks {
		if t.blocked == nil || !t.blocked() {
			ready = append(ready, t)
		}
	}
	if len(ready) > 0 {
		w.run(ready[w.r.IntN(len(ready))])
	}
	if len(w.late) > 0 && w.chance(0.04) {
		i := w.r.IntN(len(w.late))
		f := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		w.note("late")
		f()
	}
	w.check()
}

// stop ends all tasks of the world.
func (w *world) stop() {
	for _, t := range slices.Clone(w.tasks) {
		w.kill(t)
	}
}

func (w *world) kill(t *task) {
	t.killed = true
	for !t.over {
		w.run(t)
	}
}

// The following methods implement Runtime.

func (w *world) Go(work func()) {
	w.checkAlive()
	w.spawn(w.self.gw, work)
}

func (w *world) Wait(ctx context.Context, ch <-chan struct{}, d time.Duration) bool {
	w.checkAlive()
	t := w.self
	until := w.now + 1 + int(float64(d)/float64(perStep)*(0.5+w.r.Float64()))
	closed := func() bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	t.blocked = func() bool { return !closed() && ctx.Err() == nil && (d == 0 || w.now < until) }
	w.yield()
	t.blocked = nil
	return closed()
}

func (w *world) Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithoutCancel(ctx), func() {}
}

func (w *world) Limit(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (w *world) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return ctx, func() {}
}

func (w *world) Last(ctx context.Context) (context.Context, context.CancelFunc) { return w.Detach(ctx) }

func (w *world) Jitter() float64 { return w.r.Float64() }

// send delivers a request to its receiver, and reports whether the answer came back.
func (w *world) send(execute func()) bool {
	w.checkAlive()
	t := w.self
	t.inFlight = execute
	w.yield()
	t.inFlight = nil
	switch {
	case w.chance(w.faults / 3): // The request is lost or late.
		if w.chance(0.7) {
			w.late = append(w.late, execute)
		}
		w.yield()
		return false
	case w.chance(w.faults / 3): // The answer is lost.
		execute()
		w.yield()
		return false
	}
	execute()
	w.yield()
	return true
}

// The following functions simulate the placement.

// place repeatedly gives a key a slot, and removes the slot again.
func (w *world) place(key string) {
	for {
		w.Wait(context.Background(), nil, time.Duration(1+w.r.IntN(100))*perStep)
		id := w.nextID
		if w.without == "reuse of KEY_IDs" && len(w.freeIDs) > 0 {
			i := w.r.IntN(len(w.freeIDs))
			id, w.freeIDs = w.freeIDs[i], slices.Delete(w.freeIDs, i, i+1)
		} else {
			w.nextID++
		}
		at := w.slots[id]
		if at == nil {
			at = &simSlot{}
			w.slots[id] = at
		}
		at.version += 5
		at.gone = false
		at.value = []byte(slotcodec.Unsealed)
		made := at.version
		w.names[id] = placement.Key{Name: key, Entry: placement.Entry{ID: uint32(id), Version: uint64(made)}}
		out := make(chan struct{})
		w.evict[id] = out
		w.note("slot %d for %s: clear, version %d", id, key, at.version)
		w.yield()
		w.etcd.doTxn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp(placement.Name(simPrefix, key),
			fmt.Sprint(uint32(id), uint64(made)))}})
		w.Wait(context.Background(), out, time.Duration(1+w.r.IntN(1000))*perStep)
		delete(w.evict, id)
		entry := func() {
			w.etcd.doTxn(deleteTxn(placement.Name(simPrefix, key), ""))
		}
		if w.without == "order of removal" {
			entry()
			w.Wait(context.Background(), nil, time.Duration(1+w.r.IntN(50))*perStep)
		}
		// A removal first writes the tombstone, and then removes the entries.
		at.version++
		at.gone = true
		w.note("slot %d: tombstone, version %d", id, at.version)
		w.Wait(context.Background(), nil, time.Duration(1+w.r.IntN(50))*perStep)
		delete(w.slots, id)
		if w.without == "reuse of KEY_IDs" {
			w.freeIDs = append(w.freeIDs, id)
			w.slots[id] = at
		}
		w.yield()
		if w.without != "order of removal" {
			entry()
		}
		w.yield()
	}
}

// check checks an invariant that must always hold. If a slot that the directory names can be read,
// it has the same state of the key as etcd.
func (w *world) check() {
	if len(w.broken) > 0 {
		return
	}
	for _, key := range simKeys {
		kv := w.etcd.keys[placement.Name(simPrefix, key)]
		if kv == nil {
			continue
		}
		e := entryOf(kv)
		at := w.slots[wire.Key(e.ID)]
		if at == nil || at.gone {
			continue
		}
		plain, err := w.judge().open(placement.Key{Name: key, Entry: e}, at.value, at.version)
		if err != nil { // This slot answers no reader.
			continue
		}
		c, err := simCodec.c.Decode(plain)
		if err != nil {
			w.broken = append(w.broken, fmt.Sprintf("%d: the slot of %s has %x", w.now, key, at.value))
			continue
		}
		now := w.etcd.keys[key]
		switch {
		case c.Kind == slotcodec.Absent && now != nil,
			c.Kind == slotcodec.Value && (now == nil || now.ModRevision != c.Mod ||
				now.CreateRevision != c.Create || now.Version != c.Version || !bytes.Equal(now.Value, c.Value)):
			w.broken = append(w.broken, fmt.Sprintf("%d: the slot of %s has %s, and etcd has %v", w.now, key,
				w.describe(wire.Key(e.ID), at.value, at.version), now))
		}
	}
}
