package guarded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/wire"
)

// envLinearizable is how long TestLinearizable goes on; a Go duration.
const envLinearizable = "NETCRAQ_LINEARIZABLE"

// keyState is a key of etcd's as a history tells of it. mod and create may be not known, of a value whose writer had no answer: unknown, until somebody reads it.
type keyState struct {
	there                bool
	value                string
	create, mod, version int64
}

const unknown = -1

// keyInput is what was asked about one key, and keyOutput what was answered.
type keyInput struct {
	key   string
	write bool
	there bool   // of a write: it leaves a value
	value string // this one
}

type keyOutput struct {
	known bool // the answer came
	did   bool // of a write: it changed the key
	rev   int64
	state keyState // of a read
}

// matches says whether what is known of a key agrees with what was read, and what is known then.
func matches(s, read keyState) (keyState, bool) {
	if s.there != read.there || s.value != read.value {
		return s, false
	}
	if !s.there {
		return s, true
	}
	if s.version != read.version {
		return s, false
	}
	if s.mod != unknown && s.mod != read.mod || s.create != unknown && s.create != read.create {
		return s, false
	}
	return read, true
}

// keyModel is one key of etcd's, with its revisions.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(keyInput).key
			by[k] = append(by[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(keyState), input.(keyInput), output.(keyOutput)
		switch {
		case !in.write:
			now, ok := matches(s, out.state)
			return ok, now
		case out.known && !out.did: // a deletion of nothing
			return !s.there, s
		case out.known && s.there && s.mod != unknown && out.rev <= s.mod:
			return false, s
		case !in.there:
			return !out.known || s.there, keyState{}
		}
		next := keyState{there: true, value: in.value, create: s.create, mod: out.rev, version: s.version + 1}
		if !out.known {
			next.mod = unknown
		}
		if !s.there {
			next.create, next.version = next.mod, 1
		}
		return true, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// TestKeyModel: the model takes what etcd does and nothing else.
func TestKeyModel(t *testing.T) {
	put := func(v string, rev int64) porcupine.Operation {
		return porcupine.Operation{Input: keyInput{key: "k", write: true, there: true, value: v}, Output: keyOutput{known: rev != 0, did: true, rev: rev}}
	}
	read := func(s keyState) porcupine.Operation {
		return porcupine.Operation{Input: keyInput{key: "k"}, Output: keyOutput{known: true, state: s}}
	}
	at := func(value string, create, mod, version int64) keyState {
		return keyState{true, value, create, mod, version}
	}
	remove := porcupine.Operation{Input: keyInput{key: "k", write: true}, Output: keyOutput{known: true, did: true, rev: 50}}
	for name, test := range map[string]struct {
		ops []porcupine.Operation // one after the other
		ok  bool
	}{
		"as written":              {[]porcupine.Operation{put("a", 5), read(at("a", 5, 5, 1)), put("b", 7), read(at("b", 5, 7, 2))}, true},
		"stale":                   {[]porcupine.Operation{put("a", 5), put("b", 7), read(at("a", 5, 5, 1))}, false},
		"another mod revision":    {[]porcupine.Operation{put("a", 5), read(at("a", 5, 6, 1))}, false},
		"another version":         {[]porcupine.Operation{put("a", 5), read(at("a", 5, 5, 2))}, false},
		"revisions go back":       {[]porcupine.Operation{put("a", 5), put("b", 4)}, false},
		"created anew":            {[]porcupine.Operation{put("a", 5), remove, put("b", 60), read(at("b", 60, 60, 1))}, true},
		"not created anew":        {[]porcupine.Operation{put("a", 5), remove, put("b", 60), read(at("b", 5, 60, 2))}, false},
		"an unanswered one":       {[]porcupine.Operation{put("a", 0), read(at("a", 5, 5, 1)), read(at("a", 5, 5, 1))}, true},
		"an unanswered one, two":  {[]porcupine.Operation{put("a", 0), read(at("a", 5, 5, 1)), read(at("a", 6, 6, 1))}, false},
		"absent":                  {[]porcupine.Operation{put("a", 5), remove, read(keyState{})}, true},
		"absent though it is not": {[]porcupine.Operation{put("a", 5), read(keyState{})}, false},
	} {
		for i := range test.ops {
			test.ops[i].Call, test.ops[i].Return = int64(2*i), int64(2*i+1)
		}
		if got := porcupine.CheckOperations(keyModel, test.ops); got != test.ok {
			t.Errorf("%s: linearizable %v; want %v", name, got, test.ok)
		}
	}
}

// history collects what clients see.
type history struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// add takes in an answer, to be ordered between call and now; a write without one may be executed at any later time.
func (h *history) add(client int, call int64, in keyInput, out keyOutput) {
	end := h.now()
	if !out.known {
		if !in.write {
			return
		}
		end = 1 << 62
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: end})
}

func stateOf(kvs []*mvccpb.KeyValue) keyState {
	if len(kvs) == 0 {
		return keyState{}
	}
	kv := kvs[0]
	return keyState{true, string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version}
}

// refused says whether an error means that nothing was executed.
func refused(err error) bool {
	return definite(err) || strings.Contains(err.Error(), "nothing was written")
}

// worker makes requests at one gateway after the other.
func (h *history) worker(ctx context.Context, t *testing.T, client int, gateway func() *liveGateway, keys []string) {
	r := rand.New(rand.NewPCG(uint64(client), 77))
	last := map[*liveGateway]int64{} // the newest revision seen in an answer of a gateway
	for n := 0; ctx.Err() == nil; n++ {
		g := gateway()
		try, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(4000))*time.Millisecond)
		key := keys[r.IntN(len(keys))]
		value := fmt.Sprintf("%d.%d", client, n)
		if r.IntN(10) == 0 {
			value += strings.Repeat(" long", 60) // does not fit
		}
		call := h.now()
		var header *pb.ResponseHeader
		switch p := r.IntN(100); {
		case p < 65:
			a, err := g.Range(try, rangeOf(key))
			if err == nil {
				h.add(client, call, keyInput{key: key}, keyOutput{known: true, state: stateOf(a.Kvs)})
				header = a.Header
				if len(a.Kvs) > 0 && a.Kvs[0].ModRevision > a.Header.Revision {
					t.Errorf("a key changed at %d is in an answer of revision %d", a.Kvs[0].ModRevision, a.Header.Revision)
				}
			}
		case p < 80:
			a, err := g.Put(try, putOf(key, value))
			if err != nil && refused(err) {
				break
			}
			h.add(client, call, keyInput{key, true, true, value}, keyOutput{known: err == nil, did: true, rev: a.GetHeader().GetRevision()})
			header = a.GetHeader()
		case p < 88:
			a, err := g.DeleteRange(try, &pb.DeleteRangeRequest{Key: []byte(key)})
			if err != nil && refused(err) {
				break
			}
			h.add(client, call, keyInput{key: key, write: true}, keyOutput{known: err == nil, did: a.GetDeleted() > 0, rev: a.GetHeader().GetRevision()})
			header = a.GetHeader()
		default: // two keys at once, if the first one has not changed
			other := keys[r.IntN(len(keys))]
			read, err := g.Range(try, rangeOf(key))
			if err != nil || other == key {
				break
			}
			h.add(client, call, keyInput{key: key}, keyOutput{known: true, state: stateOf(read.Kvs)})
			was := stateOf(read.Kvs)
			call = h.now()
			a, err := g.Txn(try, &pb.TxnRequest{
				Compare: []*pb.Compare{{Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: []byte(key), TargetUnion: &pb.Compare_ModRevision{ModRevision: was.mod}}},
				Success: []*pb.RequestOp{putOp(key, value), putOp(other, value)},
				Failure: []*pb.RequestOp{rangeOp(rangeOf(key)), rangeOp(rangeOf(other))},
			})
			switch {
			case err != nil && refused(err):
			case err == nil && !a.Succeeded:
				for i, k := range []string{key, other} {
					h.add(client, call, keyInput{key: k}, keyOutput{known: true, state: stateOf(a.Responses[i].GetResponseRange().Kvs)})
				}
				header = a.Header
			default:
				for _, k := range []string{key, other} {
					h.add(client, call, keyInput{k, true, true, value}, keyOutput{known: err == nil, did: true, rev: a.GetHeader().GetRevision()})
				}
				header = a.GetHeader()
			}
		}
		if header != nil {
			if header.Revision < last[g] {
				t.Errorf("a gateway's revision goes back from %d to %d", last[g], header.Revision)
			}
			last[g] = header.Revision
		}
		cancel()
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
	}
}

