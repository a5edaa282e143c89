package late

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/test/system/lab"
)

// TestLateMessages delays every kind of message between controllers and switches at random, out of
// order, and until after its caller has given up. Meanwhile clients use keys by name, keys are
// added, moved and removed, switches leave and join chains with and without keys, and controllers
// are killed and stopped. Afterwards these conditions must hold:
//
//   - the clients' history of each name is linearizable, with versions that only grow, over all
//     moves, removals and takeovers, and no acknowledged write is lost;
//   - no lock had two holders, and tokens grew;
//   - no client got a name's value under another name's KEY_ID. This includes clients that read
//     KEY_IDs which are about to be assigned.
//
// The test checks correctness, and not speed. In one variant, the controller keeps its state in
// files, and is killed and restarted. In the other, it keeps its state in etcd, and another
// controller takes over. `make late-messages` is the long run.
func TestLateMessages(t *testing.T) {
	seconds, err := strconv.Atoi(setting("SECONDS", "12"))
	if err != nil || seconds < 1 {
		t.Fatalf("NETCRAQ_LATE_SECONDS: give a number of seconds: %v", err)
	}
	// the stores for each engine in the short run
	stores := map[string][]string{"interp": {"etcd"}, "auto": {"file"}}
	for _, engine := range strings.Split(setting("ENGINES", "interp,auto"), ",") {
		of := []string{"file", "etcd"}
		if seconds < 60 && stores[engine] != nil {
			of = stores[engine]
		}
		for _, store := range of {
			t.Run(engine+"_"+store, func(t *testing.T) {
				if engine == "bmv2" {
					lab.MustLook(t, "simple_switch_grpc")
				}
				if store == "etcd" {
					lab.MustLook(t, "etcd")
				}
				if lab.InNamespace(t) {
					lateMessages(t, engine, store, time.Duration(seconds)*time.Second)
				}
			})
		}
	}
}

const (
	names = 48 // number of keys that are added, moved and removed in each generation
	locks = 12
	// enough is the minimum number of keys that a long run must add, move and remove.
	enough = 1000
)

// lateRun is one run of TestLateMessages.
type lateRun struct {
	t                     *testing.T
	nw                    *lab.Network
	api                   *admin.Client
	admin                 []string         // addresses of the controllers
	disturb               func(*rand.Rand) // kills or stops a controller
	calm                  atomic.Bool      // set when no further faults may begin
	moving                sync.RWMutex     // locked for writing while no key may be moved
	added, moved, removed atomic.Int64
	taken, members, empty atomic.Int64
	controllers           atomic.Int64
	spied, calls, unknown atomic.Int64
	checks                sync.WaitGroup

	mu      sync.Mutex
	newest  map[uint8]uint32          // the highest number of an assigned key, by chain
	called  map[uint32]string         // the name of each key, by KEY_ID
	seen    map[uint32]map[string]int // how often spies received each value, by KEY_ID
	highest map[string]wire.Version   // the highest version of each name in earlier generations
	// the last time in earlier generations when a client held each lock
	held map[string]lab.Section
	// number of failed requests to the controllers, by request and answer
	failed map[string]int
}

