package watchrules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// The simulation has some chains with keys, a network that loses, duplicates and reorders
// notifications, and watchers. The watchers come and go, and may be slow. Time proceeds in steps of
// one millisecond.

// state is a committed state of a key. The test compares it with reports.
type state struct {
	life    int
	version wire.Version
	found   bool
	value   string
	at      time.Duration
}

type simKey struct {
	name    store.Key
	id      wire.Key
	history []state // the committed states in order; the last state is the newest
}

func (k *simKey) newest() state { return k.history[len(k.history)-1] }

// had reports whether the name ever had a version, in any of its lives. Such a version is not used
// again. So a watcher that returns can name the version that it has.
func (k *simKey) had(v wire.Version) bool {
	return v != 0 && slices.ContainsFunc(k.history, func(s state) bool { return s.version == v })
}

type notification struct {
	at time.Duration
	id wire.Key
	state
}

type simRead struct {
	ticket Ticket
	key    *simKey
	found  state // the result of the read, which is the newest state at some moment during the read
	id     wire.Key
	looked bool
	look   time.Duration
	end    time.Duration
	failed bool
}

// following is what a watcher should learn about a key.
type following struct {
	since    time.Duration
	told     []state // the states that were reported
	has      bool
	after    wire.Version
	position int // index, in the key's history, of the state that was reported last; -1 if none was
	version  wire.Version
}

type simWatcher struct {
	id      Watcher
	slow    int // interval in milliseconds at which the watcher takes changes
	follows map[*simKey]*following
}

type world struct {
	random   *rand.Rand
	m        *Machine
	now      time.Duration
	keys     []*simKey
	epochs   []uint16 // the epoch of each chain
	next     wire.Key
	lossy    []int // percentage of notifications that are lost, for each chain
	sent     []notification
	reads    []*simRead
	watchers []*simWatcher
	ready    map[Watcher]bool
	failing  int // percentage of reads that fail
	count    struct{ reads, notified, told int }
	broken   []string
}

const simSuspect = 50 * time.Millisecond

// simConfig is the configuration for the simulation. Its Round is far longer than other repairs
// take in a run, so that the test detects a mutant without these repairs.
var simConfig = Config{Round: 1000 * time.Millisecond, Unhelped: 150 * time.Millisecond, Retry: 5 * time.Millisecond,
	Suspect: simSuspect, Reads: 4}

// repair is the maximum time until reads of all keys have begun and ended, if none fails.
const repair = 60 * time.Millisecond

func newWorld(seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 17)), m: New(simConfig), ready: map[Watcher]bool{}}
	for range 2 {
		w.epochs = append(w.epochs, 1)
		w.lossy = append(w.lossy, 0)
	}
	for i := range 6 {
		k := &simKey{name: store.Key{Namespace: "n", Name: fmt.Sprint("k", i)}, history: []state{{}}}
		w.keys = append(w.keys, k)
		if i > 0 { // one key does not exist at first
			w.begin(k, i%2)
		}
	}
	return w
}

func (w *world) breaks(format string, a ...any) {
	w.broken = append(w.broken, fmt.Sprintf("at %v: ", w.now)+fmt.Sprintf(format, a...))
}

// begin starts a new life of a name, in the given chain.
func (w *world) begin(k *simKey, chain int) {
	w.next++
	k.id = wire.Key(uint32(chain+1)<<24) | w.next
	version := wire.MakeVersion(w.epochs[chain], uint64(w.random.IntN(3)))
	for k.had(version) {
		version++
	}
	k.history = append(k.history, state{k.newest().life + 1, version, false, "", w.now})
	w.commit(k)
}

// offset returns the difference between the versions of a name and the versions of its KEY_ID.
func offset(life int) wire.Version { return wire.Version(life) * 3 << 47 }

// commit commits a new state of a key.
func (w *world) commit(k *simKey) {
	if k.id == 0 {
		return
	}
	chain := int(k.id.Chain()) - 1
	last := k.newest()
	skip := uint64(1)
	if w.random.IntN(20) == 0 {
		skip = 2 // a version was assigned, but its write was lost or replaced by a newer write
	}
	version := wire.MakeVersion(w.epochs[chain], last.version.Sequence()+skip)
	for k.had(version) {
		version++
	}
	s := state{last.life, version, w.random.IntN(6) > 0, fmt.Sprint(k.name.Name, "/", last.life, "/", version), w.now}
	if !s.found {
		s.value = ""
	}
	k.history = append(k.history, s)
	for range 1 + w.random.IntN(5)/4 {
		if w.random.IntN(100) >= w.lossy[chain] {
			delay := time.Duration(w.random.IntN(3)) * time.Millisecond
			if w.random.IntN(10) == 0 {
				delay += time.Duration(w.random.IntN(40)) * time.Millisecond
			}
			w.sent = append(w.sent, notification{w.now + delay, k.id, s})
		}
	}
}

