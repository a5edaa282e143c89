package world

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/netcraq/netcraq/controlplane/controller/tableplan"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// In half of the runs, a server at some host watches the committed writes of all keys at times, and
// of no keys at other times. The server's own rules are in nodeapi/watch/watchrules, and proven
// there. They rely on the following properties, which are checked here. A NOTIFY's version was
// committed before the NOTIFY arrived, so no read that begins later finds a lower version (ahead).
// Nobody sees another value of that version. Watches harm no member. When all faults have ended,
// every commit is notified.

// These constants are the server's UDP port, and the time within which a commit must reach the
// server when all faults have ended.
const (
	watchPort  = 30001
	toldWithin = 2 * time.Second
)

// watcher is the server that watches keys.
type watcher struct {
	h     *topology.Host
	heard map[wire.Key]wire.Version // for each name, the newest version of which the server was notified
}

// In half of the runs, Watches starts a watching server.
func (w *World) Watches(seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceWatch)
	if !d.Chance(0.5) {
		return
	}
	w.watcher = &watcher{h: clockwork.Pick(d, w.Shape.Friends()...), heard: map[wire.Key]wire.Version{}}
	var renew func()
	renew = func() {
		if s := w.Controller(); s.Alive && !s.Deposed && s.Machine != nil {
			s.watch(w.Mended || !d.Chance(0.1))
		}
		w.Loop.After(d.Between(5*time.Millisecond, 50*time.Millisecond), renew)
	}
	renew()
}

// watch sets which keys the server watches: all present keys, or none.
func (s *Shell) watch(all bool) {
	keys := map[wire.Key]string{}
	for _, k := range s.World.Keys {
		id := s.World.ID(k)
		placed, ok := s.dir.ByID(id)
		hidden := !ok || placed.Hidden() && !s.World.Without.Watched
		if all && !hidden && s.World.Incarnations[id].Name == k {
			keys[id] = shapes.NameOf(k)
		}
	}
	if maps.Equal(keys, s.watching) {
		return
	}
	s.watching = keys
	for _, d := range s.Devices {
		s.watchSoon(d)
	}
}

// watchSoon updates the watches at a switch, after all jobs that it already has. It is the
// counterpart of the controller's writeWatches, with the same steps.
func (s *Shell) watchSoon(d *Device) {
	if d.watchConf == nil || d.watchWaits || s.World.watcher == nil {
		return
	}
	d.watchWaits = true
	d.submit(func(done func()) {
		d.watchWaits = false
		if d.watchConf == nil {
			done()
			return
		}
		n := d.Node
		host := s.World.watcher.h
		want := s.World.Shape.Layout.Watch(s.World.Shape.Topology.Chains[0], n.Switch, *d.watchConf,
			tableplan.Watches{host.IP: {Address: host.IP, Port: watchPort, Keys: s.watching}})
		var steps []step
		add := func(do func()) { steps = append(steps, step{Writes, "watches", do}) }
		if !reflect.DeepEqual(n.watched.Groups, want.Groups) {
			add(func() { n.setWatchChain(nil) })
			add(func() { n.setWatchGroups(want.Groups) })
		}
		add(func() { n.setWatchKeys(want.Keys) })
		add(func() { n.setWatchChain(want.Chain) })
		d.each(steps, func(error) { done() }) // if the connection ends, the next connection writes the watches again
	})
}

// watchFrom sets the configuration for which watches are written from now on.
func (d *Device) watchFrom(conf chain.Config) {
	if d.watchConf == nil || !d.Shell.World.Without.WatchesStay {
		d.watchConf = &conf
	}
	d.Shell.watchSoon(d)
}

func (n *Node) setWatchChain(entries []p4rt.Entry) {
	n.changeEntries(n.watched.Chain, entries)
	n.watched.Chain = entries
}

func (n *Node) setWatchKeys(entries []p4rt.Entry) {
	n.changeEntries(n.watched.Keys, entries)
	n.watched.Keys = entries
}

// changeEntries replaces some entries of the switch by others.
func (n *Node) changeEntries(have, want []p4rt.Entry) {
	for _, e := range have {
		n.Unset(n.w.Program.Encode(e))
	}
	for _, e := range want {
		n.Set(n.w.Program.Encode(e))
	}
}

func (n *Node) setWatchGroups(groups []p4rt.Group) {
	for _, g := range n.watched.Groups {
		Must(n.Pipeline.SetMulticastGroup(g.ID, nil))
	}
	for _, g := range groups {
		n.setGroup(g)
	}
	n.watched.Groups = groups
}

// notified handles a packet from the switch to the server.
func (w *World) notified(payload []byte) {
	var p wire.Packet
	if err := p.Unmarshal(payload, compiled.Profile); err != nil {
		panic(fmt.Sprintf("a switch told the server what is no packet: %v", err))
	}
	of, known := w.Incarnations[p.Key]
	if p.Op != wire.Notify || !known || p.Session != 0 || p.Request != 0 {
		w.Intrusions = append(w.Intrusions, judge.Violation{Kind: judge.Intrusion, Key: p.Key,
			What: fmt.Sprintf("the server that watches was told %v", &p)})
		return
	}
	version := w.composed(p.Key, p.Version)
	w.Cover.Count("watcher.told", 1)
	w.watcher.heard[of.Name] = max(w.watcher.heard[of.Name], version)
	w.History.Add(judge.Call{Client: "watcher", Key: of.Name, Op: wire.Read, Eventual: true, Notified: true,
		Value: string(p.Value), Found: !p.Tombstone, Version: version, Under: of.Number,
		Begin: w.Loop.Now, End: w.Loop.Now})
}

// AllTold checks that each key's commits reach the watching server when there are no faults.
func (w *World) AllTold(write func(key wire.Key) (version wire.Version, ok bool)) (out []judge.Violation) {
	if w.watcher == nil {
		return nil
	}
	for _, k := range w.Keys {
		told := false
		for end := w.Loop.Now + toldWithin; !told && w.Loop.Now < end; {
			version, ok := write(k)
			w.Loop.Run(w.Loop.Now+20*time.Millisecond, func() bool { return ok && w.watcher.heard[k] >= version })
			told = ok && w.watcher.heard[k] >= version
		}
		if !told {
			out = append(out, judge.Violation{Kind: judge.NotTold, Key: k, What: fmt.Sprintf("nothing that is committed is told to the server that watches, after %v", toldWithin)})
		}
	}
	return out
}
