package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// dialRaw makes a gRPC connection that does not use etcd's client.
func dialRaw(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(endpoint, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// checkedWatch is a watch and all answers that it has got.
type checkedWatch struct {
	request *pb.WatchCreateRequest
	id      int64
	made    int64 // revision in the answer to its creation
	events  []*mvccpb.Event
	part    []*mvccpb.Event // events of an answer in fragments that is not complete yet
	over    bool            // the test has cancelled the watch
	asked   bool            // the watch existed when the client requested progress
	refused bool            // the watch is only for reserved keys
}

// ownWatched is the prefix of those watched keys that are reserved.
const ownWatched = "w/own/"

// watcher is a client with a stream of watches. It creates and cancels watches at random, and
// sometimes reads slowly.
type watcher struct {
	t       *testing.T
	name    string
	ctx     context.Context
	client  pb.WatchClient
	mu      sync.Mutex
	stream  pb.Watch_WatchClient
	asked   []*checkedWatch
	watches map[int64]*checkedWatch
	all     []*checkedWatch
	told    int // number of progress answers for all watches
	passed  int // number of progress answers for one watch, which replace answers with only hidden events
	resumed int // number of streams that ended because this client read too slowly
}

// send sends a request. The caller holds the lock, so that requests are sent in the order in which
// they are recorded. send ignores the errors of an ended stream, because the reader reports them.
func (w *watcher) send(r *pb.WatchRequest) {
	if err := w.stream.Send(r); err != nil && err != io.EOF && w.ctx.Err() == nil {
		w.t.Errorf("%s: %v", w.name, err)
	}
}

// create creates a watch. The caller holds the lock.
func (w *watcher) create(q *pb.WatchCreateRequest) {
	c := &checkedWatch{request: q, refused: strings.HasPrefix(string(q.Key), ownWatched)}
	w.asked, w.all = append(w.asked, c), append(w.all, c)
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: q}})
}

// resume continues after a stream has ended, as etcd's client does. It repeats all requests that
// got no answer. For each watch it requests a new one that starts after the watch's last event.
func (w *watcher) resume() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed++
	var err error
	if w.stream, err = w.client.Watch(w.ctx); err != nil {
		return err
	}
	for _, c := range w.asked {
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c.request}})
	}
	for id, c := range w.watches {
		delete(w.watches, id)
		if c.over {
			continue
		}
		c.over = true
		q := *c.request
		if q.StartRevision == 0 {
			q.StartRevision = c.made + 1
		}
		if n := len(c.events); n > 0 {
			q.StartRevision = c.events[n-1].Kv.ModRevision + 1
		}
		w.create(&q)
	}
	return nil
}

// act creates or cancels a watch, or requests progress, at random.
func (w *watcher) act(r *rand.Rand, keys int, last int64, simple bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := r.IntN(10); {
	case n < 5:
		q := &pb.WatchCreateRequest{Key: fmt.Appendf(nil, "w/%d", r.IntN(keys)), PrevKv: r.IntN(4) == 0 &&
			!simple, Fragment: r.IntN(4) == 0 && !simple, ProgressNotify: r.IntN(4) == 0}
		if r.IntN(3) == 0 {
			q.Key, q.RangeEnd = []byte("w/"), []byte("w0")
		}
		if r.IntN(6) == 0 {
			q.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
		}
		switch r.IntN(4) {
		case 0:
			q.StartRevision = max(1, last-r.Int64N(50))
		case 1:
			q.StartRevision = last + 1 + r.Int64N(20)
		}
		if r.IntN(8) == 0 {
			q.Key, q.RangeEnd = []byte(ownWatched+"0"), nil
		}
		w.create(q)
	case n < 7:
		for id, c := range w.watches { // take one watch at random
			c.over = true
			w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
				CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
			return
		}
	case n < 9:
		for _, c := range w.watches {
			c.asked = !c.over
		}
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
			ProgressRequest: &pb.WatchProgressRequest{}}})
	}
}

