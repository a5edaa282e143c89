package guarded

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/etcderrors"
)

// op is one request of a simulated client.
type op struct {
	gw         *gateway
	what       string
	start, end int // end is 0 while the request has not ended
	lost       bool
	err        error

	key    string             // the key that a read reads
	kvs    []*mvccpb.KeyValue // the result of a read, which has at most one pair
	header *pb.ResponseHeader
	newest int64 // the newest revision in the gateway's answers before this request began
	beyond bool  // the answer names a revision that etcd has not reached

	value string // the value of a write; each write has a different value
	did   bool   // according to the answer, the write was executed
}

func (o *op) String() string {
	return fmt.Sprintf("%d..%d gateway %d %s: %v %v %v", o.start, o.end, o.gw.id, o.what, o.kvs, o.header, o.err)
}

// client makes one random request at a gateway.
func (w *world) client(g *gateway) {
	o := &op{gw: g, start: w.now, newest: g.answered}
	w.history = append(w.history, o)
	key := simKeys[w.r.IntN(len(simKeys))]
	ctx := context.Background()
	if w.chance(0.05) { // This client has a short timeout.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		w.spawn(nil, func() {
			w.Wait(context.Background(), nil, time.Duration(1+w.r.IntN(60))*perStep)
			cancel()
		})
	}
	w.values++
	value := fmt.Sprint("v", w.values)
	put := func(key string) *pb.RequestOp { return putOp(key, value) }
	switch p := w.r.IntN(100); {
	case p < 50:
		o.what, o.key = "read "+key, key
		q := &pb.RangeRequest{Key: []byte(key)}
		var r *pb.RangeResponse
		now := false
		if w.values%2 == 0 { // The gateway also tries RangeNow first.
			r, now = g.server.RangeNow(q)
		}
		if !now {
			r, o.err = g.server.Range(ctx, q)
		}
		if o.err == nil {
			o.kvs, o.header = r.Kvs, r.Header
		}
	case p < 70:
		o.what, o.value = "put "+key+" "+value, value
		q := &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
		if w.chance(0.1) {
			q.Lease = int64(6 + w.r.IntN(2)) // only the second of these two leases exists
			o.what += fmt.Sprint(" with lease ", q.Lease)
		}
		var r *pb.PutResponse
		if r, o.err = g.server.Put(ctx, q); o.err == nil {
			o.header, o.did = r.Header, true
		}
	case p < 80:
		q := &pb.DeleteRangeRequest{Key: []byte(key)}
		if w.chance(0.4) {
			// This range includes the gateways' own keys.
			q.Key, q.RangeEnd = []byte("a"), []byte{0}
		}
		o.what = fmt.Sprintf("delete %q %q", q.Key, q.RangeEnd)
		var r *pb.DeleteRangeResponse
		if r, o.err = g.server.DeleteRange(ctx, q); o.err == nil {
			o.header = r.Header
		}
	default:
		a, b := simKeys[w.r.IntN(len(simKeys))], simKeys[w.r.IntN(len(simKeys))]
		t := &pb.TxnRequest{Success: []*pb.RequestOp{put(a)}}
		if a != b {
			t.Success = append(t.Success, put(b))
		}
		o.what, o.value = fmt.Sprintf("txn %s %s %s", a, b, value), value
		if w.chance(0.4) { // The transaction has a condition that may or may not hold.
			t.Compare = []*pb.Compare{{Target: pb.Compare_VERSION, Result: pb.Compare_LESS, Key: []byte(key),
				TargetUnion: &pb.Compare_Version{Version: int64(w.r.IntN(4))}}}
			t.Failure = deleteTxn(key, "").Success
		}
		var r *pb.TxnResponse
		if r, o.err = g.server.Txn(ctx, t); o.err == nil {
			o.header, o.did = r.Header, r.Succeeded
		}
	}
	o.end = w.now
	if o.header != nil {
		o.beyond = o.header.Revision > w.etcd.revision
		g.Saw(o.header.Revision) // The gateway also calls Saw for each answer.
		g.answered = max(g.answered, o.header.Revision)
	}
	w.note("%v", o)
}