func lateMessages(t *testing.T, engine, store string, length time.Duration) {
	l := lab.Layout{N: 5, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 1}, {1, 3}}, Messages: true,
		Chains: []lab.Chain{
			{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: lease, Patience: lease / 2, Rejoin: 500},
			{ID: 4, Name: "side", Members: []int{4, 5}, Lease: lease, Patience: lease / 2, Rejoin: 500}}}
	nw := lab.NewNetwork(t, engine, l)
	r := &lateRun{t: t, nw: nw, newest: map[uint8]uint32{}, called: map[uint32]string{},
		seen: map[uint32]map[string]int{}, highest: map[string]wire.Version{}, held: map[string]lab.Section{},
		failed: map[string]int{}}
	pause := func(random *rand.Rand) time.Duration { return time.Duration(random.Int64N(int64(2 * time.Second))) }
	switch store {
	case "etcd":
		team := lab.StartTeam(nw)
		r.admin = []string{team.Socket(0), team.Socket(1)}
		r.disturb = func(random *rand.Rand) {
			i := team.Leader()
			if random.IntN(2) == 0 {
				team.Kill(i)
				time.Sleep(pause(random))
				team.Start(i)
				return
			}
			process := team.Cmds[i].Load().Process
			_ = process.Signal(syscall.SIGSTOP)
			time.Sleep(time.Second + pause(random))
			_ = process.Signal(syscall.SIGCONT)
		}
	default:
		alone := lab.StartAlone(nw)
		r.admin = []string{alone.Socket()}
		r.disturb = func(random *rand.Rand) {
			if random.IntN(2) == 0 {
				alone.Kill()
				time.Sleep(pause(random) / 4)
				alone.Start()
				return
			}
			alone.Signal(syscall.SIGSTOP)
			time.Sleep(pause(random))
			alone.Signal(syscall.SIGCONT)
		}
	}
	r.api = admin.NewClient(strings.Join(r.admin, ","))
	r.whole("before")

	began := time.Now()
	var random []*p4proxy.Random
	for i := 1; i <= l.N; i++ {
		random = append(random, nw.Messages[i].AddRandom(uint64(i), chances(nw)...))
	}
	var controllers sync.WaitGroup
	bursts := map[string]*int{}
	controllers.Go(func() { r.burst(rand.New(rand.NewPCG(35, 2)), bursts) })
	controllers.Go(func() {
		random := rand.New(rand.NewPCG(35, 1))
		for {
			time.Sleep(4*time.Second + 3*pause(random))
			if r.calm.Load() {
				return
			}
			r.disturb(random)
			r.controllers.Add(1)
		}
	})
	long := length >= time.Minute
	few := func() bool { return long && min(r.added.Load(), r.moved.Load(), r.removed.Load()) < enough }
	g := 0
	// On a busy machine, the test continues until enough is done. In the end it continues without
	// faults.
	for ; g == 0 || time.Since(began) < length || few() && time.Since(began) < 3*length; g++ {
		if r.generation(g); t.Failed() {
			break
		}
	}
	r.calm.Store(true)
	controllers.Wait()
	tally := map[string]int{}
	for _, x := range random {
		if err := x.End(within(t, time.Minute)); err != nil {
			t.Errorf("what was late is not delivered: %v", err)
		}
		x.Tally(tally)
	}
	for name, n := range bursts {
		tally[name] += *n
	}
	if !t.Failed() {
		r.whole("after")
	}
	r.t.Logf("%d generations, %d keys added, %d moved, %d removed, and then in peace", g, r.added.Load(), r.moved.Load(),
		r.removed.Load())
	for peace := 0; !t.Failed() && (peace == 0 || peace < 30 && few()); peace++ {
		r.generation(g + peace)
	}
	r.checks.Wait()
	t.Logf("%s, %s, %v: %d keys added, %d moved, %d removed, %d members out and in, %d of them of chains without keys, "+
		"%d controllers killed or stopped; %d calls by name, %d of unknown outcome, %d locks taken, %d values spied: "+
		"as it may be: %v", engine, store, time.Since(began).Round(time.Second), r.added.Load(), r.moved.Load(),
		r.removed.Load(), r.members.Load(), r.empty.Load(), r.controllers.Load(), r.calls.Load(), r.unknown.Load(),
		r.taken.Load(), r.spied.Load(), !t.Failed())
	for _, name := range slices.Sorted(maps.Keys(tally)) {
		t.Logf("%6d %s", tally[name], name)
	}
	often := slices.SortedFunc(maps.Keys(r.failed), func(a, b string) int { return r.failed[b] - r.failed[a] })
	for _, what := range often[:min(12, len(often))] {
		t.Logf("%6d times: %s", r.failed[what], what)
	}
	for what, n := range map[string]int64{"calls": r.calls.Load() / 100, "keys added": r.added.Load() / 40, "keys moved": r.moved.Load(),
		"locks taken": r.taken.Load(), "Writes given up": int64(tally["Writes of key_index given up"] +
			tally["Writes of chain_config given up"] + tally["other Writes given up"]), "members out and in": r.members.Load(), "controllers disturbed": r.controllers.Load()} {
		if n == 0 {
			t.Errorf("too few %s: this says little", what)
		}
	}
	if few() {
		t.Errorf("fewer than %d keys were added, moved and removed", enough)
	}
}