// happen makes one random event happen.
func (w *world) happen() {
	r := w.random
	switch n := r.IntN(100); {
	case n < 50:
		w.commit(w.keys[r.IntN(len(w.keys))])
	case n < 53: // a failover happens: the epoch changes, and notifications are lost for a while
		chain := r.IntN(len(w.epochs))
		w.epochs[chain]++
		w.lossy[chain] = 100
	case n < 62:
		w.lossy[r.IntN(len(w.lossy))] = []int{0, 0, 10, 60, 100}[r.IntN(5)]
	case n < 64: // a key is moved to another chain, removed or created
		k := w.keys[r.IntN(len(w.keys))]
		if k.id != 0 && r.IntN(2) == 0 {
			k.id = 0
			k.history = append(k.history, state{k.newest().life + 1, 0, false, "", w.now})
		} else {
			w.begin(k, r.IntN(len(w.epochs)))
		}
	case n < 66:
		w.failing = []int{0, 0, 30, 100}[r.IntN(4)]
	case n < 76 && len(w.watchers) < 5:
		id := Watcher(r.IntN(1000))
		if !slices.ContainsFunc(w.watchers, func(x *simWatcher) bool { return x.id == id }) {
			w.watchers = append(w.watchers, &simWatcher{id, 1 + r.IntN(60)*r.IntN(2), map[*simKey]*following{}})
		}
	case n < 92 && len(w.watchers) > 0:
		w.follow(w.watchers[r.IntN(len(w.watchers))], w.keys[r.IntN(len(w.keys))])
	case n < 94 && len(w.watchers) > 0:
		i := r.IntN(len(w.watchers))
		w.m.Leave(w.watchers[i].id)
		w.watchers = slices.Delete(w.watchers, i, i+1)
	case n < 96 && len(w.watchers) > 0:
		x, k := w.watchers[r.IntN(len(w.watchers))], w.keys[r.IntN(len(w.keys))]
		w.m.Unfollow(x.id, k.name)
		delete(x.follows, k)
	}
}

func (w *world) follow(x *simWatcher, k *simKey) {
	if x.follows[k] != nil {
		return
	}
	f := &following{since: w.now, position: -1}
	if w.random.IntN(3) == 0 { // the watcher returns with a version that it got earlier
		f.position = w.random.IntN(len(k.history))
		f.has, f.after = true, k.history[f.position].version
	}
	x.follows[k] = f
	w.m.Follow(w.now, x.id, k.name, f.after, f.has)
}

// step advances the time by one millisecond.
func (w *world) step() {
	w.now += time.Millisecond
	w.random.Shuffle(len(w.sent), func(i, j int) { w.sent[i], w.sent[j] = w.sent[j], w.sent[i] })
	w.sent = slices.DeleteFunc(w.sent, func(n notification) bool {
		if n.at > w.now {
			return false
		}
		w.m.Notified(w.now, n.id, n.version-offset(n.life), n.found, []byte(n.value))
		w.count.notified++
		return true
	})
	w.reads = slices.DeleteFunc(w.reads, func(r *simRead) bool {
		if !r.looked && r.look <= w.now {
			r.looked, r.found, r.id = true, r.key.newest(), r.key.id
		}
		if r.end > w.now {
			return false
		}
		if r.failed {
			w.m.Failed(w.now, r.ticket)
			return true
		}
		item := store.Item{Key: r.key.name, Found: r.found.found, Version: r.found.version}
		if item.Found {
			item.Value = []byte(r.found.value)
		}
		w.m.Ended(w.now, r.ticket, Reading{Item: item, ID: r.id, Offset: offset(r.found.life), Helped: r.id != 0})
		return true
	})
	w.drive()
	for _, x := range w.watchers {
		if w.ready[x.id] && w.random.IntN(x.slow) == 0 {
			w.take(x)
		}
	}
}

// drive executes the reads that the machine requests.
func (w *world) drive() {
	if next, ok := w.m.Next(); ok && next > w.now {
		if extra := w.m.Begin(w.now); len(extra) > 0 {
			w.breaks("it said that there is nothing to read before %v, and reads", next)
		}
	}
	for _, r := range w.m.Begin(w.now) {
		i := slices.IndexFunc(w.keys, func(k *simKey) bool { return k.name == r.Key })
		if !slices.ContainsFunc(w.watchers, func(x *simWatcher) bool { return x.follows[w.keys[i]] != nil }) {
			w.breaks("%s is read, and nobody watches it", r.Key.Name)
		}
		look := w.now + time.Duration(w.random.IntN(4))*time.Millisecond
		w.reads = append(w.reads, &simRead{ticket: r.Ticket, key: w.keys[i], look: look,
			end: look + time.Duration(w.random.IntN(6))*time.Millisecond, failed: w.random.IntN(100) < w.failing})
		w.count.reads++
	}
	if len(w.reads) > simConfig.Reads {
		w.breaks("%d reads at once", len(w.reads))
	}
	for _, id := range w.m.Ready() {
		w.ready[id] = true
	}
}

