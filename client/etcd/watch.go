package etcd

import (
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/reserved"
)

// watching is etcd's watch service without the keys that clients must not see; gateways hide the
// same keys. It refuses a watch that covers only hidden keys, and removes hidden keys from the
// events of other watches. It records the revision of each answer, so that a later read from the
// switches does not return an older revision.
type watching struct {
	next   pb.WatchClient
	hidden reserved.Keys
	newest *guardedshell.Newest
}

// Watch implements pb.WatchClient.
func (w *watching) Watch(ctx context.Context, o ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	s, err := w.next.Watch(ctx, o...)
	if err != nil {
		return nil, err
	}
	return &watchStream{Watch_WatchClient: s, watching: w, begun: map[int64]bool{}}, nil
}

// watchStream is a gRPC stream of watches.
type watchStream struct {
	pb.Watch_WatchClient
	*watching

	mu     sync.Mutex
	denied []bool // for each watch request that has no answer yet, in order, whether it is denied

	// begun has the watches of which part of an answer was passed on. Only the receiving goroutine
	// uses it.
	begun map[int64]bool
}

// Send implements pb.Watch_WatchClient. Send replaces a watch request that covers only hidden keys
// by a request for an empty range. etcd refuses that request, so the refusal arrives in order with
// the other answers.
func (s *watchStream) Send(r *pb.WatchRequest) error {
	q := r.GetCreateRequest()
	if q == nil {
		return s.Watch_WatchClient.Send(r)
	}
	key := string(q.Key)
	if key == "" { // etcd treats an empty key as the smallest possible key
		key = "\x00"
	}
	denied := len(s.hidden.Without(key, string(q.RangeEnd))) == 0
	if denied {
		other := *q
		other.Key, other.RangeEnd = []byte("a"), []byte("a")
		r = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &other}}
	}
	s.mu.Lock()
	s.denied = append(s.denied, denied)
	s.mu.Unlock()
	return s.Watch_WatchClient.Send(r)
}

// Recv implements pb.Watch_WatchClient.
func (s *watchStream) Recv() (*pb.WatchResponse, error) {
	for {
		r, err := s.Watch_WatchClient.Recv()
		if err != nil {
			return r, err
		}
		s.newest.Saw(r.GetHeader().GetRevision())
		if r.Created {
			s.answered(r)
		}
		had := len(r.Events)
		r.Events = slices.DeleteFunc(r.Events, func(e *mvccpb.Event) bool {
			return e.Kv != nil && s.hidden.Has(string(e.Kv.Key))
		})
		// If all events were removed from an answer, the rest would look like a progress report, so
		// the answer is dropped. The last part of an answer that has several parts is passed on
		// nevertheless.
		if had > 0 && len(r.Events) == 0 && !r.Canceled && !s.begun[r.WatchId] {
			continue
		}
		if r.Fragment {
			s.begun[r.WatchId] = true
		} else {
			delete(s.begun, r.WatchId)
		}
		return r, nil
	}
}

// answered writes the reason into the answer to a watch request that was denied.
func (s *watchStream) answered(r *pb.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.denied) == 0 {
		return
	}
	if s.denied[0] && r.Canceled {
		r.CancelReason = s.hidden.Denied().Error()
	}
	s.denied = s.denied[1:]
}