// chances returns the probabilities with which messages are delayed at each switch.
func chances(nw *lab.Network) []p4proxy.Chance {
	// LEASE packets must not be delayed too often. Otherwise the controller would give up all
	// members all the time.
	leases := p4proxy.All(p4proxy.Kinds(p4proxy.PacketOut), nw.Packets(wire.Lease))
	others := p4proxy.Kinds(p4proxy.PacketOut)
	config, keys := p4proxy.Writes("chain_config"), p4proxy.Writes("key_index")
	rest := p4proxy.WritesBut("chain_config", "key_index")
	reads, programs := p4proxy.Kinds(p4proxy.Read), p4proxy.Kinds(p4proxy.Program)
	s := time.Second
	return []p4proxy.Chance{
		{Name: "LEASEs late", Match: leases, Share: 0.02, Longest: s},
		{Name: "other packet-outs late", Match: others, Share: 0.02, Longest: 4 * s},
		{Name: "packet-ins late", Match: p4proxy.Kinds(p4proxy.PacketIn), Share: 0.02, Longest: s},
		{Name: "Writes of chain_config given up", Match: config, Share: 0.1, Longest: 5 * s, GiveUp: true},
		{Name: "Writes of chain_config late", Match: config, Share: 0.1, Longest: s},
		{Name: "Writes of key_index given up", Match: keys, Share: 0.01, Longest: 5 * s, GiveUp: true},
		{Name: "Writes of key_index late", Match: keys, Share: 0.04, Longest: s},
		{Name: "other Writes given up", Match: rest, Share: 0.02, Longest: 5 * s, GiveUp: true},
		{Name: "other Writes late", Match: rest, Share: 0.05, Longest: s},
		{Name: "answers to Writes lost", Match: p4proxy.Answers(p4proxy.Kinds(p4proxy.Write)), Share: 0.01, GiveUp: true},
		{Name: "answers to Writes late", Match: p4proxy.Answers(p4proxy.Kinds(p4proxy.Write)), Share: 0.02, Longest: s},
		{Name: "Reads given up", Match: reads, Share: 0.005, Longest: s, GiveUp: true},
		{Name: "Reads late", Match: reads, Share: 0.02, Longest: s},
		{Name: "answers to Reads late", Match: p4proxy.Answers(reads), Share: 0.02, Longest: s},
		{Name: "programs given up", Match: programs, Share: 0.2, Longest: 5 * s, GiveUp: true},
		{Name: "programs late", Match: programs, Share: 0.2, Longest: s},
	}
}

// burst repeatedly holds all messages of a kind to or from one switch for a while. A switch whose
// process hangs causes the same delays.
func (r *lateRun) burst(random *rand.Rand, tally map[string]*int) {
	kinds := []struct {
		name   string
		match  p4proxy.Match
		giveUp bool
	}{
		{"all packet-outs held", p4proxy.Kinds(p4proxy.PacketOut), false},
		// This kind is listed twice, because it causes most trouble.
		{"all packet-outs held", p4proxy.Kinds(p4proxy.PacketOut), false},
		{"packet-outs but LEASEs held", func(m *p4proxy.Message) bool {
			return m.Kind == p4proxy.PacketOut && !r.nw.Packets(wire.Lease)(m)
		}, false},
		{"packet-ins held", p4proxy.Kinds(p4proxy.PacketIn), false},
		{"Writes held", p4proxy.Kinds(p4proxy.Write), false},
		{"Writes of chain_config held and given up", p4proxy.Writes("chain_config"), true},
		{"Writes of key_index held and given up", p4proxy.Writes("key_index"), true},
		{"programs held and given up", p4proxy.Kinds(p4proxy.Program), true},
		{"Reads held", p4proxy.Kinds(p4proxy.Read), false},
	}
	for _, k := range kinds {
		tally[k.name] = new(int)
	}
	for !r.calm.Load() {
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
		k := kinds[random.IntN(len(kinds))]
		at := r.nw.Messages[1+random.IntN(r.nw.Layout.N)]
		if random.IntN(2) == 0 {
			at = r.nw.Messages[r.head(random)]
		}
		most := 0
		if k.giveUp { // If the callers of all messages gave up, nothing would succeed.
			most = 1 + random.IntN(2)
		}
		held := at.Add(p4proxy.Rule{Match: k.match, Hold: true, GiveUp: k.giveUp, Most: most})
		end := time.Now().Add(500*time.Millisecond + time.Duration(random.Int64N(int64(3*time.Second))))
		for time.Now().Before(end) && !r.calm.Load() {
			time.Sleep(50 * time.Millisecond)
		}
		n, _ := held.Count()
		*tally[k.name] += n
		ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
		if _, err := held.Release(ctx); err != nil {
			r.t.Errorf("%s: not delivered: %v", k.name, err)
		}
		cancel()
	}
}

