package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// nodeWatcher is a program that watches keys. It has the events that the program received.
type nodeWatcher struct {
	t    *testing.T
	what string
	keys []string // the watched keys

	mu     sync.Mutex
	events map[string][]node.Event
}

// nodeWatchers are the watchers in a generation of keys.
type nodeWatchers struct {
	t    *testing.T
	all  []*nodeWatcher
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// watchAll starts a watcher for each key. At each node, it also starts a watcher of all keys by
// their common prefix.
func (r *nodeRun) watchAll(keys nodeKeys) *nodeWatchers {
	ctx, stop := context.WithCancel(r.Network.T.Context())
	all := &nodeWatchers{t: r.Network.T, stop: stop}
	begin := func(program int, what string, names []string, cfg node.WatchConfig) {
		w := &nodeWatcher{t: all.t, what: fmt.Sprintf("program %d's watch of %s", program, what), keys: names,
			events: map[string][]node.Event{}}
		all.all = append(all.all, w)
		all.wg.Go(func() { w.follow(ctx, r.programs[program], cfg) })
	}
	for i, name := range keys.names {
		begin(i%len(r.programs), name, []string{name}, node.WatchConfig{Keys: []string{name}})
	}
	prefix := keys.prefix()
	for program := range r.servers {
		begin(program, prefix, keys.names, node.WatchConfig{Prefix: &prefix})
	}
	return all
}

// follow records the events until ctx ends.
func (w *nodeWatcher) follow(ctx context.Context, p *node.Client, cfg node.WatchConfig) {
	var watch *node.Watch
	for {
		var err error
		if watch, err = p.Watch(ctx, cfg); err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		switch node.CodeOf(err) {
		case node.CodeUnavailable, node.CodeTimeout:
		default:
			w.t.Errorf("%s: %v", w.what, err)
			return
		}
	}
	defer watch.Close()
	for {
		e, err := watch.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.t.Errorf("%s: %v", w.what, err)
			}
			return
		}
		w.mu.Lock()
		w.events[e.Key] = append(w.events[e.Key], e)
		w.mu.Unlock()
	}
}

// reportNews logs how each server has found the events of its watchers since its last start. It
// finds them by notifications of its switch or by reads.
func (r *nodeRun) reportNews() {
	for _, s := range r.servers {
		news, err := s.News(r.Network.T.Context())
		r.Network.T.Logf("found by %s: %v %v", s.Socket, news, err)
	}
}

// last returns the newest version of a key in the watcher's events.
func (w *nodeWatcher) last(key string) node.Version {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.events[key]; len(all) > 0 {
		return all[len(all)-1].Version
	}
	return node.Never
}

// check waits until all watchers have received the newest versions, stops them, and compares their
// events with the keys' history. It returns the number of events.
func (all *nodeWatchers) check(keys nodeKeys, newest []wire.Version, history []linearizable.Call) (events int) {
	for _, w := range all.all {
		for _, key := range w.keys {
			want := newest[slices.Index(keys.names, key)]
			var got wire.Version
			poll.Until(all.t, 90*time.Second, fmt.Sprintf("%s tells the newest of %s, %v", w.what, key, want), func() bool {
				got, _ = versionOf(w.last(key))
				return got >= want
			}, func() string { return fmt.Sprintf("it has told %v", got) })
		}
	}
	all.stop()
	all.wg.Wait()
	states := statesOf(history)
	for _, w := range all.all {
		for which, key := range keys.names {
			events += len(w.events[key])
			if err := checkEvents(w.events[key], states[keys.keyID(which)]); err != nil {
				all.t.Errorf("%s: %s: %v", w.what, key, err)
			}
		}
	}
	return events
}

// nodeState is the state of a key at a version.
type nodeState struct {
	found bool
	value string
}

// statesOf returns the states of the keys' versions, according to a history.
func statesOf(history []linearizable.Call) map[uint32]map[wire.Version]nodeState {
	out := map[uint32]map[wire.Version]nodeState{}
	for _, x := range history {
		if out[x.Key] == nil {
			out[x.Key] = map[wire.Version]nodeState{}
		}
		switch {
		case x.Unknown:
		case x.Op == wire.Read || x.Failed:
			out[x.Key][x.Version] = nodeState{x.Found, x.Got}
		default:
			out[x.Key][x.Version] = nodeState{!x.Delete, x.Value}
		}
	}
	return out
}

// checkEvents checks that versions grow. If the key's state at the version of an event is known,
// the event must match that state.
func checkEvents(events []node.Event, states map[wire.Version]nodeState) error {
	for i, e := range events {
		if i > 0 && !e.Version.Newer(events[i-1].Version) {
			return fmt.Errorf("the version %s was told after %s", e.Version, events[i-1].Version)
		}
		v, err := versionOf(e.Version)
		if err != nil {
			return err
		}
		if known, ok := states[v]; ok && known != (nodeState{e.Found, string(e.Value)}) {
			return fmt.Errorf("at the version %s %v %q was told; the key had %+v", e.Version, e.Found, e.Value, known)
		}
	}
	return nil
}

// TestCheckEvents checks that checkEvents reports events that must not occur.
func TestCheckEvents(t *testing.T) {
	states := statesOf([]linearizable.Call{
		{Op: wire.Write, Value: "a", Version: wire.MakeVersion(1, 1)},
		{Op: wire.CAS, Failed: true, Value: "no", Found: true, Got: "b", Version: wire.MakeVersion(1, 3)},
		{Op: wire.Write, Unknown: true, Value: "c"},
		{Op: wire.Write, Delete: true, Version: wire.MakeVersion(2, 5)},
	})[0]
	event := func(version node.Version, value string) node.Event {
		return node.Event{Item: node.Item{Found: value != "", Value: []byte(value), Version: version}}
	}
	for _, c := range []struct {
		what   string
		events []node.Event
		may    bool
	}{
		{"all", []node.Event{event("0.0", ""), event("1.1", "a"), event("1.3", "b"), event("1.4", "c"), event("2.5", "")}, true},
		{"the newest", []node.Event{event("2.5", "")}, true},
		{"backwards", []node.Event{event("1.3", "b"), event("1.1", "a")}, false},
		{"twice", []node.Event{event("1.3", "b"), event("1.3", "b")}, false},
		{"another value", []node.Event{event("1.3", "no")}, false},
		{"what was deleted", []node.Event{event("2.5", "b")}, false},
	} {
		if err := checkEvents(c.events, states); (err == nil) != c.may {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
