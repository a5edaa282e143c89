package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/linearizable"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/test/system/lab"
)

// In TestNodeAPI, programs use the node API at two nodes during faults. All of these faults happen
// at the same time: the nodes' servers are killed or stopped; members of chains are killed or cut
// off, and brought in again; the leading controller of two is killed or stopped; keys are moved
// from chain to chain; and cables lose, double and reorder frames. Afterwards these conditions must
// hold:
//
//   - the programs' history of keys is linearizable, including versions, over all moves, and no
//     acknowledged write is lost;
//   - no lock had two holders with the same token, tokens grew, and a counter that the tokens guard
//     lost no increment (nodelocks_test.go). The same holds for leaders, and all programs see the
//     leaders in the order of their tokens (nodeelections_test.go). No semaphore had more holders
//     than permits (nodesemaphores_test.go);
//   - no program received an instance of a service that had been gone for longer than its time to
//     live (nodeservices_test.go);
//   - watchers saw growing versions and only written values, and in the end the newest version
//     (nodewatches_test.go).
//
// The test does not depend on speed: its time limits are generous. `make nodeapi-histories` is the
// long run. The variables NETCRAQ_SURVIVE_ENGINES and _SECONDS have the same meaning as for
// TestSurvive. NETCRAQ_SURVIVE_CALM omits all faults.
func TestNodeAPI(t *testing.T) {
	for _, engine := range strings.Split(setting("ENGINES", "auto"), ",") {
		t.Run(engine, func(t *testing.T) { nodeAPI(t, engine) })
	}
}

// nodeNamespace is the namespace of all keys in TestNodeAPI.
const nodeNamespace = "shop"

// nodeRun is one run of TestNodeAPI.
type nodeRun struct {
	adversaryRun
	servers  []*lab.NodeServer
	programs []*node.Client
	killed   atomic.Int64 // number of killed servers
	stopped  atomic.Int64 // number of stopped servers
	moved    atomic.Int64 // number of moved keys
	taken    atomic.Int64 // number of acquired locks
	elected  atomic.Int64 // number of elected leaders
	permits  atomic.Int64 // number of acquired permits
	sighted  atomic.Int64 // number of leaders in answers to queries
	served   atomic.Int64 // number of service instances in answers to queries
	told     atomic.Int64 // number of events of watches
}

