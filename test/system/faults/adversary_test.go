package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
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
	"github.com/netcraq/netcraq/test/system/lab"
)

// adversaryLease is longer than TestSurvive's lease, because in this test chains should lose
// members only by faults, and not because the machine is busy.
const adversaryLease = 600 // milliseconds

// generation is how long clients use the same names. Each generation has its own history, so that a
// long run can be checked. All of its keys are removed at its end.
const generation = 8 * time.Second

// kindsOfName are the names in each generation. Some keys stay in their chain, some move between
// chains, and some are removed and added again.
var kindsOfName = []string{"stays", "wanders", "wanders-too", "comes-and-goes", "goes-and-comes"}

// In TestAdversary, clients that know keys by name continue while an adversary disturbs the network
// in many ways at once. Clients are stopped for longer than their sessions last, and then continue.
// The leading controller of two is killed or stopped, at any point of moves, removals and
// recoveries. Keys are moved, removed and added all the time. Members of chains are killed or cut
// off, and brought in again. A switch outside the chains comes and goes. The cables lose, double
// and reorder frames. The history of the clients' calls must be linearizable. `make survive` is the
// long run. The variables NETCRAQ_SURVIVE_ENGINES and _SECONDS have the same meaning as for
// TestSurvive.
func TestAdversary(t *testing.T) {
	for _, engine := range strings.Split(setting("ENGINES", "auto"), ",") {
		t.Run(engine, func(t *testing.T) { adversary(t, engine) })
	}
}

// adversaryRun is one run of TestAdversary.
type adversaryRun struct {
	*lab.Team
	api  *admin.Client // client of the admin API; it uses the controller that answers
	end  time.Time
	done [faultKinds]atomic.Int64
	wg   sync.WaitGroup
}

// These are the kinds of faults.
const (
	clientStopped = iota
	controllerKilled
	controllerStopped
	memberKilled
	memberCutOff
	outsiderKilled
	outsiderCutOff
	keyMoved
	keyRemoved
	keyTakenOver
	faultKinds
)

var faultNames = [faultKinds]string{
	"clients stopped for longer than their sessions", "leading controllers killed", "leading controllers stopped", "members killed", "members cut off from controllers",
	"switches outside killed", "switches outside cut off", "keys moved", "keys removed and added", "... by another controller",
}

func adversary(t *testing.T, engine string) {
	lab.MustLook(t, "etcd")
	if engine == "bmv2" {
		lab.MustLook(t, "simple_switch_grpc")
	}
	if !lab.InNamespace(t) {
		return
	}
	duration := time.Duration(number(t, "SECONDS", 16)) * time.Second
	l := lab.Layout{N: 5, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 1}, {1, 3}},
		Faults: surviveFaults, Chains: []lab.Chain{
			{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: adversaryLease, Patience: adversaryLease / 2},
			{ID: 4, Name: "side", Members: []int{3, 4}, Lease: adversaryLease, Patience: adversaryLease / 2},
		}}
	nw := lab.NewNetwork(t, engine, l)
	r := &adversaryRun{Team: lab.StartTeam(nw), end: time.Now().Add(duration)}
	r.api = admin.NewClient(r.Socket(0) + "," + r.Socket(1))
	if _, err := r.whole(); err != nil {
		t.Fatal(err)
	}

	var guests []*lab.Host
	for i := range nw.Hosts[:4] {
		guests = append(guests, lab.StartGuest(t, nw.Hosts[i]))
	}
	r.end = time.Now().Add(duration)
	for i, loop := range []func(*rand.Rand){
		func(random *rand.Rand) {
			r.stopClients(random, guests)
		}, r.disturbControllers, r.disturbMembers, r.disturbOutsider,
	} {
		r.wg.Go(func() { loop(rand.New(rand.NewPCG(uint64(i), 15))) })
	}
	calls, unknown := 0, 0
	var checks sync.WaitGroup
	// minimum number of calls; a busy machine continues without faults until they are made
	least := 20 * int(duration.Seconds())
	last := r.end.Add(40 * time.Second)
	for g := 0; g == 0 || time.Now().Before(r.end) || time.Now().Before(last) && calls < least && !t.Failed(); g++ {
		history := r.generation(g, guests)
		for _, x := range history {
			if x.Op == wire.Read || x.Op == wire.Write || x.Op == wire.CAS {
				calls++
			}
			if x.Unknown {
				unknown++
			}
		}
		checks.Go(func() { checkNamed(t, g, history) })
	}
	r.wg.Wait()
	checks.Wait()
	var did []string
	for i := range r.done {
		n := r.done[i].Load()
		did = append(did, fmt.Sprintf("%d %s", n, faultNames[i]))
		switch {
		case n > 0:
		case duration < time.Minute:
			// In a short run, a busy machine may not have time for each kind of fault.
			t.Logf("no %s in this short run", faultNames[i])
		default:
			t.Errorf("no %s: this says little", faultNames[i])
		}
	}
	t.Logf("%s, %d s, %s: %d calls, %d of unknown outcome, linearizable: %v; %s", engine, int(duration.Seconds()), surviveFaults, calls, unknown, !t.Failed(), strings.Join(did, ", "))
	if calls < least {
		t.Errorf("only %d calls: this says little", calls)
	}
}