// head returns the number of a switch that is, or recently was, the head of a chain.
func (r *lateRun) head(random *rand.Rand) int {
	spec := r.nw.Layout.Chains[random.IntN(len(r.nw.Layout.Chains))]
	var ch *admin.Chain
	if r.try(time.Second, func(ctx context.Context) (err error) {
		ch, err = r.api.Chain(ctx, spec.Name)
		return err
	}) != nil || len(ch.Members) == 0 {
		return spec.Members[0]
	}
	return number(r.t, ch.Members[0].Switch)
}

// try makes a call of the admin API with a time limit, because the controller may be stopped.
func (r *lateRun) try(limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	return do(ctx)
}

// change is like try, but for calls that change something. It counts failed calls.
func (r *lateRun) change(what string, limit time.Duration, do func(context.Context) error) error {
	err := r.try(limit, do)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed[what+": "+numbers.ReplaceAllString(err.Error(), "N")]++
	}
	return err
}

// numbers matches the parts of error messages in which similar errors differ.
var numbers = regexp.MustCompile(`"[nl][0-9]+"|0x[0-9a-f]+|[0-9]+(\.[0-9]+)?`)

// whole brings missing members into their chains, until no member is missing.
func (r *lateRun) whole(when string) {
	var chains []admin.Chain
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = r.try(2*time.Second, func(ctx context.Context) (err error) {
			chains, err = r.api.Chains(ctx)
			return err
		})
		missing := 0
		for _, spec := range r.nw.Layout.Chains {
			at := slices.IndexFunc(chains, func(c admin.Chain) bool { return c.Name == spec.Name })
			if err != nil || at < 0 || !chains[at].Ready {
				missing++
				continue
			}
			for _, name := range lab.Names(spec.Members) {
				if !isMember(chains[at], name) {
					missing++
					_ = r.bringIn(spec.Name, name)
				}
			}
		}
		if missing == 0 {
			return
		}
	}
	r.t.Errorf("%s, the chains are not whole within 90 s: %v: %+v", when, err, chains)
}

func isMember(c admin.Chain, name string) bool {
	return slices.ContainsFunc(c.Members, func(m admin.Member) bool { return m.Switch == name })
}

func (r *lateRun) bringIn(chain, name string) error {
	return r.change("bringing in", 15*time.Second, func(ctx context.Context) error {
		_, err := r.api.Recover(ctx, chain, name)
		return err
	})
}

