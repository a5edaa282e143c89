package sim

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/netcraq/netcraq/controlplane/controller/plan"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// Watches. In half of the runs a server at some host has itself told of what is committed of the
// keys, now of all of them and now of none. The rules by which a server tells its programs are
// nodeapi/watch/core's, and proven there; they build on what is looked at here: what a NOTIFY says
// was committed before it came, so no read that begins after finds less (ahead), and nobody sees
// another value of that version; that there are watches harms no member; and when all faults have
// ended, each commit is told.

// The server's UDP port, and for how long it is tried that a commit is told when nothing is wrong
// any more.
const (
	watchPort  = 30001
	toldWithin = 2 * time.Second
)

// watcher is the server.
type watcher struct {
	h     *topology.Host
	heard map[wire.Key]wire.Version // by name, the newest
}

// watches has a server watch, in half of the runs.
func (w *world) watches(seed uint64) {
	d := newDice(seed, diceWatch)
	if !d.chance(0.5) {
		return
	}
	w.watcher = &watcher{h: pick(d, w.shape.friends()...), heard: map[wire.Key]wire.Version{}}
	var renew func()
	renew = func() {
		if s := w.controller(); s.alive && !s.deposed && s.m != nil {
			s.watch(w.mended || !d.chance(0.1))
		}
		w.loop.after(d.between(5*time.Millisecond, 50*time.Millisecond), renew)
	}
	renew()
}

// watch has a controller note what the server watches: all keys that there are, or none.
func (s *shell) watch(all bool) {
	keys := map[wire.Key]string{}
	for _, k := range s.w.keys {
		id := s.w.id(k)
		placed, ok := s.dir.ByID(id)
		hidden := !ok || placed.Hidden() && !s.w.removed.watched
		if all && !hidden && s.w.incarnations[id].name == k {
			keys[id] = nameOf(k)
		}
	}
	if maps.Equal(keys, s.watching) {
		return
	}
	s.watching = keys
	for _, d := range s.devices {
		s.watchSoon(d)
	}
}

// watchSoon has a switch hold what is watched, after all else that it is given to do. It is the
// counterpart of the controller's writeWatches, in the same steps.
func (s *shell) watchSoon(d *device) {
	if d.watchConf == nil || d.watchWaits || s.w.watcher == nil {
		return
	}
	d.watchWaits = true
	d.submit(func(done func()) {
		d.watchWaits = false
		if d.watchConf == nil {
			done()
			return
		}
		n := d.n
		host := s.w.watcher.h
		want := s.w.shape.layout.Watch(s.w.shape.topo.Chains[0], n.sw, *d.watchConf,
			plan.Watches{host.IP: {Address: host.IP, Port: watchPort, Keys: s.watching}})
		var steps []step
		add := func(do func()) { steps = append(steps, step{writes, "watches", do}) }
		if !reflect.DeepEqual(n.watched.Groups, want.Groups) {
			add(func() { n.setWatchChain(nil) })
			add(func() { n.setWatchGroups(want.Groups) })
		}
		add(func() { n.setWatchKeys(want.Keys) })
		add(func() { n.setWatchChain(want.Chain) })
		d.each(steps, func(error) { done() }) // what is lost with the connection is written in the next
	})
}

// watchFrom is the configuration that watches are written for from now on.
func (d *device) watchFrom(conf chain.Config) {
	if d.watchConf == nil || !d.s.w.removed.watchesStay {
		d.watchConf = &conf
	}
	d.s.watchSoon(d)
}

func (n *node) setWatchChain(entries []p4rt.Entry) {
	n.changeEntries(n.watched.Chain, entries)
	n.watched.Chain = entries
}

func (n *node) setWatchKeys(entries []p4rt.Entry) {
	n.changeEntries(n.watched.Keys, entries)
	n.watched.Keys = entries
}

// changeEntries makes the switch hold some entries for others.
func (n *node) changeEntries(have, want []p4rt.Entry) {
	for _, e := range have {
		n.unset(n.w.program.encode(e))
	}
	for _, e := range want {
		n.set(n.w.program.encode(e))
	}
}

func (n *node) setWatchGroups(groups []p4rt.Group) {
	for _, g := range n.watched.Groups {
		must(n.p.SetMulticastGroup(g.ID, nil))
	}
	for _, g := range groups {
		n.setGroup(g)
	}
	n.watched.Groups = groups
}

// notified takes what the switch has sent to the server.
func (w *world) notified(payload []byte) {
	var p wire.Packet
	if err := p.Unmarshal(payload, profile); err != nil {
		panic(fmt.Sprintf("a switch told the server what is no packet: %v", err))
	}
	of, known := w.incarnations[p.Key]
	if p.Op != wire.Notify || !known || p.Session != 0 || p.Request != 0 {
		w.intrusions = append(w.intrusions, Violation{Kind: Intrusion, Key: p.Key,
			What: fmt.Sprintf("the server that watches was told %v", &p)})
		return
	}
	version := w.composed(p.Key, p.Version)
	w.cover.add("watcher.told", 1)
	w.watcher.heard[of.name] = max(w.watcher.heard[of.name], version)
	w.history.add(operationOf{client: "watcher", key: of.name, op: wire.Read, eventual: true, notified: true,
		value: string(p.Value), found: !p.Tombstone, version: version, under: of.number,
		call: w.loop.now, end: w.loop.now})
}

// allTold says which key's commits are not told to the server that watches, when nothing is wrong.
func (w *world) allTold(write func(key wire.Key) (version wire.Version, ok bool)) (out []Violation) {
	if w.watcher == nil {
		return nil
	}
	for _, k := range w.keys {
		told := false
		for end := w.loop.now + toldWithin; !told && w.loop.now < end; {
			version, ok := write(k)
			w.loop.run(w.loop.now+20*time.Millisecond, func() bool { return ok && w.watcher.heard[k] >= version })
			told = ok && w.watcher.heard[k] >= version
		}
		if !told {
			out = append(out, Violation{Kind: NotTold, Key: k, What: fmt.Sprintf("nothing that is committed is told to the server that watches, after %v", toldWithin)})
		}
	}
	return out
}