// try makes a call of the admin API with a limit of 2 s, because the controller may be stopped.
func (r *adversaryRun) try(do func(context.Context) error) error { return r.within(2*time.Second, do) }

func (r *adversaryRun) within(limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Network.T.Context(), limit)
	defer cancel()
	return do(ctx)
}

// over returns whether it is time to end, after a pause between pause/2 and pause.
func (r *adversaryRun) over(random *rand.Rand, pause time.Duration) bool {
	time.Sleep(pause/2 + time.Duration(random.Int64N(int64(pause/2))))
	return !time.Now().Before(r.end)
}

// stopClients stops client processes for longer than their sessions last. Meanwhile other clients
// lease sessions with the same numbers.
func (r *adversaryRun) stopClients(random *rand.Rand, guests []*lab.Host) {
	const ttl = 2 * time.Second // time to live of the sessions (writeTopology)
	for !r.over(random, 2*time.Second) {
		pid := guests[random.IntN(len(guests))].Cmd.Process
		pid.Signal(syscall.SIGSTOP)
		time.Sleep(ttl + time.Duration(random.Int64N(int64(ttl))))
		pid.Signal(syscall.SIGCONT)
		r.done[clientStopped].Add(1)
	}
}

// disturbControllers kills the leading controller and restarts it, or stops it for a while. When a
// stopped controller continues, it may still assume that it leads.
func (r *adversaryRun) disturbControllers(random *rand.Rand) {
	for n := 0; !r.over(random, 3*time.Second); n++ {
		i := r.Leader()
		if n%2 == 0 {
			r.Kill(i)
			r.done[controllerKilled].Add(1)
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
			r.Start(i)
			continue
		}
		process := r.Cmds[i].Load().Process
		process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Second + time.Duration(random.Int64N(int64(3*time.Second))))
		process.Signal(syscall.SIGCONT)
		r.done[controllerStopped].Add(1)
	}
}

// disturbMembers kills members of a chain, or cuts them off from the controllers, and brings
// missing members back.
func (r *adversaryRun) disturbMembers(random *rand.Rand) {
	var down func() // down undoes the last fault.
	for n := 0; !r.over(random, time.Second); n++ {
		chains, err := r.whole()
		if err != nil {
			continue
		}
		ch := chains[random.IntN(len(chains))]
		name := ch.Members[random.IntN(len(ch.Members))].Switch
		i := r.numberOf(name)
		if n%3 == 2 {
			r.Network.Proxies[i].SetCut(true)
			down = func() { r.Network.Proxies[i].SetCut(false) }
			r.done[memberCutOff].Add(1)
		} else {
			r.Network.KillSwitch(i)
			down = func() { r.Network.StartSwitch(i) }
			r.done[memberKilled].Add(1)
		}
		time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
		down()
	}
	if _, err := r.whole(); err != nil {
		r.Network.T.Errorf("the chains were not whole again in the end: %v", err)
	}
}

// whole brings missing members into their chains. It returns the chains when all of them have the
// members that the topology names.
func (r *adversaryRun) whole() (chains []admin.Chain, err error) {
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = r.try(func(ctx context.Context) error { chains, err = r.api.Chains(ctx); return err }); err != nil {
			continue
		}
		missing := 0
		if slices.ContainsFunc(chains, func(c admin.Chain) bool { return !c.Ready }) {
			continue
		}
		for _, spec := range r.Network.Layout.Chains {
			for _, name := range lab.Names(spec.Members) {
				at := slices.IndexFunc(chains, func(c admin.Chain) bool { return c.Name == spec.Name })
				if slices.ContainsFunc(chains[at].Members, func(m admin.Member) bool { return m.Switch == name }) {
					continue
				}
				missing++
				err = r.within(10*time.Second, func(ctx context.Context) error {
					_, err := r.api.Recover(ctx, spec.Name, name)
					return err
				})
				// The error asks for a restart of the switch, because another chain needs the
				// switch's values.
				if err != nil && strings.Contains(err.Error(), "or restart it") && !r.lastMember(name) {
					i := r.numberOf(name)
					r.Network.KillSwitch(i)
					r.Network.StartSwitch(i)
				}
			}
		}
		if missing == 0 {
			return chains, nil
		}
	}
	return nil, fmt.Errorf("not whole within 40 s: %v: %+v", err, chains)
}

