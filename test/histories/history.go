package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// History records the operations of clients. It is safe for concurrent use.
type History struct {
	start  time.Time
	mu     sync.Mutex
	ops    []porcupine.Operation
	wrong  []string
	refuse func(error) bool
	said   []said
}

// said is the result of a read. It says that a key had a state at the revision in the answer's
// header.
type said struct {
	key      string
	revision int64
	state    keyState
}

// New begins a history. refused returns whether an error means that a write was not executed and
// never will be.
func New(refused func(error) bool) *History { return &History{start: time.Now(), refuse: refused} }

func (h *History) complain(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *History) now() int64 { return int64(time.Since(h.start)) }

// add records an operation and its answer. The operation took effect between the time call and now.
// A write without an answer may also take effect later.
func (h *History) add(client int, call int64, in keyInput, out keyOutput) {
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

// says records the state of a key in an answer, and the revision in the answer's header.
func (h *History) says(key string, header *pb.ResponseHeader, kvs []*mvccpb.KeyValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, said{key, header.GetRevision(), stateOf(kvs)})
}

// CheckHeaders checks that each key had the state that a client read, at the revision in the
// answer's header. If so, a client that then watches from the next revision misses nothing.
// CheckHeaders reads all changes after the revision `since` from etcd itself. That revision must be
// 1 or more and not compacted, and no answer may have an older revision. CheckHeaders returns the
// number of checked answers.
func (h *History) CheckHeaders(ctx context.Context, etcd *clientv3.Client, since int64) (int, error) {
	h.mu.Lock()
	said := slices.Clone(h.said)
	h.mu.Unlock()
	now, err := etcd.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	type change struct {
		revision int64
		state    keyState
	}
	changes := map[string][]change{}
	first, err := etcd.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(since))
	if err != nil {
		return 0, fmt.Errorf("asking etcd for what it had at revision %d: %w", since, err)
	}
	for _, kv := range first.Kvs {
		changes[string(kv.Key)] = []change{{kv.ModRevision, stateOf([]*mvccpb.KeyValue{kv})}}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := etcd.Watch(watching, "\x00", clientv3.WithFromKey(), clientv3.WithRev(since+1))
	for at := since; at < now.Header.Revision; {
		a, open := <-events
		if !open || a.Err() != nil {
			return 0, fmt.Errorf("watching what etcd has had: %w", errors.Join(a.Err(), ctx.Err()))
		}
		for _, e := range a.Events {
			c := change{revision: e.Kv.ModRevision}
			if e.Type == mvccpb.PUT {
				c.state = stateOf([]*mvccpb.KeyValue{e.Kv})
			}
			changes[string(e.Kv.Key)] = append(changes[string(e.Kv.Key)], c)
			at = e.Kv.ModRevision
		}
	}
	for _, s := range said {
		var then keyState
		of := changes[s.key] // in the order of revisions
		if n := sort.Search(len(of), func(i int) bool { return of[i].revision > s.revision }); n > 0 {
			then = of[n-1].state
		}
		if s.state != then {
			return len(said), fmt.Errorf("%s is %+v in an answer of revision %d, at which etcd had %+v", s.key, s.state, s.revision, then)
		}
		if s.revision > now.Header.Revision {
			return len(said), fmt.Errorf("an answer says revision %d; etcd has come to %d", s.revision, now.Header.Revision)
		}
	}
	return len(said), nil
}

func stateOf(kvs []*mvccpb.KeyValue) keyState {
	if len(kvs) == 0 {
		return keyState{}
	}
	kv := kvs[0]
	return keyState{true, string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version}
}