// outAndIn removes a member from its chain, and then brings in all missing members.
func (r *lateRun) outAndIn(random *rand.Rand, spec lab.Chain, keys bool) {
	var ch *admin.Chain
	err := r.try(2*time.Second, func(ctx context.Context) (err error) {
		ch, err = r.api.Chain(ctx, spec.Name)
		return err
	})
	if err != nil {
		return
	}
	var stay []string
	for _, m := range ch.Members {
		stay = append(stay, m.Switch)
	}
	if out := random.IntN(len(stay)); len(stay) > 1 {
		stay = slices.Delete(stay, out, out+1)
		if r.change("leaving out", 5*time.Second, func(ctx context.Context) error {
			_, err := r.api.ChangeChain(ctx, spec.Name, admin.ChainChange{Members: &stay})
			return err
		}) != nil {
			return
		}
	}
	all := slices.Clone(stay)
	for _, name := range lab.Names(spec.Members) {
		if !slices.Contains(stay, name) {
			all = slices.Insert(all, random.IntN(len(all)+1), name)
		}
	}
	for tries := 0; !keys && tries < 3; tries++ {
		// In a chain without keys, a member may join at any position.
		err = r.change("taking in without keys", 15*time.Second, func(ctx context.Context) error {
			_, err := r.api.ChangeChain(ctx, spec.Name, admin.ChainChange{Members: &all})
			return err
		})
		if err == nil {
			r.empty.Add(1)
			r.members.Add(1)
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	for _, name := range all {
		if slices.Contains(stay, name) {
			continue
		}
		// Keys are moved all the time in this test, but no switch can be brought in while a key is
		// being moved.
		err := r.bringIn(spec.Name, name)
		for tries := 0; err != nil && tries < 5; tries++ {
			r.moving.Lock()
			err = r.bringIn(spec.Name, name)
			r.moving.Unlock()
		}
		if err == nil {
			r.members.Add(1)
			if !keys {
				r.empty.Add(1)
			}
		}
	}
}

// generation lets clients use a set of names while the names' keys are added, moved and removed. It
// removes the keys at the end. All generations have the same names, so the versions of the names
// continue.
func (r *lateRun) generation(g int) {
	random := rand.New(rand.NewPCG(35, uint64(g+2)))
	var history []linearizable.Call
	var sections []lab.Section
	var mu sync.Mutex
	keep := func(all ...linearizable.Call) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, all...)
	}
	if !r.calm.Load() { // At this point, the chains have no keys.
		var all sync.WaitGroup
		for _, spec := range r.nw.Layout.Chains {
			own := rand.New(rand.NewPCG(random.Uint64(), 1))
			all.Go(func() { r.outAndIn(own, spec, false) })
		}
		all.Wait()
	}

	var plain, lock []string
	for i := range names {
		plain = append(plain, fmt.Sprint("n", i))
	}
	for i := range locks {
		lock = append(lock, fmt.Sprint("l", i))
	}
	ended := filepath.Join(r.nw.Dir(), fmt.Sprintf("generation%d", g))
	run := fmt.Sprintf("%x-", g)
	var clients sync.WaitGroup
	for i, host := range r.nw.Hosts[:4] {
		clients.Go(func() {
			reply, err := host.Request(lab.HostRequest{Kept: &lab.KeptWork{Client: i, Run: run, Admin: r.admin,
				Names: plain, Locks: lock, Duration: 4 * time.Minute, Until: ended}})
			if err != nil {
				r.t.Errorf("client %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			history, sections = append(history, reply.Kept...), append(sections, reply.Locked...)
		})
	}
	var over atomic.Bool
	var beside sync.WaitGroup
	for i := range r.nw.Hosts {
		beside.Go(func() { r.spy(i+1, &over) })
	}
	if !r.calm.Load() {
		own := rand.New(rand.NewPCG(random.Uint64(), 2))
		beside.Go(func() {
			for !over.Load() {
				r.outAndIn(own, r.nw.Layout.Chains[own.IntN(len(r.nw.Layout.Chains))], true)
				time.Sleep(time.Duration(own.Int64N(int64(time.Second))))
			}
		})
	}

	// Each name is added. Then it is several times moved, or removed and added again.
	all := slices.Concat(plain, lock)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	enough := time.Now().Add(3 * time.Second)
	var workers sync.WaitGroup
	for batch := range slices.Chunk(all, 2) {
		own := rand.New(rand.NewPCG(random.Uint64(), 3))
		workers.Go(func() {
			n := 0
			keep(r.add(batch, own, run, &n)...)
			for round := 0; round < 2 || time.Now().Before(enough); round++ {
				for _, name := range batch {
					if own.IntN(4) > 0 || strings.HasPrefix(name, "l") {
						r.move(name)
						continue
					}
					keep(r.remove(name)...)
					keep(r.add([]string{name}, own, run, &n)...)
				}
				if r.t.Failed() {
					return
				}
			}
		})
	}
	workers.Wait()
	// This ends the load, so that the last reads see the last writes and no message is late.
	if err := os.WriteFile(ended, nil, 0o600); err != nil {
		r.t.Error(err)
	}
	clients.Wait()
	over.Store(true)
	beside.Wait()
	for batch := range slices.Chunk(all, 6) {
		workers.Go(func() {
			for _, name := range batch {
				keep(r.remove(name)...)
			}
		})
	}
	workers.Wait()
	r.check(g, history, sections)
	r.checkSpied()
}

// find repeats a lookup until a controller knows where a name is, or that the name does not exist.
func (r *lateRun) find(name string) (k admin.Key, there bool) {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var got *admin.Key
		err = r.try(2*time.Second, func(ctx context.Context) (err error) {
			got, err = r.api.Lookup(ctx, name)
			return err
		})
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			id := wire.Key(got.KeyID)
			r.newest[id.Chain()] = max(r.newest[id.Chain()], got.KeyID)
			r.called[got.KeyID] = name
			return *got, true
		}
		if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			return k, false
		}
	}
	r.t.Errorf("no controller says within a minute where %s is: %v", name, err)
	return k, false
}

