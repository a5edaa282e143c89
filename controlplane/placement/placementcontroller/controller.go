package placementcontroller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// Network is the part of *controller.Controller that placement uses.
type Network interface {
	Chains(context.Context) ([]admin.Chain, error)
	Directory(ctx context.Context, prefix string, state bool) ([]admin.Key, error)
	Lookup(ctx context.Context, name string, state bool) (*admin.Key, error)
	// LookupTail is Lookup, with the key's state at only the last member of its chain.
	LookupTail(ctx context.Context, name string) (*admin.Key, error)
	AddKeys(ctx context.Context, chain string, keys []admin.KeySpec) ([]admin.Key, error)
	RemoveKey(ctx context.Context, chain, nameOrID string) error
	Counters(ctx context.Context, sw string) (*admin.Counters, error)
	// Announce adds an event to the events that the admin API shows.
	Announce(kind, chain, message string)
}

// Source reports how hot keys are. *Prometheus implements it.
type Source interface {
	Heat(ctx context.Context) (map[string]policy.Heat, error)
	// Scalar returns the value of a query with a single result.
	Scalar(ctx context.Context, query string) (float64, bool)
	// Name returns the URL of the source, and the time window over which the source computes rates.
	Name() (url, window string)
}

// Options are the parameters of New.
type Options struct {
	Network Network
	Source  Source
	Etcd    *clientv3.Client
	// Prefix is where gateways and placement keep their state in etcd (placement.DefaultPrefix).
	Prefix string
	// Conditions are added to every write to etcd. They require that this process leads.
	Conditions []clientv3.Cmp
	Limits     policy.Limits
	// Interval is the time between decisions.
	Interval time.Duration
	// Leaving reports whether a chain must give up etcd's keys. If it is nil, no chain must.
	Leaving func(chain string) bool
	Log     *slog.Logger

	// step is called, in tests, with each step before that step is made. An error from it simulates
	// that the process is killed there.
	step func(string) error
	// tryAgain is how long to wait before a failed move is tried again. If it is 0, the constant
	// tryAgain applies.
	tryAgain time.Duration
	// dictionaryRest is the minimum age at which a dictionary is used. If it is 0, the constant
	// dictionaryRest applies.
	dictionaryRest time.Duration
}

const tryAgain = 10 * time.Second

// Controller keeps the hottest keys placed. Make it with New, and Run it.
type Controller struct {
	o       Options
	store   store
	placed  placement.Store
	planner *policy.Planner
	values  *values
	pinned  *pinned
	meter   *meter
	metrics *metrics
	wake    chan struct{}
	looks   chan string // placed keys that changed in etcd, and whose slots must be checked

	// Only run's goroutine uses the following fields.
	running   context.Context            // Run's context
	entries   map[string]placement.Entry // the entries in etcd; nil: they must be read
	listed    time.Time
	retry     map[string]time.Time // keys whose last move failed, with the time of the next attempt
	counted   time.Time            // when the switches' counters were last read
	countFor  time.Duration        // how long reading the counters took
	finishing []policy.Move        // unfinished moves of an earlier controller
	written   plan                 // the plan that etcd holds
	checked   map[string]time.Time // when each slot was last checked

	dictionary dictionaries

	ruling sync.Mutex // held while rules are read from etcd, and while a rule is changed

	mu          sync.Mutex
	rules       *policy.Rules
	faults      map[string]placement.Fault // faults of placed keys, until the keys are removed
	unreachable map[string]*unreachable    // placed keys whose slots gateways could not reach
	where       map[string]position        // positions of placed keys
	sourceError string                     // last error of the source
	verdicts    map[string]policy.Verdict
	shown       admin.Placement
}

// position says where a key is placed.
type position struct {
	chain   string
	id      uint32
	version uint64 // the slot's version when the key was placed
	since   time.Time
}