// lastMember returns whether a switch may be the only member of a chain. If such a switch were
// killed, the chain's values would be lost, and reads would not be linearizable.
func (r *adversaryRun) lastMember(sw string) bool {
	var chains []admin.Chain
	err := r.try(func(ctx context.Context) (err error) { chains, err = r.api.Chains(ctx); return err })
	return err != nil || slices.ContainsFunc(chains, func(c admin.Chain) bool {
		others := slices.DeleteFunc(slices.Clone(c.Members), func(m admin.Member) bool {
			return m.Switch == sw || m.Role == "SHADOW" || m.Role == "NONE"
		})
		return len(c.Members) > len(others) && len(others) == 0
	})
}

func (r *adversaryRun) numberOf(sw string) int {
	return slices.Index([]string{"", "s1", "s2", "s3", "s4", "s5"}, sw)
}

// disturbOutsider kills and restarts the switch that is in no chain.
func (r *adversaryRun) disturbOutsider(random *rand.Rand) {
	const outside = 5
	for n := 0; !r.over(random, 2*time.Second); n++ {
		pause := time.Duration(random.Int64N(int64(time.Second)))
		if n%2 == 0 {
			r.Network.KillSwitch(outside)
			time.Sleep(pause)
			r.Network.StartSwitch(outside)
			r.done[outsiderKilled].Add(1)
			continue
		}
		r.Network.Proxies[outside].SetCut(true)
		time.Sleep(pause)
		r.Network.Proxies[outside].SetCut(false)
		r.done[outsiderCutOff].Add(1)
	}
}

// generation runs the clients on a set of names for a while. Meanwhile other goroutines move,
// remove and add these names.
func (r *adversaryRun) generation(g int, guests []*lab.Host) (history []linearizable.Call) {
	var mu sync.Mutex
	add := func(all ...linearizable.Call) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, all...)
	}
	var all []string
	for _, kind := range kindsOfName {
		name := fmt.Sprintf("%d-%s", g, kind)
		all = append(all, name)
		add(r.addName(name, "main", 0)...)
	}
	end := time.Now().Add(generation)
	var wg sync.WaitGroup
	for i, guest := range guests {
		wg.Go(func() {
			reply, err := guest.Request(lab.HostRequest{Named: &lab.NamedWork{
				Client: g*len(guests) + i, Admin: []string{r.Socket(0), r.Socket(1)},
				Services: []netip.Addr{lab.ServiceAddrOf(3), lab.ServiceAddrOf(4)}, Names: all,
				Duration: time.Until(end),
			}})
			if err != nil {
				r.Network.T.Errorf("client %d: %v", i, err)
			}
			add(reply.Named...)
		})
	}
	random := rand.New(rand.NewPCG(uint64(g), 16))
	for _, name := range all {
		seed := random.Uint64()
		switch {
		case strings.Contains(name, "wanders"):
			wg.Go(func() { add(r.wander(name, end, rand.New(rand.NewPCG(seed, 17)))...) })
		case strings.Contains(name, "comes"):
			wg.Go(func() { add(r.comeAndGo(name, end, rand.New(rand.NewPCG(seed, 18)))...) })
		}
	}
	wg.Wait()
	for _, name := range all {
		if k, there := r.find(name); there {
			add(r.removeName(name, k)...)
		}
	}
	return history
}

// find repeats a lookup until a controller knows where a name is, or that the name does not exist.
func (r *adversaryRun) find(name string) (k admin.Key, there bool) {
	var err error
	for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var got *admin.Key
		err = r.try(func(ctx context.Context) (err error) { got, err = r.api.Lookup(ctx, name); return err })
		if err == nil {
			return *got, true
		}
		if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
			return k, false
		}
	}
	r.Network.T.Errorf("no controller says within 25 s where %s is: %v", name, err)
	return k, false
}