// lossy is an etcd whose answers to some transactions are lost, and to which some come late.
type lossy struct {
	pb.KVClient
	p float64
}

func (l lossy) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	if rand.Float64() >= l.p {
		return l.KVClient.Txn(ctx, r, o...)
	}
	if rand.IntN(2) == 0 {
		l.KVClient.Txn(ctx, r, o...)
	} else {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() {
			defer cancel()
			l.KVClient.Txn(late, r, o...)
		})
	}
	return nil, status.Error(codes.Unavailable, "the answer is lost")
}

// Histories through two gateways before a real etcd, with slots that lose messages and deliver them late, keys that are placed and removed, and gateways that die and are replaced, are linearizable
// in keys, values, versions and revisions.
//
// The slots are in memory, which loses and delays a CAS as a whole, or of a chain that is asked over UDP, where packets are lost, doubled and overtake each other.
func TestLinearizable(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testLinearizable(t, func(t *testing.T) (testSlots, func(*testing.T) Slots) {
			m := newMemory(64)
			m.setFaults(0.02)
			return m, func(*testing.T) Slots { return m }
		})
	})
	t.Run("chain", func(t *testing.T) {
		testLinearizable(t, func(t *testing.T) (testSlots, func(*testing.T) Slots) {
			c := newUDPChain(t)
			return c, c.network
		})
	})
}