func nodeAPI(t *testing.T, engine string) {
	lab.MustLook(t, "etcd")
	if engine == "bmv2" {
		lab.MustLook(t, "simple_switch_grpc")
	}
	if !lab.InNamespace(t) {
		return
	}
	duration := time.Duration(number(t, "SECONDS", 16)) * time.Second
	nw := lab.NewNetwork(t, engine, lab.Layout{N: 4, Links: [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 1}, {1, 3}},
		Faults: surviveFaults, Chains: []lab.Chain{
			{ID: 3, Name: "main", Members: []int{1, 2, 3}, Lease: adversaryLease, Patience: adversaryLease / 2},
			{ID: 4, Name: "side", Members: []int{3, 4}, Lease: adversaryLease, Patience: adversaryLease / 2},
		}})
	r := &nodeRun{adversaryRun: adversaryRun{Team: lab.StartTeam(nw)}}
	r.api = admin.NewClient(r.Socket(0) + "," + r.Socket(1))
	if _, err := r.whole(); err != nil {
		t.Fatal(err)
	}
	for _, host := range []int{1, 4} {
		r.servers = append(r.servers, lab.StartNodeServer(nw, host, nodeNamespace, r.Socket(0), r.Socket(1)))
	}
	for i := range 4 {
		p, err := node.Connect(t.Context(), node.Config{Socket: r.servers[i%len(r.servers)].Socket,
			Agent: fmt.Sprint("program ", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			p.Close(ctx) // Locks that this client still holds end with the network.
		})
		r.programs = append(r.programs, p)
	}

	r.end = time.Now().Add(duration)
	calm := setting("CALM", "") != ""
	if !calm {
		for i, loop := range []func(*rand.Rand){r.disturbServers, r.disturbMembers, r.disturbControllers} {
			r.wg.Go(func() { loop(rand.New(rand.NewPCG(uint64(i), 25))) })
		}
	}
	calls, unknown := 0, 0
	var checks sync.WaitGroup
	// On a busy machine, the test continues without faults until enough calls were made.
	enough := func() bool {
		return calls >= 200 && r.taken.Load() >= 3 && r.elected.Load() >= 3 && r.permits.Load() >= 3 &&
			r.sighted.Load() >= 20 && r.served.Load() >= 20 && r.told.Load() >= 20
	}
	last := r.end.Add(40 * time.Second)
	for g := 0; g == 0 || time.Now().Before(r.end) || time.Now().Before(last) && !enough() && !t.Failed(); g++ {
		history := r.nodeGeneration(g, calm)
		calls += len(history)
		for _, x := range history {
			if x.Unknown {
				unknown++
			}
		}
		checks.Go(func() { checkNodeHistory(t, g, history) })
	}
	r.wg.Wait()
	checks.Wait()
	t.Logf("%s, %d s: %d calls, %d of unknown outcome, %d locks and %d permits taken, %d elected and %d seen to lead, "+
		"%d instances and %d events told, all as it may be: %v; "+
		"%d servers killed, %d stopped, %d members killed, %d cut off, %d leading controllers killed, %d stopped, %d keys moved",
		engine, int(duration.Seconds()), calls, unknown, r.taken.Load(), r.permits.Load(), r.elected.Load(),
		r.sighted.Load(), r.served.Load(), r.told.Load(), !t.Failed(),
		r.killed.Load(), r.stopped.Load(), r.done[memberKilled].Load(), r.done[memberCutOff].Load(),
		r.done[controllerKilled].Load(),
		r.done[controllerStopped].Load(), r.moved.Load())
	if !enough() {
		t.Error("too little was done: this says little")
	}
	for what, n := range map[string]*atomic.Int64{"server was killed": &r.killed, "server was stopped": &r.stopped,
		"key was moved": &r.moved, "member was killed": &r.done[memberKilled],
		"leading controller was killed": &r.done[controllerKilled]} {
		switch {
		case calm || n.Load() > 0:
		case duration < time.Minute:
			// In a short run, a busy machine may not have time for each kind of fault.
			t.Logf("no %s in this short run", what)
		default:
			t.Errorf("too little has happened, this says little: no %s", what)
		}
	}
	r.reportNews()
}

// disturbServers kills the nodes' servers and restarts them. It also stops a server for about as
// long as the server's sessions and the leases of locks last. When a stopped server continues, it
// handles old requests.
func (r *nodeRun) disturbServers(random *rand.Rand) {
	for n := 0; !r.over(random, 3*time.Second); n++ {
		s := r.servers[random.IntN(len(r.servers))]
		if n%2 == 0 {
			s.Kill()
			r.killed.Add(1)
			time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
			s.Start()
			continue
		}
		s.Signal(syscall.SIGSTOP)
		time.Sleep(time.Second/2 + time.Duration(random.Int64N(int64(3*time.Second))))
		s.Signal(syscall.SIGCONT)
		r.stopped.Add(1)
	}
}

// nodeKeys are the keys in a generation. Some have arbitrary values, others have numbers.
type nodeKeys struct {
	generation int
	names      []string
}

func keysOf(g int) nodeKeys {
	k := nodeKeys{generation: g}
	for _, kind := range []string{"a", "b", "n", "m"} {
		k.names = append(k.names, k.prefix()+kind)
	}
	return k
}

func (k nodeKeys) prefix() string         { return fmt.Sprintf("g%d/", k.generation) }
func (k nodeKeys) number(which int) bool  { return which >= 2 }
func (k nodeKeys) keyID(which int) uint32 { return uint32(which + 1) }