// add adds names to a chain, some of them without a value. It retries until the names exist.
func (r *lateRun) add(batch []string, random *rand.Rand, run string, n *int) (history []linearizable.Call) {
	chain := r.nw.Layout.Chains[random.IntN(len(r.nw.Layout.Chains))].Name
	values := map[string][]byte{}
	for _, name := range batch {
		if !strings.HasPrefix(name, "l") && random.IntN(3) > 0 {
			*n++
			values[name] = fmt.Appendf(nil, "%s:%sa%d", name, run, *n)
		}
	}
	begin := time.Now().UnixNano()
	for tries := 0; len(batch) > 0 && tries < 100 && !r.t.Failed(); tries++ {
		var specs []admin.KeySpec
		for _, name := range batch {
			specs = append(specs, admin.KeySpec{Name: name, Value: values[name]})
		}
		_ = r.change("adding", 8*time.Second, func(ctx context.Context) error {
			_, err := r.api.AddKeys(ctx, chain, specs)
			return err
		})
		// After an error, the names may have been added, and a new controller may still be
		// completing that.
		batch = slices.DeleteFunc(slices.Clone(batch), func(name string) bool {
			if _, there := r.find(name); !there {
				return false
			}
			r.added.Add(1)
			history = append(history, linearizable.Call{Client: -1, Name: name, Op: linearizable.Add,
				Value: string(values[name]), Begin: begin, End: time.Now().UnixNano()})
			return true
		})
	}
	if len(batch) > 0 && !r.t.Failed() {
		r.t.Errorf("%v are not added, however often that is tried", batch)
	}
	return history
}

// busy returns whether a change was refused because another change of the key is in progress.
func busy(err error) bool {
	return errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}) && strings.Contains(err.Error(), "is being added")
}