// New makes a controller. It contacts neither the network nor etcd yet.
func New(o Options) (*Controller, error) {
	planner, err := policy.NewPlanner(o.Limits)
	if err != nil {
		return nil, fmt.Errorf("the limits of placement: %w", err)
	}
	if o.Prefix == "" || o.Prefix == "/" || !strings.HasSuffix(o.Prefix, "/") {
		return nil, fmt.Errorf("the gateways' prefix in etcd, %q: it must end in a slash, and be more than that", o.Prefix)
	}
	if o.Interval <= 0 {
		return nil, errors.New("placement decides at intervals above 0")
	}
	if o.tryAgain == 0 {
		o.tryAgain = tryAgain
	}
	if o.dictionaryRest == 0 {
		o.dictionaryRest = dictionaryRest
	}
	p := &Controller{o: o, store: store{o.Etcd, o.Prefix, o.Conditions},
		placed: placement.Store{KV: o.Etcd, Prefix: o.Prefix}, planner: planner,
		meter:   newMeter(10 * time.Second),
		metrics: newMetrics(), wake: make(chan struct{}, 1), looks: make(chan string, 1024),
		retry:   map[string]time.Time{},
		checked: map[string]time.Time{}, rules: policy.NewRules(o.Prefix),
		faults: map[string]placement.Fault{}, unreachable: map[string]*unreachable{},
		where:    map[string]position{},
		verdicts: map[string]policy.Verdict{}}
	p.values = newValues(o.Etcd, func(key string) {
		select {
		case p.looks <- key:
		default: // if the queue is full, the periodic rounds check the slot
		}
	})
	p.pinned = newPinned(o.Etcd, p.soon)
	p.shown = admin.Placement{Prefix: o.Prefix, Problem: "it has just begun",
		Chains: []admin.PlacementChain{}, Placed: []admin.PlacementKey{}, Others: []admin.PlacementKey{},
		UnderWay: []admin.PlacementMove{}, Recent: []admin.PlacementMove{}, Limits: limitsOf(o.Limits)}
	return p, nil
}

// Metrics returns placement's metrics, to be registered.
func (p *Controller) Metrics() prometheus.Collector { return p.metrics }

// Run works until ctx ends. Placed keys stay placed after that.
func (p *Controller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.running = ctx
	wg.Go(func() { p.look(ctx) })
	begun := false
	for {
		err := error(nil)
		if !begun {
			err = p.begin(ctx)
			begun = err == nil
		}
		if err == nil {
			err = p.round(ctx)
		}
		p.problem(err)
		if errors.Is(err, errKilled) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-time.After(p.o.Interval):
		}
	}
}

// errKilled says that a test ended the controller in the middle of a step.
var errKilled = errors.New("killed")

func (p *Controller) step(what string, args ...any) error {
	if p.o.step == nil {
		return nil
	}
	return p.o.step(fmt.Sprintf(what, args...))
}

// soon makes run decide at once.
func (p *Controller) soon() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// problem notes why there was no decision.
func (p *Controller) problem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	p.mu.Lock()
	was := p.shown.Problem
	p.shown.Problem = text
	p.mu.Unlock()
	if text != "" && text != was {
		p.o.Log.Warn("placement decides nothing for now", "error", err)
	}
}

// namePrefix starts the names of placed keys in the controller's directory. The names of all other
// keys start differently.
const namePrefix = "etcd:"

// DirectoryName returns the name of a placed etcd key in the controller's directory.
func DirectoryName(key string) string { return namePrefix + placement.Printable(key) }

// begin takes over the state that an earlier controller left in etcd.
func (p *Controller) begin(ctx context.Context) error {
	old, err := p.store.plan(ctx)
	if err != nil {
		return err
	}
	away := map[string]policy.Absence{}
	for text, a := range old.Away {
		if key, err := placement.ParsePrintable(text); err == nil {
			away[key] = a
		}
	}
	p.planner.Recall(away)
	p.finishing, p.written = old.Moves, *old
	if len(old.Moves) > 0 {
		p.o.Network.Announce("placement.resumed", "", fmt.Sprintf("%d moves were under way when the last controller ended: they are finished", len(old.Moves)))
	}
	return nil
}