// testLinearizable does that with slots, which are made anew for each round; each gateway has a way of its own to them.
func testLinearizable(t *testing.T, world func(*testing.T) (testSlots, func(*testing.T) Slots)) {
	total := 6 * time.Second
	if text := os.Getenv(envLinearizable); text != "" {
		var err error
		if total, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", envLinearizable, err)
		}
	}
	const round = 3 * time.Second // a history is checked as a whole, which takes longer than in proportion
	endpoint := startEtcd(t)
	var sum struct{ operations, unanswered, hits, moves, kills int }
	for end, n := time.Now().Add(total), 0; time.Now().Before(end); n++ {
		keys := make([]string, 6)
		for i := range keys {
			keys[i] = fmt.Sprintf("%d/%d", n, i)
		}
		slots, of := world(t)
		p := newPlacement(connect(t, endpoint), slots)
		p.next = wire.Key(n) << 12
		var gateways [2]atomic.Pointer[liveGateway]
		begin := func(i int) {
			gateways[i].Store(newLive(t, endpoint, of(t), func(c *Config) {
				c.Patience = 3 * time.Second
				c.Etcd = lossy{c.Etcd, 0.01}
			}))
		}
		begin(0)
		begin(1)
		h := &history{start: time.Now()}
		ctx, stop := context.WithTimeout(t.Context(), round)
		var wg sync.WaitGroup
		for c := range 6 {
			wg.Go(func() {
				h.worker(ctx, t, c, func() *liveGateway { return gateways[c%2].Load() }, keys)
			})
		}
		wg.Go(func() { // placement
			r := rand.New(rand.NewPCG(uint64(n), 1))
			for ctx.Err() == nil {
				k := keys[r.IntN(len(keys))]
				if _, ok := p.at[k]; ok {
					p.remove(t, k)
				} else {
					p.place(t, k)
				}
				sum.moves++
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			}
		})
		hits := 0
		wg.Go(func() { // deaths
			for i := n; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(900 * time.Millisecond):
				}
				old := gateways[i%2].Load()
				begin(i % 2)
				wg.Go(old.kill)
				hits += old.hitCount()
				sum.kills++
			}
		})
		wg.Wait()
		stop()
		for i := range gateways {
			hits += gateways[i].Load().hitCount()
			gateways[i].Load().kill()
		}
		sum.hits += hits
		for _, o := range h.ops {
			sum.operations++
			if !o.Output.(keyOutput).known {
				sum.unanswered++
			}
		}
		if r := porcupine.CheckOperationsTimeout(keyModel, h.ops, time.Minute); r != porcupine.Ok {
			if r == porcupine.Unknown {
				t.Fatalf("round %d: the history of %d operations could not be checked in a minute", n, len(h.ops))
			}
			slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			for _, part := range keyModel.Partition(h.ops) {
				if !porcupine.CheckOperations(keyModel, part) {
					var text strings.Builder
					for _, o := range part {
						fmt.Fprintf(&text, "%9d..%9d client %d %s\n", o.Call/1000, o.Return/1000, o.ClientId, keyModel.DescribeOperation(o.Input, o.Output))
					}
					t.Fatalf("round %d: not linearizable:\n%s", n, text.String())
				}
			}
		}
	}
	t.Logf("%d operations, %d of them without an answer; %d reads were answered by the network; %d placements and removals, %d gateways died", sum.operations, sum.unanswered, sum.hits, sum.moves, sum.kills)
	if sum.hits == 0 || sum.moves == 0 || sum.operations < 100 {
		t.Error("too little happened")
	}
}
