package etcdevents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/etcdversion"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/streams/source"
)

// patience is how long a source waits for a connection to etcd before its run fails.
const patience = 3 * time.Second

// progressEvery is the interval at which a source asks etcd for the progress of an idle partition,
// and stores the progress. Without this, a restarted server might resume from a revision that etcd
// has compacted meanwhile.
const progressEvery = 30 * time.Second

// events is a source that reports the changes of the keys that begin with a prefix.
type events struct {
	etcd   *durable.Connection
	prefix string
	every  time.Duration // the interval progressEvery, except in tests
}

// filler fills one partition of a stream.
type filler struct {
	*events
	to     source.Sink
	n, of  int
	client *clientv3.Client
	origin string
	noted  time.Time
}

// Run implements source.Source. It uses gRPC directly for the watch, because etcd's client would
// buffer without limit what its caller does not read. With gRPC, etcd waits instead.
func (e *events) Run(ctx context.Context, to source.Sink) error {
	client, err := e.etcd.Wait(ctx, patience)
	if err != nil {
		return err
	}
	// This read is linearizable. Otherwise a member that is behind could report less than was
	// already reported.
	now, err := client.Get(ctx, e.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("asking etcd: %w", err)
	}
	f := &filler{events: e, to: to, client: client, noted: time.Now(),
		origin: strconv.FormatUint(now.Header.ClusterId, 16)}
	f.n, f.of = to.Partition()
	at := f.where(now.Header.Revision)
	for {
		if at.state {
			if at, err = f.tellState(ctx, at.since, now.Header.Revision); err != nil {
				return err
			}
		}
		compacted, err := f.follow(ctx, &at)
		if err != nil {
			return err
		}
		if !compacted {
			return errors.New("etcd has ended the watch")
		}
		if now, err = client.Get(ctx, e.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
			return fmt.Errorf("asking etcd: %w", err)
		}
		at = position{state: true, since: at.revision}
	}
}

// position says which changes a partition has already reported.
type position struct {
	revision int64  // everything up to this revision was reported
	partly   string // of the next revision, all events of keys before this key were also reported
	// state is set if the state of all keys must be reported. The reason is that the last reported
	// revision is not known, or that etcd has compacted the changes after since.
	state bool
	since int64
}

var stateBegins = []byte(`{"type":"` + nodeapi.EtcdState + `"`)

// where determines the position of the partition. The argument `now` is etcd's present revision.
func (f *filler) where(now int64) position {
	place := f.to.Place()
	if place.Next == 0 || place.Note.Origin != f.origin {
		return position{state: true}
	}
	var last, marker nodeapi.EtcdEvent
	f.to.Had(func(r stream.Record) {
		if bytes.HasPrefix(r.Data, stateBegins) {
			_ = json.Unmarshal(r.Data, &marker)
		}
		if r.Mark == place.Mark { // the last record belongs to these events
			last = nodeapi.EtcdEvent{}
			_ = json.Unmarshal(r.Data, &last)
		}
	})
	mark := int64(place.Mark)
	switch {
	// the server ended before the whole state was reported
	case last.Type == "" || last.State || last.Type == nodeapi.EtcdState:
		return position{state: true, since: marker.Since}
	case mark > now || int64(place.Note.Mark) > now: // etcd was restored to an earlier state
		return position{state: true}
	case last.More && last.Type == nodeapi.EtcdMissed:
		return position{state: true, since: mark - 1}
	case last.More:
		return position{revision: mark - 1, partly: key(&last)}
	}
	return position{revision: max(mark, int64(place.Note.Mark))}
}

func key(e *nodeapi.EtcdEvent) string {
	if e.KeyBase64 != nil {
		return string(e.KeyBase64)
	}
	return e.Key
}

func (f *filler) note(revision int64) error {
	f.noted = time.Now()
	return f.to.Note(source.Note{Origin: f.origin, Mark: uint64(revision)})
}

// These are limits for a page of the state. A page has more entries if they are small.
const (
	firstPage, lastPage = 16, 1024
	smallPage           = 256 << 10
)

// tellState reports the state of all keys at a revision.
func (f *filler) tellState(ctx context.Context, since, revision int64) (at position, err error) {
	if err := f.note(0); err != nil { // replace the stored position, which is older, or belongs to another etcd
		return at, err
	}
	begin := nodeapi.EtcdEvent{Type: nodeapi.EtcdState, Revision: revision, Since: since}
	if since > 0 {
		begin.Missed = revision - since
		f.to.Missed(uint64(begin.Missed))
	}
	if err := f.append(ctx, []nodeapi.EtcdEvent{begin}); err != nil {
		return at, err
	}
	page, from, end := int64(firstPage), f.prefix, clientv3.GetPrefixRangeEnd(f.prefix)
	for more := true; more; {
		got, err := f.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(revision),
			clientv3.WithLimit(page))
		if err != nil {
			return at, fmt.Errorf("reading etcd's keys: %w", err)
		}
		var all []nodeapi.EtcdEvent
		size := 0
		for _, kv := range got.Kvs {
			size += len(kv.Key) + len(kv.Value)
			from = string(kv.Key) + "\x00"
			if source.Partition(string(kv.Key), f.of) == f.n {
				e := event(mvccpb.PUT, kv)
				e.State = true
				all = append(all, e)
			}
		}
		if err := f.append(ctx, all); err != nil {
			return at, err
		}
		if size < smallPage {
			page = min(2*page, lastPage)
		} else {
			page = firstPage
		}
		more = got.More
	}
	if err := f.append(ctx, []nodeapi.EtcdEvent{{Type: nodeapi.EtcdSynced, Revision: revision}}); err != nil {
		return at, err
	}
	return position{revision: revision}, f.note(revision)
}

