package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// Result is what came of a seed.
type Result struct {
	Seed       uint64
	Network    string // its shape
	Violations []Violation
	Coverage   Coverage
	Calls      int           // that clients made and that say something
	Packets    int           // that switches processed
	Took       time.Duration // simulated
}

// How long things may take once faults have stopped.
const (
	readyWithin = 8 * time.Second        // the chain is whole; draining it may take 5 s
	cleanWithin = 2 * time.Second        // every key is clean at every member
	probeWithin = time.Second            // every key can be read and changed
	longest     = 300 * time.Millisecond // no frame is on its way longer
)

// Run runs a seed. onLine gets its timeline; nil: nobody wants it. The same seed does the same,
// with a timeline and without.
func (s *Simulator) Run(seed uint64, onLine func(Line)) (*Result, error) {
	p := newSchedule(seed)
	w, err := newWorld(s.program, s.removed, &s.engines, p.shape, seed, onLine)
	if err != nil {
		return nil, err
	}
	w.lease, w.drift, w.controlDelay, w.slowDisk = p.lease, p.drift, p.control, p.slowDisk
	if p.auto {
		w.patience = p.patience
	}
	if seed%2 == 1 {
		w.shortLease, w.shortAfter = p.lease/4, p.lease/2
	}
	for _, n := range w.nodes {
		n.rate = w.clockRate()
	}
	w.slewClocks(seed)
	defer w.endTasks()
	w.targets(seed)
	w.comebacks(seed)
	r := &Result{Seed: seed, Network: p.shape.name, Coverage: w.cover}
	w.attacked = newDice(seed, diceHostile).chance(0.5)
	w.drawWorker(seed)
	if err := w.setUp(seed, p.keys, p.keys); err != nil {
		r.Violations = []Violation{{Kind: NotSettled, What: "before any fault: " + err.Error()}}
		return r, nil
	}
	w.disorders(seed)
	w.curious(seed)
	w.disk = newDice(seed, diceDisk)
	w.badDisk, w.powerCuts = pick(w.disk, 0, 0, 0.05), pick(w.disk, 0, 0.5)
	end := w.loop.now + p.duration
	w.network.conditions = p.net
	for range p.clients {
		w.newWorker(p, p.calls/p.clients)
	}
	if !p.auto {
		w.operator(p)
	}
	if slices.Contains(p.kinds, recoverMember) {
		w.recoveries()
	}
	if w.moving = slices.Contains(p.kinds, moveKey); w.moving {
		w.moves()
	}
	if w.removed.redriveThawed {
		w.driveFrozen()
	}
	if w.attacked {
		w.attack(seed)
	}
	w.work(seed)
	w.watches(seed)
	w.faults(p, end)
	w.leaves(p, seed, end)
	w.takes(p, seed, end)
	w.suspensions(p, seed, end)
	w.starvations(p, seed, end)
	w.wipes(p, seed, end)
	w.keyless(p, seed, end)
	w.loop.run(end, nil)
	w.mend()
	r.Violations = w.settle()
	r.Violations = append(w.history.check(w.peeks.guesses), r.Violations...)
	r.Violations = append(r.Violations, versionsOfNames(w.history.ops, w.incarnations, w.offsets)...)
	r.Violations = append(r.Violations, w.network.storms()...)
	r.Violations = append(r.Violations, w.intrusions...)
	r.Violations = append(r.Violations, w.contradicted...)
	for _, n := range w.nodes {
		if n.alive {
			n.count()
		}
	}
	for _, c := range w.clients {
		st := c.m.Stats()
		w.cover.add("clients.retransmitted", int(st.Retransmits))
		w.cover.add("clients.refused", int(st.Refusals))
		w.cover.add("clients.strays", int(st.Strays))
	}
	r.Calls, r.Packets, r.Took = len(w.history.ops), w.packets, w.loop.now
	return r, nil
}

// targets says which switches show their registers: in half of the runs all do, in others none or
// some.
func (w *world) targets(seed uint64) {
	d := newDice(seed, diceTargets)
	without := pick(d, 0, 0, 0.5, 1)
	for _, n := range w.nodes {
		n.noRegisters = d.chance(without)
	}
}

// setUp starts the switches and a controller, forms the chain and places the first keys.
func (w *world) setUp(seed uint64, keys, placed int) error {
	for _, n := range w.nodes {
		n.start()
	}
	w.litter(seed)
	for i := range keys {
		w.keys = append(w.keys, wire.MakeKey(chainID, uint32(i+1)))
	}
	place := w.keys[:placed]
	if w.attacked {
		place = append(slices.Clone(place), sharedKey)
	}
	s := w.startController()
	w.loop.run(w.loop.now+2*time.Second, w.serving)
	if !w.serving() {
		return fmt.Errorf("the chain did not form: %s", s.status.Reason)
	}
	if len(place) == 0 {
		return nil
	}
	done := false
	var failed error
	s.done = func(_ chain.OpID, err error) { done, failed = true, err }
	s.addKeys(place)
	w.loop.run(w.loop.now+2*time.Second, func() bool {
		return done && !slices.ContainsFunc(w.store.dir.Keys, func(k keyspace.Key) bool {
			return k.State != keyspace.Placed
		})
	})
	s.done = nil
	if !done || failed != nil {
		return fmt.Errorf("the keys were not placed: %v", failed)
	}
	return nil
}

// Simulator runs seeds of one program, one after the other. Two goroutines need two.
type Simulator struct {
	program *Program
	removed removed
	engines engines
}

// New makes a simulator of a program.
func New(p *Program) *Simulator { return &Simulator{program: p} }