// remove removes a name, and retries until it does not exist.
func (r *lateRun) remove(name string) (history []linearizable.Call) {
	x := linearizable.Call{Client: -1, Name: name, Op: linearizable.Clear, Begin: time.Now().UnixNano()}
	var last admin.Key
	refused := 0
	for tries := 0; tries < 100; tries++ {
		k, there := r.find(name)
		if !there {
			break
		}
		last = k
		err := r.change("removing", 8*time.Second, func(ctx context.Context) error {
			return r.api.RemoveKey(ctx, k.Chain, name)
		})
		// If the controller still works on an earlier attempt, it refuses this attempt. A refused
		// attempt is not recorded, because the checker could not order many calls of unknown
		// outcome.
		if busy(err) {
			refused++
		} else {
			history = append(history, x)
		}
		if err != nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if len(history) == 0 {
		if !r.t.Failed() {
			r.t.Errorf("%s is nowhere, %d times before it was busy (last as %+v), and nobody has removed it", name, refused, last)
		}
		return nil
	}
	r.removed.Add(1)
	x.Op = linearizable.Remove
	history = append(history, x)
	for i := range history {
		history[i].End = time.Now().UnixNano()
	}
	return history
}

// move moves a name to the other chain.
func (r *lateRun) move(name string) {
	r.moving.RLock()
	defer r.moving.RUnlock()
	k, there := r.find(name)
	switch {
	case r.t.Failed():
		return
	case !there:
		r.t.Errorf("%s is lost", name)
		return
	}
	to := r.nw.Layout.Chains[0].Name
	if to == k.Chain {
		to = r.nw.Layout.Chains[1].Name
	}
	_ = r.change("moving", 8*time.Second, func(ctx context.Context) error {
		_, err := r.api.MoveKey(ctx, k.Chain, name, to)
		return err
	})
	now, there := r.find(name)
	switch {
	case !there:
		r.t.Errorf("%s was lost by a move", name)
	case now.KeyID != k.KeyID:
		r.moved.Add(1)
	}
}

// spy reads KEY_IDs at one switch. They were assigned recently, or are about to be assigned.
func (r *lateRun) spy(sw int, over *atomic.Bool) {
	for !over.Load() {
		var keys []uint32
		r.mu.Lock()
		for _, c := range r.nw.Layout.Chains {
			newest := max(r.newest[uint8(c.ID)], uint32(wire.MakeKey(uint8(c.ID), 0)))
			for i := range uint32(50) {
				keys = append(keys, newest+30-i)
			}
		}
		r.mu.Unlock()
		reply, err := r.nw.Hosts[sw-1].Request(lab.HostRequest{Spy: &lab.Spy{Switch: lab.SwitchAddr(sw), Keys: keys,
			Profile: r.nw.Layout.Profile, Duration: 300 * time.Millisecond}})
		if err != nil {
			r.t.Errorf("the spy at s%d: %v", sw, err)
			return
		}
		r.mu.Lock()
		for id, values := range reply.Seen {
			for v, n := range values {
				if r.seen[id] == nil {
					r.seen[id] = map[string]int{}
				}
				r.seen[id][v] += n
				r.spied.Add(int64(n))
			}
		}
		r.mu.Unlock()
	}
}

// checkSpied checks that the spies have read only values of its own name under each KEY_ID.
func (r *lateRun) checkSpied() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, values := range r.seen {
		of := r.called[id]
		for v, n := range values {
			name, _, _ := strings.Cut(v, ":")
			if of == "" {
				of = name
			}
			if name != of {
				r.t.Errorf("%v is of %s, and %d reads of it were answered %q", wire.Key(id), of, n, v)
			}
		}
	}
}

// check checks the history of a generation's clients.
func (r *lateRun) check(g int, history []linearizable.Call, sections []lab.Section) {
	for _, x := range history {
		if x.Op == wire.Read || x.Op == wire.Write || x.Op == wire.CAS {
			r.calls.Add(1)
		}
		if x.Unknown {
			r.unknown.Add(1)
		}
		if name, _, _ := strings.Cut(x.Got, ":"); x.Got != "" && name != x.Name {
			r.t.Errorf("generation %d: a value of another name: %+v", g, x)
		}
		// Versions, which are also lock tokens, must exceed those of all earlier generations.
		if x.Version != 0 && x.Version <= r.highest[x.Name] {
			r.t.Errorf("generation %d: a version that is not above those of before, %v: %+v", g, r.highest[x.Name], x)
		}
	}
	for _, x := range history {
		r.highest[x.Name] = max(r.highest[x.Name], x.Version)
	}
	slices.SortFunc(sections, func(a, b lab.Section) int { return int(a.From - b.From) })
	for _, s := range sections {
		r.taken.Add(1)
		if last := r.held[s.Lock]; s.From < last.To || s.Token <= last.Token {
			r.t.Errorf("generation %d: %s was held at %v from %d to %d, and at %v from %d to %d", g, s.Lock,
				last.Token, last.From, last.To, s.Token, s.From, s.To)
		}
		r.held[s.Lock] = s
	}
	r.checks.Go(func() {
		for _, ops := range linearizable.Versioned.Partition(linearizable.Operations(history)) {
			name := ops[0].Input.(linearizable.Call).Name
			result := porcupine.CheckOperationsTimeout(linearizable.Versioned, ops, 2*time.Minute)
			if result == porcupine.Ok {
				continue
			}
			r.t.Errorf("generation %d: the history of %s is not linearizable: %v\n%s", g, name, result,
				lab.Around(linearizable.Versioned, ops))
		}
	})
}