// nodeGeneration lets the programs use new keys for a while, and checks their locks and watches.
func (r *nodeRun) nodeGeneration(g int, calm bool) (history []linearizable.Call) {
	keys := keysOf(g)
	end := time.Now().Add(generation)
	var mu sync.Mutex
	add := func(all []linearizable.Call) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, all...)
	}
	watchers := r.watchAll(keys)
	name := fmt.Sprintf("g%d", g)
	contest, lock := contestForLock(r.Network.T, name)
	election, semaphore := newElection(r.Network.T, name), newSemaphore(r.Network.T, name, 2)
	contests := []*nodeContest{contest, election.nodeContest, semaphore.nodeContest}
	service := newService(r.Network.T, name)
	var wg sync.WaitGroup
	for i, p := range r.programs {
		wg.Go(func() { add(r.useKeys(p, i, keys, end)) })
		random := func(n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(g), uint64(100*n+i))) }
		for n, c := range contests {
			wg.Go(func() { c.compete(p, random(1+n), end) })
		}
		wg.Go(func() { election.look(p, random(4), end) })
		wg.Go(func() { service.run(p, i, random(5), end) })
		wg.Go(func() { service.call(p, random(6), end) })
	}
	if !calm {
		for i, name := range []string{keys.names[1], keys.names[3], "~lock/" + name, "~election/" + name,
			"~permit/" + name + "/0"} {
			wg.Go(func() { r.moveAbout(name, end, rand.New(rand.NewPCG(uint64(g), uint64(70+i)))) })
		}
	}
	wg.Wait()
	for _, c := range contests {
		c.last(r.programs[g%len(r.programs)])
	}
	for _, p := range r.programs[:len(r.servers)] {
		service.last(p)
	}
	for what, errs := range map[string][]error{contest.what: lock.check(), election.what: election.check(),
		semaphore.what: semaphore.check(), "the service " + name: service.check()} {
		for _, err := range errs {
			r.Network.T.Errorf("%s: %v", what, err)
		}
	}
	r.taken.Add(int64(len(lock.holds)))
	r.elected.Add(int64(len(election.lead.holds)))
	r.permits.Add(int64(len(semaphore.holds())))
	r.sighted.Add(int64(len(election.sightings)))
	r.served.Add(int64(service.told))
	// newest has the final versions, on which all nodes must agree.
	newest := make([]wire.Version, len(keys.names))
	for i, p := range r.programs[:len(r.servers)] {
		for which := range keys.names {
			x := linearizable.Call{Client: 100 + i, Key: keys.keyID(which), Op: wire.Read}
			poll.Until(r.Network.T, 90*time.Second, "the last read of "+keys.names[which], func() bool {
				executed, err := callNode(r.Network.T.Context(), p, keys.names[which], keys.number(which), 0, &x)
				if err != nil {
					r.Network.T.Error(err)
				}
				return executed
			})
			newest[which] = max(newest[which], x.Version)
			history = append(history, x)
		}
	}
	r.told.Add(int64(watchers.check(keys, newest, history)))
	return history
}

// useKeys makes calls on the keys of a generation until end.
func (r *nodeRun) useKeys(p *node.Client, program int, keys nodeKeys, end time.Time) (history []linearizable.Call) {
	random := rand.New(rand.NewPCG(uint64(keys.generation), uint64(program)))
	seen := make([]wire.Version, len(keys.names))
	for n := 0; time.Now().Before(end); n++ {
		which := random.IntN(len(keys.names))
		x := linearizable.Call{Client: program, Key: keys.keyID(which), Op: wire.Read, Expected: seen[which],
			Value: fmt.Sprintf("%d.%d", program, n)}
		if keys.number(which) {
			x.Value = fmt.Sprint(1000 * random.IntN(1000))
		}
		executed, err := callNode(r.Network.T.Context(), p, keys.names[which], keys.number(which), random.IntN(20), &x)
		if err != nil {
			r.Network.T.Errorf("program %d, %+v: %v", program, x, err)
			return history
		}
		if executed {
			history = append(history, x)
		}
		if x.Version != 0 {
			seen[which] = x.Version
		}
		time.Sleep(time.Duration(random.Int64N(int64(8 * time.Millisecond))))
	}
	return history
}

