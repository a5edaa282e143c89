package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/trouble"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// Result is the result of a seed's run.
type Result struct {
	Seed       uint64
	Network    string // name of the network's shape
	Violations []judge.Violation
	Coverage   logbook.Coverage
	Calls      int           // number of clients' calls that carry information
	Packets    int           // number of packets that switches processed
	Took       time.Duration // simulated time of the run
}

// These are time limits that begin when the faults have stopped.
const (
	readyWithin = 8 * time.Second        // until the chain is complete and ready; draining the chain may take 5 s
	cleanWithin = 2 * time.Second        // until every key is clean at every member
	probeWithin = time.Second            // until every key can be read and changed
	longest     = 300 * time.Millisecond // the longest time that a frame travels
)

// Run runs a seed. onLine gets each line of the run's timeline. If onLine is nil, there is no
// timeline. A seed gives the same run with and without a timeline.
func (s *Simulator) Run(seed uint64, onLine func(logbook.Line)) (*Result, error) {
	p := trouble.NewSchedule(seed)
	w, err := world.New(s.program, s.removed, &s.engines, p.Shape, seed, onLine)
	if err != nil {
		return nil, err
	}
	w.Lease, w.Drift, w.ControlDelay, w.SlowDisk = p.Lease, p.Drift, p.Control, p.SlowDisk
	if p.Auto {
		w.Patience = p.Patience
	}
	if seed%2 == 1 {
		w.ShortLease, w.ShortAfter = p.Lease/4, p.Lease/2
	}
	for _, n := range w.Nodes {
		n.Rate = w.ClockRate()
	}
	w.SlewClocks(seed)
	defer w.EndTasks()
	targets(w, seed)
	w.Comebacks(seed)
	r := &Result{Seed: seed, Network: p.Shape.Name, Coverage: w.Cover}
	w.Attacked = clockwork.NewDice(seed, clockwork.DiceHostile).Chance(0.5)
	trouble.DrawWorker(w, seed)
	if err := setUp(w, seed, p.Keys, p.Keys); err != nil {
		r.Violations = []judge.Violation{{Kind: judge.NotSettled, What: "before any fault: " + err.Error()}}
		return r, nil
	}
	w.Disorders(seed)
	w.Curious(seed)
	w.Disk = clockwork.NewDice(seed, clockwork.DiceDisk)
	w.BadDisk, w.PowerCuts = clockwork.Pick(w.Disk, 0, 0, 0.05), clockwork.Pick(w.Disk, 0, 0.5)
	end := w.Loop.Now + p.Duration
	w.Network.Conditions = p.Net
	for range p.Clients {
		trouble.NewWorker(w, p, p.Calls/p.Clients)
	}
	if !p.Auto {
		trouble.Operator(w, p)
	}
	if slices.Contains(p.Kinds, trouble.RecoverMember) {
		trouble.Recoveries(w)
	}
	if w.Moving = slices.Contains(p.Kinds, trouble.MoveKey); w.Moving {
		w.Moves()
	}
	if w.Without.RedriveThawed {
		w.DriveFrozen()
	}
	if w.Attacked {
		trouble.Attack(w, seed)
	}
	trouble.Work(w, seed)
	w.Watches(seed)
	trouble.Faults(w, p, end)
	trouble.Leaves(w, p, seed, end)
	trouble.Takes(w, p, seed, end)
	trouble.Suspensions(w, p, seed, end)
	trouble.Starvations(w, p, seed, end)
	trouble.Wipes(w, p, seed, end)
	trouble.Keyless(w, p, seed, end)
	w.Loop.Run(end, nil)
	mend(w)
	r.Violations = settle(w)
	r.Violations = append(w.History.Check(w.Peeks.Guesses), r.Violations...)
	r.Violations = append(r.Violations, judge.VersionsOfNames(w.History.Ops, w.Incarnations, w.Offsets)...)
	r.Violations = append(r.Violations, w.Network.Storms()...)
	r.Violations = append(r.Violations, w.Intrusions...)
	r.Violations = append(r.Violations, w.Contradicted...)
	for _, n := range w.Nodes {
		if n.Alive {
			n.Count()
		}
	}
	for _, c := range w.Clients {
		st := c.Machine.Stats()
		w.Cover.Count("clients.retransmitted", int(st.Retransmits))
		w.Cover.Count("clients.refused", int(st.Refusals))
		w.Cover.Count("clients.strays", int(st.Strays))
	}
	r.Calls, r.Packets, r.Took = len(w.History.Ops), w.Packets, w.Loop.Now
	return r, nil
}

// targets decides which switches expose their registers. In half of the runs all switches do, and
// otherwise none or some do.
func targets(w *world.World, seed uint64) {
	d := clockwork.NewDice(seed, clockwork.DiceTargets)
	without := clockwork.Pick(d, 0, 0, 0.5, 1)
	for _, n := range w.Nodes {
		n.NoRegisters = d.Chance(without)
	}
}

// setUp starts the switches and a controller, forms the chain and places the first keys.
func setUp(w *world.World, seed uint64, keys, placed int) error {
	for _, n := range w.Nodes {
		n.Start()
	}
	trouble.Litter(w, seed)
	for i := range keys {
		w.Keys = append(w.Keys, wire.MakeKey(shapes.ChainID, uint32(i+1)))
	}
	place := w.Keys[:placed]
	if w.Attacked {
		place = append(slices.Clone(place), shapes.SharedKey)
	}
	s := w.StartController()
	w.Loop.Run(w.Loop.Now+2*time.Second, w.Serving)
	if !w.Serving() {
		return fmt.Errorf("the chain did not form: %s", s.Status.Reason)
	}
	if len(place) == 0 {
		return nil
	}
	done := false
	var failed error
	s.Done = func(_ chain.OpID, err error) { done, failed = true, err }
	s.AddKeys(place)
	w.Loop.Run(w.Loop.Now+2*time.Second, func() bool {
		return done && !slices.ContainsFunc(w.Store.Dir.Keys, func(k keyspace.Key) bool {
			return k.State != keyspace.Placed
		})
	})
	s.Done = nil
	if !done || failed != nil {
		return fmt.Errorf("the keys were not placed: %v", failed)
	}
	return nil
}

// Simulator runs seeds of one program, one after the other. Only one goroutine may use a Simulator.
type Simulator struct {
	program *compiled.Program
	removed rules.Removed
	engines world.Engines
}

// New makes a simulator for a program.
func New(p *compiled.Program) *Simulator { return &Simulator{program: p} }