// simulate runs a seed and returns the world at its end.
func simulate(seed uint64, steps int, without string, trace bool) *world {
	w := newWorld(seed, 0)
	w.without, w.trace = without, trace
	for range 2 + w.r.IntN(2) {
		w.gateway()
	}
	defer w.stop()
	w.self = &task{}
	for _, k := range simKeys {
		w.spawn(nil, func() { w.place(k) })
	}
	watch := func() {
		for _, g := range w.gateways {
			for g.seen < len(w.placing) && w.chance(0.03) {
				g.dir.Apply(w.placing[g.seen : g.seen+1])
				g.seen++
			}
		}
	}
	outstanding := func() int {
		n := 0
		for _, o := range w.history {
			if o.end == 0 && !o.lost {
				n++
			}
		}
		return n
	}
	for range steps {
		if len(w.broken) > 0 {
			return w
		}
		if w.chance(0.08) && outstanding() < 8 {
			g := w.gateways[w.r.IntN(len(w.gateways))]
			w.spawn(g, func() { w.client(g) })
		}
		watch()
		if w.hostile && w.chance(0.006) {
			w.attack()
		}
		if w.chance(0.0007) {
			w.rotate()
			g := w.gateways[w.r.IntN(len(w.gateways))]
			w.spawn(g, func() { g.server.Reseal(g.ctx) })
		}
		if g := w.gateways[w.r.IntN(len(w.gateways))]; w.chance(0.01) {
			// The gateway's watch delivers the newest sealing keys.
			g.ring = w.ring
		}
		if w.chance(0.002) {
			w.crash(w.gateways[w.r.IntN(len(w.gateways))])
		}
		w.expire(0.01, 0.001)
		// a lease expires
		if kv := w.etcd.keys[simKeys[w.r.IntN(len(simKeys))]]; kv != nil && kv.Lease != 0 && w.chance(0.01) {
			w.etcd.doTxn(deleteTxn(string(kv.Key), ""))
		}
		w.step()
	}
	// From here on there are no faults, and everything must complete.
	w.faults = 0
	for range 40000 {
		if len(w.broken) > 0 || outstanding() == 0 {
			break
		}
		watch()
		w.expire(0.01, 0)
		w.step()
	}
	if len(w.broken) == 0 && outstanding() > 0 {
		var which []string
		for _, o := range w.history {
			if o.end == 0 && !o.lost {
				which = append(which, o.String())
			}
		}
		w.broken = append(w.broken, fmt.Sprintf("%d requests do not come to their end: %s", outstanding(), strings.Join(which, "; ")))
	}
	w.checkHistory()
	return w
}

// expire makes sessions expire. These are mostly sessions of crashed gateways, and occasionally the
// session of a running gateway.
func (w *world) expire(dead, living float64) {
	for _, kv := range w.etcd.find([]byte(simPrefix+"sessions/"), []byte(clientv3.GetPrefixRangeEnd(simPrefix+"sessions/"))) {
		p := dead
		for _, g := range w.gateways {
			if g.lease != 0 && g.Key(g.lease) == string(kv.Key) {
				p = living
			}
		}
		if w.chance(p) {
			w.note("session %s runs out", kv.Key)
			w.etcd.doTxn(deleteTxn(string(kv.Key), ""))
		}
	}
}