// addName adds a key with a unique value, and retries until the key exists.
func (r *adversaryRun) addName(name, chain string, n int) []linearizable.Call {
	x := linearizable.Call{Client: -1, Name: name, Op: linearizable.Add, Value: fmt.Sprint("new.", n),
		Begin: time.Now().UnixNano()}
	for {
		err := r.try(func(ctx context.Context) error {
			_, err := r.api.AddKey(ctx, chain, admin.KeySpec{Name: name, Value: []byte(x.Value)})
			return err
		})
		// After an error, the key may have been added, and a new controller may still be completing
		// that.
		if k, there := r.find(name); there {
			x.Key, x.End = k.KeyID, time.Now().UnixNano()
			first := x
			first.Op = linearizable.First
			return []linearizable.Call{x, first}
		}
		if err == nil {
			r.Network.T.Errorf("%s was added and is nowhere", name)
			return nil
		}
	}
}

// removeName removes a key, and retries until the key does not exist.
func (r *adversaryRun) removeName(name string, k admin.Key) []linearizable.Call {
	x := linearizable.Call{Client: -1, Name: name, Op: linearizable.Remove, Key: k.KeyID, Begin: time.Now().UnixNano()}
	for {
		r.try(func(ctx context.Context) error { return r.api.RemoveKey(ctx, k.Chain, name) })
		if _, there := r.find(name); !there {
			x.End = time.Now().UnixNano()
			clear := x
			clear.Op = linearizable.Clear
			return []linearizable.Call{clear, x}
		}
	}
}

// comeAndGo removes a key and adds it again, repeatedly. Some keys stay removed until another
// controller leads, which knows only from its record which versions the name has had.
func (r *adversaryRun) comeAndGo(name string, end time.Time, random *rand.Rand) (history []linearizable.Call) {
	for n := 1; ; n++ {
		time.Sleep(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		if !time.Now().Before(end) {
			return history
		}
		k, _ := r.find(name)
		history = append(history, r.removeName(name, k)...)
		time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
		if random.IntN(3) == 0 {
			disturbed := func() int64 { return r.done[controllerKilled].Load() + r.done[controllerStopped].Load() }
			for before := disturbed(); disturbed() == before && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			r.done[keyTakenOver].Add(1)
		}
		history = append(history, r.addName(name, []string{"main", "side"}[random.IntN(2)], n)...)
		r.done[keyRemoved].Add(1)
	}
}

// wander moves a key to the other chain and back, repeatedly.
func (r *adversaryRun) wander(name string, end time.Time, random *rand.Rand) (history []linearizable.Call) {
	k, _ := r.find(name)
	for {
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		if !time.Now().Before(end) {
			return history
		}
		to := "main"
		if k.Chain == to {
			to = "side"
		}
		x := linearizable.Call{Client: -2, Name: name, Op: linearizable.Move, Key: k.KeyID, Begin: time.Now().
			UnixNano()}
		r.try(func(ctx context.Context) error { _, err := r.api.MoveKey(ctx, k.Chain, name, to); return err })
		// The controller completes or undoes an earlier move before it says where the key is.
		now, there := r.find(name)
		if !there {
			r.Network.T.Errorf("%s was lost by a move", name)
			return history
		}
		x.To, x.End = now.KeyID, time.Now().UnixNano()
		history = append(history, x)
		if now.KeyID != k.KeyID {
			r.done[keyMoved].Add(1)
		}
		k = now
	}
}

// checkNamed checks the history of a generation.
func checkNamed(t *testing.T, g int, history []linearizable.Call) {
	// During a move, one switch after the other hides the key. If the move fails, the key becomes
	// visible again. In between, the answer that the key has no slot says nothing about the key
	// (docs/consistency.md).
	hidden := func(x linearizable.Call) bool {
		return x.Absent && slices.ContainsFunc(history, func(m linearizable.Call) bool {
			return m.Op == linearizable.Move && m.Key == x.Key && m.Begin < x.End && x.Begin < m.End
		})
	}
	ops := linearizable.Operations(slices.DeleteFunc(slices.Clone(history), hidden))
	for _, name := range linearizable.Names.Partition(ops) {
		if result := porcupine.CheckOperationsTimeout(linearizable.Names, name, 2*time.Minute); result != porcupine.Ok {
			t.Errorf("the history of generation %d is not linearizable: %v\n%s", g, result, lab.Around(linearizable.Names, name))
		}
	}
}