// take makes a watcher take changes. It checks that each change was committed after the watcher's
// last report.
func (w *world) take(x *simWatcher) {
	changes, more := w.m.Take(x.id, 1+w.random.IntN(4))
	w.ready[x.id] = more
	for _, c := range changes {
		w.count.told++
		i := slices.IndexFunc(w.keys, func(k *simKey) bool { return k.name == c.Key })
		k := w.keys[i]
		f := x.follows[k]
		if f == nil {
			w.breaks("watcher %d is told of %s, which it does not follow", x.id, c.Key.Name)
			continue
		}
		// The reported state must be a committed state. It must come after the last reported state
		// in the order of commits. It must have been the newest state at some time since the
		// watcher came.
		at := -1
		for j := f.position + 1; j < len(k.history); j++ {
			s := k.history[j]
			// A key that no longer exists must be reported at a version above the last known
			// version.
			gone := !s.found && s.version == 0 && !c.Found && (f.position < 0 || c.Version >= f.version)
			if gone || s.version == c.Version && s.found == c.Found && s.value == string(c.Value) {
				at = j
			}
		}
		if at < 0 {
			w.breaks("watcher %d is told %s %v %q after %v: older, or never committed", x.id, c.Key.Name, c.Version, c.Value,
				k.history[max(f.position, 0)])
			continue
		}
		if at+1 < len(k.history) && k.history[at+1].at < f.since {
			w.breaks("watcher %d, which came at %v, is told %s %v: overtaken at %v", x.id, f.since, c.Key.Name,
				c.Version, k.history[at+1].at)
		}
		// The report must count at least those states of the same life that were committed in
		// between.
		left := uint64(0)
		for j := f.position + 1; j < at && f.position >= 0 && k.history[f.position].life == k.history[at].life; j++ {
			if k.history[j].life == k.history[at].life {
				left++
			}
		}
		if c.Overtaken < left {
			w.breaks("%s %v: %d are said to be overtaken, and %d were", c.Key.Name, c.Version, c.Overtaken, left)
		}
		f.position, f.version = at, c.Version
		f.told = append(f.told, k.history[at])
	}
}

// settle advances the time without commits, and checks that every watcher then has the newest
// state.
func (w *world) settle(within time.Duration, why string) {
	for end := w.now + within; w.now < end; {
		w.step()
	}
	for _, x := range w.watchers {
		x.slow = 1
	}
	for range 40 {
		w.step()
	}
	for _, x := range w.watchers {
		for k, f := range x.follows {
			s := k.newest()
			known := f.position >= 0 && w.same(k.history[f.position], s)
			if !known {
				w.breaks("%s: watcher %d was not told of %s %v (life %d), but only of %d", why, x.id, k.name.Name, s.version,
					s.life, f.position)
			}
		}
	}
}

// same reports whether two states look the same to a watcher.
func (w *world) same(a, b state) bool {
	return a.version == b.version && a.found == b.found && a.value == b.value ||
		!a.found && !b.found && b.version <= a.version
}

func simulate(seed uint64) *world {
	w := newWorld(seed)
	for range 3 {
		for range 150 {
			for range w.random.IntN(3) {
				w.happen()
			}
			w.step()
		}
		// From now on all messages are lost, including messages under way. So only periodic reads
		// can find the newest states.
		w.failing, w.sent = 0, nil
		w.settle(simConfig.Round+repair, "after a round")
		// A burst of notifications is lost. Then one notification of each chain arrives, and
		// reveals the loss.
		if len(w.watchers) > 0 {
			w.burst()
		}
	}
	return w
}

// burst loses all notifications of some commits, and then makes the network reliable. The next
// notification of each chain reveals the loss. So every change must be reported long before the
// next round.
func (w *world) burst() {
	x := w.watchers[0]
	for _, k := range w.keys {
		w.follow(x, k)
	}
	w.settle(simConfig.Unhelped+repair, "followed")
	// There are two cases. If `failover` is false, a gap in the sequence of a key reveals the loss
	// of its notification. If `failover` is true, another key is notified, and its new epoch
	// reveals the loss.
	failover := w.random.IntN(2) == 0
	first := map[uint8]*simKey{}
	for _, k := range w.keys {
		if k.id != 0 && first[k.id.Chain()] == nil {
			first[k.id.Chain()] = k
		}
	}
	for i := range w.lossy {
		w.lossy[i] = 100
	}
	for _, k := range w.keys {
		if !failover || first[k.id.Chain()] != k {
			w.commit(k)
		}
	}
	for i := range w.lossy {
		w.lossy[i] = 0
		if failover {
			w.epochs[i]++
		}
	}
	for _, k := range w.keys {
		if first[k.id.Chain()] != k {
			continue
		}
		w.commit(k)
	}
	w.settle(simSuspect+2*repair, "after a gap")
}

func TestSimulation(t *testing.T) {
	reads, notified, told := 0, 0, 0
	for seed := range uint64(seeds) {
		w := simulate(seed)
		for _, b := range w.broken {
			t.Errorf("seed %d: %s", seed, b)
		}
		if t.Failed() {
			return
		}
		reads, notified, told = reads+w.count.reads, notified+w.count.notified, told+w.count.told
	}
	t.Logf("%d seeds: %d reads, %d notifications, %d told", seeds, reads, notified, told)
	if told < seeds || reads < seeds || notified < seeds {
		t.Error("hardly anything happened")
	}
}

const seeds = 80
