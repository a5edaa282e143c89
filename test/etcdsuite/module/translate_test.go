package module

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// own is the prefix of the keys that gateways and placement write. These writes also use revisions
// of the store, but the model does not know about them.
const own = "/netcraq/"

// follower receives every event directly from etcd.
type follower struct {
	t      *testing.T
	began  int64 // the revision before the first event
	mu     sync.Mutex
	seen   int64
	events map[int64][]*clientv3.Event
}

func follow(t *testing.T, endpoints []string) *follower {
	c := etcdtest.Client(t, endpoints...)
	r, err := c.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, began: r.Header.Revision, events: map[int64][]*clientv3.Event{}}
	news := c.Watch(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(f.began+1), clientv3.WithPrevKV())
	go func() {
		for r := range news {
			if err := r.Err(); err != nil {
				t.Errorf("the watch at etcd itself: %v", err)
			}
			f.mu.Lock()
			for _, e := range r.Events {
				f.seen = e.Kv.ModRevision
				f.events[f.seen] = append(f.events[f.seen], e)
			}
			f.mu.Unlock()
		}
	}()
	return f
}

// until waits until the follower has seen a revision.
func (f *follower) until(revision int64) *follower {
	for end := time.Now().Add(watchTime); ; time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		seen := f.seen
		f.mu.Unlock()
		if seen >= revision {
			return f
		}
		if time.Now().After(end) {
			f.t.Fatalf("etcd itself has shown revision %d, not %d", seen, revision)
		}
	}
}