// round makes one decision from all known inputs, and carries it out.
func (p *Controller) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	now := time.Now()
	rules, wrong, err := p.readRules(ctx)
	if err != nil {
		return err
	}
	for _, w := range wrong {
		p.o.Log.Warn("a rule of placement in etcd is left out", "rule", w)
	}
	if err := p.lookForDictionaries(ctx, now); err != nil {
		return err
	}
	chains, err := p.o.Network.Chains(ctx)
	if err != nil {
		return err
	}
	if err := p.reconcile(ctx, chains); err != nil {
		return err
	}
	if len(p.finishing) > 0 {
		moves := p.finishing
		if err := p.carryOut(ctx, p.unfinished(moves)); err != nil {
			return err
		}
		p.finishing = nil
		if err := p.record(ctx, nil); err != nil {
			return err
		}
		if err = p.reconcile(ctx, chains); err != nil {
			return err
		}
		// read the chains again, for the present number of free slots
		if chains, err = p.o.Network.Chains(ctx); err != nil {
			return err
		}
	}
	p.count(ctx, chains)
	heat, heardAt := p.hear(ctx)
	p.checkSome(ctx)
	p.judgeUnreachable(ctx, chains)
	in := p.gather(ctx, now, rules, chains, heat)
	moves, verdicts := p.planner.Decide(in)
	moves = slices.DeleteFunc(moves, func(m policy.Move) bool { return now.Before(p.retry[string(m.Key)]) })
	p.show(verdicts, chains, heat, heardAt, moves)
	if len(moves) > 0 {
		if err := p.record(ctx, moves); err != nil {
			return err
		}
		if err := p.carryOut(ctx, moves); err != nil {
			return err
		}
	}
	if err := p.record(ctx, nil); err != nil {
		return err
	}
	p.watchPlaced()
	if len(moves) > 0 {
		p.show(verdicts, chains, heat, heardAt, nil)
	}
	return nil
}

// readRules reads the rules from etcd. Meanwhile no rule can be set through this controller,
// because the new rule would be lost.
func (p *Controller) readRules(ctx context.Context) (rules *policy.Rules, wrong []string, err error) {
	p.ruling.Lock()
	defer p.ruling.Unlock()
	if rules, wrong, err = p.store.rules(ctx); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = rules
	return rules, wrong, nil
}

// hear reads the heat of keys from the source. It returns nil if the heat is not known.
func (p *Controller) hear(ctx context.Context) (map[string]policy.Heat, time.Time) {
	heat, err := p.o.Source.Heat(ctx)
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	p.mu.Lock()
	was := p.sourceError
	p.sourceError = trouble
	p.mu.Unlock()
	switch {
	case trouble != "" && was == "":
		p.o.Network.Announce("placement.source-down", "", "nothing is moved for its heat: "+trouble)
	case trouble == "" && was != "":
		p.o.Network.Announce("placement.source-up", "", "Prometheus answers again")
	}
	if err != nil {
		p.metrics.sourceUp.Set(0)
		return nil, time.Time{}
	}
	p.metrics.sourceUp.Set(1)
	return heat, time.Now()
}