// follow reports changes from a position on, and advances the position. The result compacted
// reports that etcd no longer has the next changes. follow also requests the last reported revision
// again. The reason is that etcd accepts a watch even if it has compacted exactly the next
// revision, but does not report the deletions of that revision.
func (f *filler) follow(ctx context.Context, at *position) (compacted bool, err error) {
	// Require a leader, because a member that is cut off from its cluster does not learn of
	// changes.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	w, err := etcdserverpb.NewWatchClient(f.client.ActiveConnection()).Watch(ctx,
		grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return false, fmt.Errorf("watching etcd: %w", err)
	}
	err = w.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(f.prefix),
			RangeEnd: []byte(clientv3.GetPrefixRangeEnd(f.prefix)), StartRevision: at.revision, Fragment: true}}})
	if err != nil {
		return false, fmt.Errorf("watching etcd: %w", err)
	}
	asking := false
	var parts []*mvccpb.Event // events of an answer that etcd sends in several fragments
	for {
		got, err := w.Recv()
		if err != nil {
			return false, fmt.Errorf("watching etcd: %w", err)
		}
		switch {
		case got.CompactRevision > 0:
			return true, nil
		case got.Canceled:
			return false, fmt.Errorf("etcd has canceled the watch: %s", got.CancelReason)
		case got.Created:
			if !asking {
				asking = true
				go f.askProgress(ctx, w, got.Header.GetMemberId())
			}
			continue
		}
		parts = append(parts, got.Events...)
		if got.Fragment {
			continue
		}
		to := at.revision
		if len(parts) > 0 {
			to = max(to, parts[len(parts)-1].Kv.ModRevision)
		} else if got.Header != nil { // the answer has no events, so it reports progress
			to = max(to, got.Header.Revision)
		}
		if err := f.tell(ctx, parts, at); err != nil {
			return false, err
		}
		parts = nil
		at.revision, at.partly = to, ""
		if time.Since(f.noted) > progressEvery {
			if err := f.note(to); err != nil {
				return false, err
			}
		}
	}
}

// askProgress requests the progress of a watch at an interval, until ctx ends. It does not send
// requests to an etcd version that may answer before it has sent all events up to that point.
func (f *filler) askProgress(ctx context.Context, w etcdserverpb.Watch_WatchClient, member uint64) {
	orders := false
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	ask := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}
	for {
		select {
		case <-tick.C:
			if !orders {
				_, version, err := etcdversion.OfMember(ctx, member, f.client.Endpoints(), f.status)
				if err != nil {
					continue // try again, because the answer of a gateway may have come from another member
				}
				if orders = etcdversion.OrdersProgress(version); !orders {
					return // stop, because the member's version does not change while the watch lasts
				}
			}
			if w.Send(ask) != nil {
				return // stop, because the goroutine that receives gets the reason
			}
		case <-ctx.Done():
			return
		}
	}
}

// status requests the status of the member at an endpoint.
func (f *filler) status(ctx context.Context, endpoint string) (*etcdserverpb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := f.client.Status(ctx, endpoint)
	return (*etcdserverpb.StatusResponse)(s), err
}

// tell reports those events that belong to complete revisions of etcd.
func (f *filler) tell(ctx context.Context, events []*mvccpb.Event, at *position) error {
	var out []nodeapi.EtcdEvent
	skipping := at.partly != ""
	for _, e := range events {
		switch k := string(e.Kv.Key); {
		case e.Kv.ModRevision <= at.revision || source.Partition(k, f.of) != f.n:
			continue
		case skipping && e.Kv.ModRevision == at.revision+1:
			skipping = k != at.partly
			continue
		}
		next := event(e.Type, e.Kv)
		if n := len(out); n > 0 && out[n-1].Revision == next.Revision {
			out[n-1].More = true
		}
		out = append(out, next)
	}
	return f.append(ctx, out)
}

func (f *filler) append(ctx context.Context, events []nodeapi.EtcdEvent) error {
	records := make([]stream.Record, len(events))
	for i := range events {
		records[i] = f.record(&events[i])
	}
	return f.to.Append(ctx, records)
}

// event converts an event of etcd to an event of a stream.
func event(t mvccpb.Event_EventType, kv *mvccpb.KeyValue) nodeapi.EtcdEvent {
	e := nodeapi.EtcdEvent{Type: nodeapi.EtcdPut, Revision: kv.ModRevision, Version: kv.Version}
	if utf8.Valid(kv.Key) {
		e.Key = string(kv.Key)
	} else {
		e.KeyBase64 = kv.Key
	}
	switch {
	case t == mvccpb.DELETE:
		e.Type = nodeapi.EtcdDelete
	case utf8.Valid(kv.Value):
		text := string(kv.Value)
		e.Value = &text
	default:
		e.ValueBase64 = kv.Value
	}
	return e
}

// record encodes an event as a record. If the event is too large, record leaves out the value or
// the whole event.
func (f *filler) record(e *nodeapi.EtcdEvent) stream.Record {
	data, err := json.Marshal(e)
	if err == nil && len(data) > f.to.MaxRecord() && (e.Value != nil || e.ValueBase64 != nil) {
		if e.ValueBytes = len(e.ValueBase64); e.Value != nil {
			e.ValueBytes = len(*e.Value)
		}
		e.Value, e.ValueBase64 = nil, nil
		data, err = json.Marshal(e)
	}
	if err != nil || len(data) > f.to.MaxRecord() {
		f.to.Missed(1)
		gone := nodeapi.EtcdEvent{Type: nodeapi.EtcdMissed, Revision: e.Revision, State: e.State, More: e.More}
		data, _ = json.Marshal(gone)
	}
	return stream.Record{Data: data, Mark: uint64(e.Revision)}
}