// read reads answers until the client ends. If a stream ends because the client was too slow, read
// calls resume. want returns the events that a watch must have received up to a revision.
func (w *watcher) read(slow func() time.Duration, want func(*checkedWatch, int64) []*mvccpb.Event) {
	for {
		a, err := w.stream.Recv()
		if w.ctx.Err() != nil {
			return
		}
		if status.Code(err) == status.Code(errSlow) &&
			strings.Contains(err.Error(), status.Convert(errSlow).Message()) {
			err = w.resume()
			if err == nil {
				continue
			}
		}
		if err != nil {
			w.t.Errorf("%s: %v", w.name, err)
			return
		}
		time.Sleep(slow())
		w.mu.Lock()
		switch {
		case a.Created:
			c := w.asked[0]
			w.asked = w.asked[1:]
			if c.refused {
				if c.made = a.Header.Revision; !a.Canceled || a.WatchId != noWatch ||
					!strings.Contains(a.CancelReason, "PermissionDenied") {
					w.t.Errorf("%s: of reserved keys: %v", w.name, a)
				}
				break
			}
			if a.Canceled || w.watches[a.WatchId] != nil {
				w.t.Errorf("%s: %v", w.name, a)
			}
			c.id, c.made = a.WatchId, a.Header.Revision
			w.watches[c.id] = c
		case a.Canceled:
			if c := w.watches[a.WatchId]; c == nil || !c.over {
				w.t.Errorf("%s: a watch ended that was not to: %v", w.name, a)
			}
			delete(w.watches, a.WatchId)
		case a.WatchId == noWatch:
			w.told++
			for _, c := range w.watches {
				// etcd may have sent this progress answer before it created the watch
				if !c.asked || c.over || a.Header.Revision <= c.made {
					continue
				}
				if n := len(want(c, a.Header.Revision)); n > len(since(c.events, c.made, c.request.StartRevision)) {
					w.t.Errorf(
						"%s: told that revision %d is reached, and watch %d of %v has %d of the %d events up to there",
						w.name,
						a.Header.Revision,
						c.id,
						c.request,
						len(c.events),
						n,
					)
				}
			}
		default:
			c := w.watches[a.WatchId]
			if c == nil {
				w.t.Errorf("%s: an answer to a watch that is not: %v", w.name, a)
				break
			}
			switch {
			case len(a.Events) > 0 || !a.Fragment && len(c.part) > 0: // the last fragment may have no events
			case !c.request.ProgressNotify || a.Fragment:
				w.t.Errorf("%s: an answer without events: %v", w.name, a)
			default:
				w.passed++
				if n := len(want(c, a.Header.Revision)); n > len(since(c.events, c.made, c.request.StartRevision)) {
					w.t.Errorf(
						"%s: told that watch %d of %v has come to revision %d, and it has %d of the %d events up to there",
						w.name,
						c.id,
						c.request,
						a.Header.Revision,
						len(c.events),
						n,
					)
				}
			}
			if c.part = append(c.part, a.Events...); !a.Fragment {
				c.events, c.part = append(c.events, c.part...), nil
			}
		}
		w.mu.Unlock()
	}
}

// since returns the events that a watch must have got. A watch that starts now may also have got
// events from the time of its creation, which since removes.
func since(events []*mvccpb.Event, made, start int64) []*mvccpb.Event {
	if start > 0 {
		return events
	}
	return slices.DeleteFunc(slices.Clone(events), func(e *mvccpb.Event) bool { return e.Kv.ModRevision <= made })
}