// revisions returns the revisions of the clients' writes, in order. The model numbers only these
// revisions, beginning with 2.
func (f *follower) revisions() (out []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r, events := range f.events {
		if !strings.HasPrefix(string(events[0].Kv.Key), own) {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// translate converts reports into the reports that an etcd with only the clients' keys would give.
// It also returns the clients' writes in the order of their execution.
func (f *follower) translate(t *testing.T, reports []report.ClientReport) ([]report.ClientReport, []model.EtcdRequest) {
	theirs := f.revisions()
	number := func(real int64) int64 {
		if real <= 0 {
			return real
		}
		if real <= f.began {
			return 1
		}
		n, exact := slices.BinarySearch(theirs, real)
		if exact {
			n++
		}
		return int64(n) + 1
	}
	var operations []porcupine.Operation
	shown := 0
	out := slices.Clone(reports)
	for i := range out {
		out[i].KeyValue = slices.Clone(out[i].KeyValue)
		for j := range out[i].KeyValue {
			op := &out[i].KeyValue[j]
			op.Input, op.Output = requestOf(op.Input.(model.EtcdRequest), number),
				responseOf(op.Output.(model.MaybeEtcdResponse), number)
			operations = append(operations, *op)
		}
		for j := range out[i].Watch {
			shown += watchOf(&out[i].Watch[j], number)
		}
	}
	if shown > 0 {
		t.Errorf("watches showed %d changes of keys under %s", shown, own)
	}
	return out, f.persisted(t, theirs, number, operations)
}

func requestOf(r model.EtcdRequest, number func(int64) int64) model.EtcdRequest {
	switch {
	case r.Range != nil:
		c := *r.Range
		c.Revision = number(c.Revision)
		r.Range = &c
	case r.Txn != nil:
		c := *r.Txn
		c.Conditions = slices.Clone(c.Conditions)
		for i := range c.Conditions {
			c.Conditions[i].ExpectedRevision = number(c.Conditions[i].ExpectedRevision)
		}
		r.Txn = &c
	case r.Compact != nil:
		c := *r.Compact
		c.Revision = number(c.Revision)
		r.Compact = &c
	}
	return r
}

func rangeOf(r model.RangeResponse, number func(int64) int64) model.RangeResponse {
	r.KVs = slices.Clone(r.KVs)
	for i := range r.KVs {
		r.KVs[i].ModRevision = number(r.KVs[i].ModRevision)
	}
	return r
}

func responseOf(r model.MaybeEtcdResponse, number func(int64) int64) model.MaybeEtcdResponse {
	r.Revision = number(r.Revision)
	if r.Range != nil {
		c := rangeOf(*r.Range, number)
		r.Range = &c
	}
	if r.Txn != nil {
		c := *r.Txn
		c.Results = slices.Clone(c.Results)
		for i := range c.Results {
			c.Results[i].RangeResponse = rangeOf(c.Results[i].RangeResponse, number)
		}
		r.Txn = &c
	}
	return r
}

// watchOf removes the events that clients should not see from a watch. It returns how many events
// it has removed.
func watchOf(w *model.WatchOperation, number func(int64) int64) (shown int) {
	if w.Request.Revision != 0 { // number of the next revision that is a client's write
		w.Request.Revision = number(w.Request.Revision-1) + 1
	}
	for i := range w.Responses {
		r := &w.Responses[i]
		r.Revision = number(r.Revision)
		all := len(r.Events)
		r.Events = slices.DeleteFunc(r.Events, func(e model.WatchEvent) bool { return strings.HasPrefix(e.Key, own) })
		shown += all - len(r.Events)
		for j := range r.Events {
			e := &r.Events[j]
			e.Revision = number(e.Revision)
			if e.PrevValue != nil {
				v := *e.PrevValue
				v.ModRevision = number(v.ModRevision)
				e.PrevValue = &v
			}
		}
	}
	return shown
}

// persisted finds the client's request that created each revision. The value of a put is unique.
// For a deletion, the answer has the revision. A deletion without an answer matches any revision
// that it could have created.
func (f *follower) persisted(t *testing.T, revisions []int64, number func(int64) int64,
	operations []porcupine.Operation) (out []model.EtcdRequest) {
	type put struct {
		key   string
		value model.ValueOrHash
	}
	puts, answered, unanswered := map[put]model.EtcdRequest{}, map[int64]model.EtcdRequest{},
		map[string][]model.EtcdRequest{}
	leases, revoked := map[int64]bool{}, map[int64]model.EtcdRequest{}
	for _, o := range operations {
		r, answer := o.Input.(model.EtcdRequest), o.Output.(model.MaybeEtcdResponse)
		switch r.Type {
		case model.Txn:
			for _, op := range r.Txn.OperationsOnSuccess {
				switch op.Type {
				case model.PutOperation:
					puts[put{op.Put.Key, op.Put.Value}] = r
					if op.Put.LeaseID != 0 && !leases[op.Put.LeaseID] {
						leases[op.Put.LeaseID] = true
						out = append(out, model.EtcdRequest{Type: model.LeaseGrant,
							LeaseGrant: &model.LeaseGrantRequest{LeaseID: op.Put.LeaseID}})
					}
				case model.DeleteOperation:
					if answer.Error != "" {
						unanswered[op.Delete.Key] = append(unanswered[op.Delete.Key], r)
					} else if answer.Txn != nil && !answer.Txn.Failure &&
						slices.ContainsFunc(answer.Txn.Results, func(x model.EtcdOperationResult) bool {
							return x.Deleted > 0
						}) {
						answered[answer.Revision] = r
					}
				}
			}
		case model.LeaseRevoke:
			revoked[r.LeaseRevoke.LeaseID] = r
		}
	}
	attached := map[string]int64{}
	for _, revision := range revisions {
		events := f.events[revision]
		first := events[0]
		r, ok := model.EtcdRequest{}, false
		for _, e := range events {
			if x, is := puts[put{string(e.Kv.Key),
				model.ToValueOrHash(string(e.Kv.Value))}]; e.Type == clientv3.EventTypePut && is {
				r, ok = x, true
			}
		}
		if !ok {
			r, ok = answered[number(revision)]
		}
		if lease := attached[string(first.Kv.Key)]; !ok && lease != 0 && !f.used(lease, revision) {
			r, ok = revoked[lease]
		}
		if !ok {
			for _, x := range unanswered[string(first.Kv.Key)] {
				if c := x.Txn.Conditions; len(x.Txn.OperationsOnSuccess) == 1 &&
					(len(c) == 0 || first.PrevKv != nil && c[0].ExpectedRevision == number(first.PrevKv.ModRevision)) {
					r, ok = x, true
				}
			}
		}
		if !ok {
			b, _ := json.Marshal(events)
			t.Fatalf("revision %d was written by no client: %s", revision, b)
		}
		for _, e := range events {
			attached[string(e.Kv.Key)] = e.Kv.Lease
		}
		out = append(out, r)
	}
	return out
}

// used returns whether a key was attached to a lease after the given revision. In that case, the
// lease was not revoked before that revision.
func (f *follower) used(lease, revision int64) bool {
	for r, events := range f.events {
		if r > revision && slices.ContainsFunc(events, func(e *clientv3.Event) bool { return e.Kv.Lease == lease }) {
			return true
		}
	}
	return false
}

// lenient makes the model accept gets that switches have answered. As docs/etcd.md says, the
// revision in the header of such an answer may be older than the store's revision, but not older
// than the key's revision.
func lenient() (restore func()) {
	exact := model.NonDeterministicModel
	easy := exact
	easy.Step = func(state, in, out any) (bool, any) {
		if ok, next := exact.Step(state, in, out); ok {
			return ok, next
		}
		request, response := in.(model.EtcdRequest), out.(model.MaybeEtcdResponse)
		if request.Type != model.Range || request.Range.End != "" || request.Range.Revision != 0 ||
			response.Range == nil {
			return false, state
		}
		var states, fit []model.EtcdState
		if err := json.Unmarshal([]byte(state.(string)), &states); err != nil {
			panic(err)
		}
		for _, s := range states {
			_, want := s.Step(request)
			late := response
			if late.Revision < want.Revision && (len(late.Range.KVs) == 0 ||
				late.Range.KVs[0].ModRevision <= late.Revision) {
				late.Revision = want.Revision
			}
			if model.Match(want, late) {
				fit = append(fit, s)
			}
		}
		b, err := json.Marshal(fit)
		if err != nil {
			panic(err)
		}
		return len(fit) > 0, string(b)
	}
	model.NonDeterministicModel = easy
	return func() { model.NonDeterministicModel = exact }
}