// checkHistory checks the answers. Each read must return a state that etcd had between the read's
// beginning and its end. Each write must have been executed as its answer says.
func (w *world) checkHistory() {
	complain := func(o *op, format string, args ...any) {
		w.broken = append(w.broken, fmt.Sprintf("%v: %s", o, fmt.Sprintf(format, args...)))
	}
	executed := map[string][]int{}  // the times at which each value was written
	revisions := map[string]int64{} // the revision at which each value was written
	for _, states := range w.states {
		for _, s := range states {
			if s.kv != nil && !slices.Contains(executed[string(s.kv.Value)], s.from) {
				executed[string(s.kv.Value)] = append(executed[string(s.kv.Value)], s.from)
				revisions[string(s.kv.Value)] = s.kv.ModRevision
			}
		}
	}
	for _, o := range w.history {
		if o.value != "" {
			at := executed[o.value]
			switch {
			case len(at) > 1:
				complain(o, "was executed at %v", at)
			case o.end != 0 && etcderrors.Definite(o.err) && len(at) > 0:
				complain(o, "was refused, and executed at %v", at)
			case o.end != 0 && o.err == nil && o.did != (len(at) == 1):
				complain(o, "says %v, and was executed at %v", o.did, at)
			case o.end != 0 && o.did && (at[0] < o.start || at[0] > o.end):
				complain(o, "was executed at %v", at)
			case o.end != 0 && o.did && o.err == nil && o.header.Revision != revisions[o.value]:
				complain(o, "was executed in revision %d", revisions[o.value])
			}
		}
		if o.end == 0 || o.err != nil {
			continue
		}
		if o.beyond {
			complain(o, "etcd has not come to that revision")
		}
		if o.header.Revision < o.newest {
			complain(o, "the revision goes back from %d", o.newest)
		}
		if o.key == "" {
			continue
		}
		if len(o.kvs) > 0 && o.kvs[0].ModRevision > o.header.Revision {
			complain(o, "the header's revision is below the key's")
		}
		ok := false
		states := w.states[o.key]
		for i, s := range states {
			if s.from > o.end || i+1 < len(states) && states[i+1].from < o.start {
				continue
			}
			ok = ok || s.is(o.kvs)
		}
		if !ok {
			complain(o, "etcd did not have that at any time between")
		}
		// A client that reads a key, and then watches from the next revision after the answer's,
		// must miss nothing.
		then := states[0]
		for _, s := range states {
			if s.revision <= o.header.Revision {
				then = s
			}
		}
		if !then.is(o.kvs) {
			complain(o, "at the header's revision etcd had %v", then.kv)
		}
	}
}

// is reports whether kvs, the result of a read, is this state.
func (s state) is(kvs []*mvccpb.KeyValue) bool {
	return s.kv == nil && len(kvs) == 0 || s.kv != nil && len(kvs) == 1 && sameKV(s.kv, kvs[0])
}

func sameKV(a, b *mvccpb.KeyValue) bool {
	return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) &&
		a.CreateRevision == b.CreateRevision && a.ModRevision == b.ModRevision && a.Version == b.Version &&
		a.Lease == b.Lease
}

var (
	simSeeds = flag.Uint64("sim.seeds", 0, "how many seeds the simulator runs; 0: as testSizes says")
	simFrom  = flag.Uint64("sim.from", 1, "the first of them")
)

const simSteps = 3000

// With all rules, no run finds an error.
func TestSimulator(t *testing.T) {
	var reads, hits, writes, crashes, forged, rotated int
	seeds, _ := testSizes()
	if *simSeeds > 0 {
		seeds = *simSeeds
	}
	for seed := *simFrom; seed < *simFrom+seeds; seed++ {
		w := simulate(seed, simSteps, "", false)
		if len(w.broken) > 0 {
			w = simulate(seed, simSteps, "", true)
			t.Fatalf("seed %d (go test -run TestSimulator -sim.from %d -sim.seeds 1): %s\n%s", seed, seed, w.broken[0], strings.Join(w.log[max(0, len(w.log)-150):], "\n"))
		}
		for _, o := range w.history {
			switch {
			case o.lost:
				crashes++
			case o.key != "" && o.err == nil:
				reads++
			case o.err == nil:
				writes++
			}
		}
		hits += w.hits
		forged += w.forged
		rotated += w.rotated
	}
	t.Logf("%d seeds: %d reads were answered, %d of them by the network; %d writes; %d requests were lost with their gateway; %d forged slots were found; %d new keys", seeds, reads, hits, writes, crashes,
		forged, rotated)
	if hits*20 < reads || writes == 0 || crashes == 0 || forged == 0 || rotated == 0 {
		t.Errorf("too little happens")
	}
}