// count reads the switches' counters of placed keys. These reads take at most a tenth of the time.
func (p *Controller) count(ctx context.Context, chains []admin.Chain) {
	start := time.Now()
	if len(p.entries) == 0 || start.Sub(p.counted) < 10*p.countFor {
		return
	}
	var switches []string
	for _, ch := range chains {
		for _, m := range ch.Members {
			if !slices.Contains(switches, m.Switch) {
				switches = append(switches, m.Switch)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	each(switches, 8, func(sw string) {
		c, err := p.o.Network.Counters(ctx, sw)
		if err != nil {
			p.o.Log.Debug("a switch's counters could not be read", "switch", sw, "error", err)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.meter.take(time.Now(), sw, c.Slots)
	})
	p.counted, p.countFor = start, time.Since(start)
	p.meter.forget(p.counted, time.Minute)
}

// gather collects the planner's input.
func (p *Controller) gather(ctx context.Context, now time.Time, rules *policy.Rules, chains []admin.Chain,
	heat map[string]policy.Heat) policy.Input {
	in := policy.Input{Now: now, Rules: rules, Dictionary: p.dictionary.known}
	members := map[string][]string{}
	for _, ch := range chains {
		in.Chains = append(in.Chains, policy.Chain{Name: ch.Name, Cell: ch.ValueBytes,
			Free: ch.Slots - ch.Keys, Ready: ch.Ready && !ch.Frozen,
			Leaving: p.o.Leaving != nil && p.o.Leaving(ch.Name)})
		for _, m := range ch.Members {
			members[ch.Name] = append(members[ch.Name], m.Switch)
		}
	}
	lately := 3*p.o.Interval + 10*p.countFor + 2*time.Second
	p.mu.Lock()
	for key, e := range p.entries {
		k := policy.Key{Name: key, Chain: e.Chain, Since: p.where[key].since,
			Value: p.values.of(key).Value, Fault: p.faults[key]}
		at, ok := p.meter.heat(now, e.ID, members[e.Chain], lately)
		// without Prometheus, placement knows the heat of few keys, and does nothing
		if heat != nil && ok {
			h := heat[key]
			k.Heard, k.Heat = true, policy.Heat{Reads: max(h.Reads, at.Reads), Writes: max(h.Writes, at.Writes)}
		}
		in.Keys = append(in.Keys, k)
	}
	p.mu.Unlock()
	var candidates []policy.Key
	seen := map[string]bool{}
	for key, h := range heat {
		if _, ok := p.entries[key]; !ok {
			candidates = append(candidates, policy.Key{Name: key, Heat: h, Heard: true})
			seen[key] = true
		}
	}
	p.pinned.follow(p.running, rules.PinnedPrefixes())
	for _, key := range append(rules.Pins(), p.pinned.keys()...) {
		if c, _, _ := rules.Of(key); c != policy.Pin || seen[key] {
			continue
		}
		if _, ok := p.entries[key]; !ok {
			candidates = append(candidates, policy.Key{Name: key})
			seen[key] = true
		}
	}
	l := p.planner.Limits()
	slices.SortFunc(candidates, func(a, b policy.Key) int {
		x, y := l.Score(a.Heat), l.Score(b.Heat)
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	var ask []string
	for _, k := range candidates {
		switch c, _, _ := rules.Of(k.Name); {
		case c == policy.Pin:
			ask = slices.Insert(ask, 0, k.Name)
		case c != policy.Exclude && l.Score(k.Heat) >= l.MinScore:
			ask = append(ask, k.Name)
		}
	}
	p.values.ask(ctx, ask, p.pinned.has)
	for _, k := range candidates {
		if err := placement.Check(p.o.Prefix, k.Name); err != nil && !strings.HasPrefix(k.Name, p.o.Prefix) {
			continue // an empty or overlong name cannot be an etcd key
		}
		k.Value = p.values.of(k.Name).Value
		in.Keys = append(in.Keys, k)
	}
	return in
}

// record writes the pending moves and the absent keys to etcd, if they have changed.
func (p *Controller) record(ctx context.Context, moves []policy.Move) error {
	next := plan{Moves: moves}
	for key, a := range p.planner.Away() {
		if next.Away == nil {
			next.Away = map[string]policy.Absence{}
		}
		next.Away[placement.Printable(key)] = a
	}
	if samePlan(next, p.written) {
		return nil
	}
	if err := p.step("record %d moves", len(moves)); err != nil {
		return err
	}
	if err := p.store.setPlan(ctx, &next); err != nil {
		return err
	}
	p.written = next
	return nil
}

func samePlan(a, b plan) bool {
	if len(a.Moves) != len(b.Moves) || len(a.Away) != len(b.Away) || len(a.Moves) > 0 {
		return false
	}
	for k, x := range a.Away {
		if y, ok := b.Away[k]; !ok || !x.Until.Equal(y.Until) || x.Code != y.Code || x.Bytes != y.Bytes {
			return false
		}
	}
	return true
}

// watchPlaced watches the placed keys in etcd, and forgets keys that were removed long ago.
func (p *Controller) watchPlaced() {
	keys := map[string]bool{}
	for k := range p.entries {
		keys[k] = true
	}
	p.values.watch(p.running, keys)
	now := time.Now()
	maps.DeleteFunc(p.retry, func(_ string, at time.Time) bool { return now.After(at) })
}