// Client makes random requests until ctx ends. They are reads, writes and deletions of one key, and
// transactions on two keys. number must be unique. The function gateway returns the gateway for the
// next request.
func (h *History) Client(ctx context.Context, number int, gateway func() pb.KVServer, keys []string) {
	r := rand.New(rand.NewPCG(uint64(number), 77))
	last := map[pb.KVServer]int64{} // by gateway, the newest revision in its answers
	for n := 0; ctx.Err() == nil; n++ {
		g := gateway()
		try, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(4000))*time.Millisecond)
		key := keys[r.IntN(len(keys))]
		value := fmt.Sprintf("%d.%d", number, n)
		if r.IntN(10) == 0 {
			value += strings.Repeat(" long", 60) // such a value does not fit into a cell
		}
		call := h.now()
		var header *pb.ResponseHeader
		switch p := r.IntN(100); {
		case p < 65:
			a, err := g.Range(try, rangeOf(key))
			if err == nil {
				h.add(number, call, keyInput{key: key}, keyOutput{known: true, state: stateOf(a.Kvs)})
				h.says(key, a.Header, a.Kvs)
				header = a.Header
				if len(a.Kvs) > 0 && a.Kvs[0].ModRevision > a.Header.Revision {
					h.complain("a key changed at %d is in an answer of revision %d", a.Kvs[0].ModRevision, a.Header.Revision)
				}
			}
		case p < 80:
			a, err := g.Put(try, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
			if err != nil && h.refuse(err) {
				break
			}
			h.add(number, call, keyInput{key, true, true, value}, keyOutput{known: err == nil, did: true,
				rev: a.GetHeader().GetRevision()})
			header = a.GetHeader()
		case p < 88:
			a, err := g.DeleteRange(try, &pb.DeleteRangeRequest{Key: []byte(key)})
			if err != nil && h.refuse(err) {
				break
			}
			h.add(number, call, keyInput{key: key, write: true}, keyOutput{known: err == nil,
				did: a.GetDeleted() > 0, rev: a.GetHeader().GetRevision()})
			header = a.GetHeader()
		default: // this transaction writes two keys if the first key has not changed
			other := keys[r.IntN(len(keys))]
			read, err := g.Range(try, rangeOf(key))
			if err != nil || other == key {
				break
			}
			h.add(number, call, keyInput{key: key}, keyOutput{known: true, state: stateOf(read.Kvs)})
			h.says(key, read.Header, read.Kvs)
			was := stateOf(read.Kvs)
			call = h.now()
			a, err := g.Txn(try, &pb.TxnRequest{
				Compare: []*pb.Compare{{Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, Key: []byte(key),
					TargetUnion: &pb.Compare_ModRevision{ModRevision: was.mod}}},
				Success: []*pb.RequestOp{putOp(key, value), putOp(other, value)},
				Failure: []*pb.RequestOp{rangeOp(rangeOf(key)), rangeOp(rangeOf(other))},
			})
			switch {
			case err != nil && h.refuse(err):
			case err == nil && !a.Succeeded:
				for i, k := range []string{key, other} {
					h.add(number, call, keyInput{key: k}, keyOutput{known: true,
						state: stateOf(a.Responses[i].GetResponseRange().Kvs)})
					h.says(k, a.Header, a.Responses[i].GetResponseRange().Kvs)
				}
				header = a.Header
			default:
				for _, k := range []string{key, other} {
					h.add(number, call, keyInput{k, true, true, value}, keyOutput{known: err == nil, did: true,
						rev: a.GetHeader().GetRevision()})
				}
				header = a.GetHeader()
			}
		}
		if header != nil {
			if header.Revision < last[g] {
				h.complain("a gateway's revision goes back from %d to %d", last[g], header.Revision)
			}
			last[g] = header.Revision
		}
		cancel()
		time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
	}
}

func rangeOf(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func putOp(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key),
		Value: []byte(value)}}}
}

// Count returns the number of operations, and how many of them got no answer.
func (h *History) Count() (operations, unanswered int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if !o.Output.(keyOutput).known {
			unanswered++
		}
	}
	return len(h.ops), unanswered
}

// Check returns an error that describes why the history is not linearizable, or nil. All clients
// must have ended. Check gives up after limit.
func (h *History) Check(limit time.Duration) error {
	if len(h.wrong) > 0 {
		return errors.New(strings.Join(h.wrong, "\n"))
	}
	switch porcupine.CheckOperationsTimeout(Model, h.ops, limit) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("the history of %d operations could not be checked in %v", len(h.ops), limit)
	}
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, part := range Model.Partition(h.ops) {
		if porcupine.CheckOperationsTimeout(Model, part, limit) != porcupine.Illegal {
			continue
		}
		var text strings.Builder
		for _, o := range part {
			fmt.Fprintf(&text, "%9d..%9d us client %d %s\n", o.Call/1000, o.Return/1000, o.ClientId, Model.DescribeOperation(o.Input, o.Output))
		}
		return fmt.Errorf("not linearizable:\n%s", text.String())
	}
	return errors.New("not linearizable")
}