// callNode makes one call of the node API, of the given kind. It returns whether the call got an
// answer or may have had an effect. It returns an error if the call failed in a way that must not
// occur.
func callNode(ctx context.Context, p *node.Client, key string, number bool, kind int, x *linearizable.Call) (
	executed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	expected := node.Never
	if x.Expected != 0 {
		expected = node.Version(x.Expected.String())
	}
	var got node.Item
	done := true
	x.Begin = time.Now().UnixNano()
	switch {
	case kind < 7:
		got, err = p.Get(ctx, key)
	case kind < 12 && number:
		x.Op = linearizable.Increment
		var n int64
		n, got.Version, err = p.Increment(ctx, key, 1)
		x.Value = strconv.FormatInt(n, 10)
	case kind < 14:
		x.Op = wire.Write
		got.Version, err = p.Put(ctx, key, []byte(x.Value))
	case kind < 18:
		x.Op = wire.CAS
		got, done, err = p.CAS(ctx, key, expected, []byte(x.Value))
	case kind < 19:
		x.Op, x.Delete, x.Value = wire.CAS, true, ""
		got, done, err = p.Delete(ctx, key, node.IfVersion(expected))
	default:
		x.Op, x.Delete, x.Value = wire.Write, true, ""
		got, _, err = p.Delete(ctx, key)
	}
	x.End = time.Now().UnixNano()
	switch node.CodeOf(err) {
	case node.CodeOutcomeUnknown:
		if x.Op == wire.Read {
			return false, err
		}
		x.Unknown = true
		return true, nil
	case node.CodeUnavailable, node.CodeTimeout, node.CodeDraining:
		// With these codes, the call had no effect.
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if x.Failed = !done; x.Op == wire.Read || x.Failed {
		x.Found, x.Got = got.Found, string(got.Value)
	}
	x.Version, err = versionOf(got.Version)
	return true, err
}

func versionOf(v node.Version) (wire.Version, error) {
	if v == node.Never {
		return 0, nil
	}
	return wire.ParseVersion(string(v))
}

// moveAbout moves a key to the other chain and back, if it exists.
func (r *nodeRun) moveAbout(key string, end time.Time, random *rand.Rand) {
	name := nodeapi.KeyName(nodeNamespace, key)
	for {
		time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
		if !time.Now().Before(end) {
			return
		}
		// The move may fail, because there may be no leader, or a chain may lack a member.
		_ = r.try(func(ctx context.Context) error {
			k, err := r.api.Lookup(ctx, name)
			if err != nil {
				return err
			}
			to := map[string]string{"main": "side", "side": "main"}[k.Chain]
			if _, err = r.api.MoveKey(ctx, k.Chain, name, to); err == nil {
				r.moved.Add(1)
			}
			return err
		})
	}
}

// checkNodeHistory checks the programs' history of a generation's keys. Only these programs have
// written the keys.
func checkNodeHistory(t *testing.T, g int, history []linearizable.Call) {
	for _, key := range linearizable.Registers.Partition(linearizable.Operations(history)) {
		switch porcupine.CheckOperationsTimeout(linearizable.Registers, key, time.Minute) {
		case porcupine.Illegal:
			t.Errorf("the history of generation %d is not linearizable:\n%s", g, lab.Around(linearizable.Registers, key))
		case porcupine.Unknown:
			t.Logf("generation %d: the history of the key %d was not searched through in time", g,
				key[0].Input.(linearizable.Call).Key)
		}
	}
}