// TestSharedWatches checks that shared watches get what separate watches at etcd would get. Each
// watch gets all events from its start on, once each, in order, and with the requested options.
// This holds while watches come and go, when a slow watch becomes separate again, for answers in
// fragments, and for start revisions in the past or the future. Progress answers must be true. No
// watch may get reserved keys.
func TestSharedWatches(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 1, etcdtest.Options{Adjust: func(e *embed.Config) { e.MaxRequestBytes = 64 << 10 }})
	g, tight := begin(t, Config{Reserved: reserved.With(ownWatched)}, c.Endpoints()...),
		begin(t, Config{Reserved: reserved.With(ownWatched)}, c.Endpoints()...)
	tight.hub.waiting, tight.hub.slowPause = 16<<10, 50*time.Millisecond
	g.hub.waiting = 128 << 10
	direct := etcdtest.Client(t, c.Endpoints()...)

	// Guards all events, which come from etcd itself.
	var mu sync.Mutex
	var log []*mvccpb.Event
	var last int64
	everything := direct.Watch(t.Context(), "w/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1))
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		for r := range everything {
			mu.Lock()
			for _, e := range r.Events {
				log = append(log, (*mvccpb.Event)(e))
				last = e.Kv.ModRevision
			}
			done := string(r.Events[len(r.Events)-1].Kv.Key) == "w/end"
			mu.Unlock()
			if done {
				return
			}
		}
	}()
	want := func(c *checkedWatch, until int64) (out []*mvccpb.Event) {
		mu.Lock()
		defer mu.Unlock()
		from := c.request.StartRevision
		if from == 0 {
			from = c.made + 1
		}
		for _, e := range log {
			if strings.HasPrefix(string(e.Kv.Key), ownWatched) {
				continue
			}
			one := len(c.request.RangeEnd) == 0
			if e.Kv.ModRevision < from || e.Kv.ModRevision > until ||
				one && string(e.Kv.Key) != string(c.request.Key) ||
				e.Type == mvccpb.DELETE && len(c.request.Filters) > 0 {
				continue
			}
			if !c.request.PrevKv {
				e = &mvccpb.Event{Type: e.Type, Kv: e.Kv}
			}
			out = append(out, e)
		}
		return out
	}

	const keys, seconds = 3, 4
	var ws []*watcher
	stop := make(chan struct{})
	var acting, reading sync.WaitGroup
	for i := range 12 {
		endpoint, simple := g.Endpoint, i%2 == 0
		if simple {
			endpoint = tight.Endpoint
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := pb.NewWatchClient(dialRaw(t, endpoint))
		stream, err := client.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		w := &watcher{t: t, name: fmt.Sprint("client ", i), ctx: ctx, client: client, stream: stream,
			watches: map[int64]*checkedWatch{}}
		ws = append(ws, w)
		r := rand.New(rand.NewPCG(uint64(i), 1))
		slow := rand.New(rand.NewPCG(uint64(i), 2))
		acting.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(r.IntN(40)) * time.Millisecond):
				}
				mu.Lock()
				now := last
				mu.Unlock()
				w.act(r, keys, now, simple)
			}
		})
		reading.Go(func() {
			w.read(func() time.Duration {
				select {
				case <-stop:
					return 0
				default:
				}
				if i%4 != 0 {
					return 0
				}
				return time.Duration(slow.IntN(6)) * time.Millisecond
			}, want)
		})
	}
	r := rand.New(rand.NewPCG(3, 4))
	for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
		key := func() string { return fmt.Sprintf("w/%d", r.IntN(keys)) }
		var err error
		switch n := r.IntN(40); {
		case n == 0: // these puts are so large that etcd sends their events in fragments
			var ops []clientv3.Op
			for k := range 14 {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("w/%d", 100+k), strings.Repeat("x", 60_000)))
			}
			for _, op := range ops[:1+r.IntN(4)] {
				if _, err = direct.Do(t.Context(), op); err != nil {
					break
				}
			}
		case n < 6:
			_, err = direct.Delete(t.Context(), key())
		case n < 10:
			_, err = direct.Txn(t.Context()).Then(clientv3.OpPut("w/0", "a"),
				clientv3.OpPut("w/1", strings.Repeat("b", 3000)), clientv3.OpDelete("w/2"),
				clientv3.OpPut(ownWatched+"0", "c")).Commit()
		case n < 16:
			_, err = direct.Put(t.Context(), ownWatched+"0", strings.Repeat("w", r.IntN(30_000)))
		default:
			_, err = direct.Put(t.Context(), key(), strings.Repeat("v", r.IntN(2000)))
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.IntN(30) == 0 {
			time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
		}
	}
	close(stop)
	acting.Wait()
	end, err := direct.Put(t.Context(), "w/end", "")
	if err != nil {
		t.Fatal(err)
	}
	<-logged

	shared, told, passed, resumed, compared, events := 0, 0, 0, 0, 0, 0
	for _, w := range ws {
		missing := ""
		poll.Until(t, 20*time.Second, w.name, func() bool {
			missing = ""
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.all {
				if c.made == 0 {
					missing = "one is not made"
					continue
				}
				got, wanted := since(c.events, c.made, c.request.StartRevision), want(c, end.Header.Revision)
				if c.over && len(got) < len(wanted) {
					wanted = wanted[:len(got)]
				}
				for i := range min(len(got), len(wanted)) {
					// etcd omits the previous value in events that it sends after the cancellation
					if c.over && got[i].PrevKv == nil {
						wanted[i] = &mvccpb.Event{Type: wanted[i].Type, Kv: wanted[i].Kv}
					}
					if got[i].String() != wanted[i].String() {
						t.Fatalf("%s, %v, made at %d: event %d is %.200v, want %.200v", w.name, c.request, c.made, i, got[i], wanted[i])
					}
				}
				if len(got) > len(wanted) {
					t.Fatalf(
						"%s, %v, made at %d: %d events, want %d; first too many: %.200v",
						w.name,
						c.request,
						c.made,
						len(got),
						len(wanted),
						got[len(wanted)],
					)
				}
				if len(got) < len(wanted) {
					missing = fmt.Sprintf("%v, made at %d: %d events of %d", c.request, c.made, len(got), len(wanted))
				}
			}
			return missing == ""
		}, func() string { return missing })
		w.mu.Lock()
		for _, c := range w.all {
			compared++
			events += len(c.events)
		}
		told += w.told
		passed += w.passed
		resumed += w.resumed
		w.mu.Unlock()
	}
	for _, g := range []started{g, tight} {
		etcd, clients := g.hub.count()
		shared += clients - etcd
		t.Logf("at the end %d watches are %d at etcd", clients, etcd)
	}
	t.Logf(
		"%d watches had %d events, and how far they are was told %d times, and %d times of one in place of what was left out; %d streams were ended and resumed; %d were too slow",
		compared,
		events,
		told,
		passed,
		resumed,
		tight.hub.slow.Load(),
	)
	if shared < 10 || told == 0 || passed == 0 || events < 1000 || tight.hub.slow.Load() == 0 {
		t.Error("this has shown nothing: too few watches were shared, or too slow")
	}
}

// TestWordsOfEtcd checks that the messages that this package copies from etcd are equal to etcd's.
// The package copies them so as not to import etcd's server.
func TestWordsOfEtcd(t *testing.T) {
	if duplicateID != mvcc.ErrWatcherDuplicateID.Error() {
		t.Errorf("%q; etcd says %q", duplicateID, mvcc.ErrWatcherDuplicateID)
	}
}
