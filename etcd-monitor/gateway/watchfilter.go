package gateway

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netcraq/netcraq/etcd-monitor/reserved"
)

// watchFilter keeps reserved keys out of one stream of watches. A watch of reserved keys alone is refused, in the form in which etcd refuses one, and in its turn: clients tell the answers to their requests for watches apart by the
// order alone. Of any other watch the events of reserved keys are left out.
type watchFilter struct {
	own reserved.Keys

	mu       sync.Mutex
	creating []watchCreate         // watches that etcd was asked for and has not answered, in order
	watches  map[int64]*watchState // by their IDs, those of which something is to be known
}

// watchCreate is a watch that a client asks for.
type watchCreate struct{ refused, progress, fragments bool }

// watchState is what is to be known of a watch.
type watchState struct {
	progress bool // it was asked to tell how far it is
	begun    bool // the client has had the beginning of an answer in fragments
}

// Fields of etcd's messages for watches (rpc.proto).
const (
	watchIDField  = 2 // of WatchResponse: int64
	createdField  = 3 // of WatchResponse: bool
	canceledField = 4 // of WatchResponse: bool
	fragmentField = 7 // of WatchResponse: bool
)

func newWatchFilter(own reserved.Keys) *watchFilter {
	return &watchFilter{own: own, watches: map[int64]*watchState{}}
}

// request is what etcd is asked for a message of the client's.
func (f *watchFilter) request(message []byte) []byte {
	if len(f.own.Prefixes()) == 0 {
		return message
	}
	var q pb.WatchRequest
	if q.Unmarshal(message) != nil || q.GetCreateRequest() == nil {
		return message // etcd will say what is wrong with it
	}
	c := q.GetCreateRequest()
	want := watchCreate{progress: c.ProgressNotify, fragments: c.Fragment}
	key := string(c.Key)
	if key == "" { // etcd takes it for the first one
		key = "\x00"
	}
	if want.refused = len(f.own.Without(key, string(c.RangeEnd))) == 0; want.refused {
		// A range without keys, which etcd refuses: so the answer comes in its turn.
		c.RangeEnd = c.Key
		if b, err := q.Marshal(); err == nil {
			message = b
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.creating = append(f.creating, want)
	return message
}

// answer is what the client is sent for a message of etcd's; nil: nothing.
func (f *watchFilter) answer(message []byte) ([]byte, error) {
	if len(f.own.Prefixes()) == 0 {
		return message, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, created := field(message, createdField, protowire.VarintType); created != 0 && len(f.creating) > 0 {
		return f.created(message)
	}
	_, id := field(message, watchIDField, protowire.VarintType)
	w := f.watches[int64(id)]
	if _, canceled := field(message, canceledField, protowire.VarintType); canceled != 0 {
		delete(f.watches, int64(id))
	}
	shows := slices.ContainsFunc(f.own.Prefixes(), func(p string) bool { return bytes.Contains(message, []byte(p)) })
	if !shows {
		if w != nil {
			_, fragment := field(message, fragmentField, protowire.VarintType)
			w.begun = fragment != 0
		}
		return message, nil
	}
	var r pb.WatchResponse
	if err := r.Unmarshal(message); err != nil {
		return nil, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	begun := w != nil && w.begun
	last := int64(0) // the revision of the last event that is left out
	events := len(r.Events)
	r.Events = slices.DeleteFunc(r.Events, func(e *mvccpb.Event) bool {
		if e.Kv == nil || !f.own.Has(string(e.Kv.Key)) {
			return false
		}
		last = e.Kv.ModRevision
		return true
	})
	if len(r.Events) == 0 && events > 0 && !r.Canceled && r.CompactRevision == 0 {
		switch {
		case r.Fragment: // the rest comes
			return nil, nil
		case begun: // the end of what has begun
		case w != nil && w.progress && r.Header != nil:
			// Now and then such a watch is to be told how far it is, and etcd believes that it was. That is as far as what was left out: of a watch of the past the header's revision is the present.
			r.Header.Revision = last
		default:
			return nil, nil
		}
	}
	if w != nil {
		w.begun = r.Fragment
	}
	b, err := r.Marshal()
	if err != nil {
		return nil, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	return b, nil
}

// created is an answer to a request for a watch. The caller has locked mu.
func (f *watchFilter) created(message []byte) ([]byte, error) {
	want := f.creating[0]
	f.creating = f.creating[1:]
	var r pb.WatchResponse
	if err := r.Unmarshal(message); err != nil {
		return nil, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	if !want.refused {
		if !r.Canceled && (want.progress || want.fragments) {
			f.watches[r.WatchId] = &watchState{progress: want.progress}
		}
		return message, nil
	}
	r.CancelReason = f.own.Denied().Error()
	b, err := r.Marshal()
	if err != nil {
		return nil, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	return b, nil
}
