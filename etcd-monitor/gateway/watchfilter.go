package gateway

import (
	"bytes"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Reserved keys are in no client's watch. A watch of reserved keys alone is refused, in the form in
// which etcd refuses one, and in its turn: clients tell the answers to their requests for watches
// apart only by the order. Of any other watch the events of reserved keys are left out. Keys have
// the names that etcd has here.

// refuses says whether a client's request is for a watch of reserved keys alone. If so it makes it
// one for a range without keys, which etcd refuses: so the answer comes in its turn.
func (g *Gateway) refuses(q *pb.WatchCreateRequest) bool {
	if len(g.reserved.Prefixes()) == 0 {
		return false
	}
	key := string(q.Key)
	if key == "" { // etcd takes it for the first one
		key = "\x00"
	}
	if len(g.reserved.Without(key, string(q.RangeEnd))) > 0 {
		return false
	}
	q.Key, q.RangeEnd = []byte("a"), []byte("a")
	return true
}

// denied is etcd's answer to a request for a watch that [Gateway.refuses] has changed, with the
// error for the client.
func (g *Gateway) denied(a watchAnswer) (watchAnswer, error) {
	return a.changed(func(r *pb.WatchResponse) { r.CancelReason = g.reserved.Denied().Error() })
}

// withoutReserved leaves the events of reserved keys out of an answer. It stays one about all
// revisions that it was about.
func (g *Gateway) withoutReserved(a watchAnswer) (watchAnswer, error) {
	if a.last == 0 || !slices.ContainsFunc(g.reserved.Prefixes(), func(p string) bool {
		return bytes.Contains(a.bytes, []byte(p))
	}) {
		return a, nil
	}
	left := 0
	out, err := a.changed(func(r *pb.WatchResponse) {
		r.Events = slices.DeleteFunc(r.Events, func(e *mvccpb.Event) bool {
			return e.Kv != nil && g.reserved.Has(string(e.Kv.Key))
		})
		left = len(r.Events)
	})
	out.emptied = left == 0 && !a.canceled && !a.compact
	return out, err
}

// changed is an answer with a change that leaves it about the same revisions.
func (a *watchAnswer) changed(change func(*pb.WatchResponse)) (watchAnswer, error) {
	var r pb.WatchResponse
	if err := r.Unmarshal(a.bytes); err != nil {
		return *a, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	change(&r)
	b, err := r.Marshal()
	if err != nil {
		return *a, fmt.Errorf("gateway: an answer of etcd's to a watch: %w", err)
	}
	out, _ := readWatchAnswer(b)
	out.first, out.last, out.emptied = a.first, a.last, a.emptied
	return out, nil
}

// shows is the part of an answer that the client gets, if any. An answer whose events were all left
// out is dropped. But an answer in fragments must have its end, and a client that asked for
// progress reports must get them. The caller has locked the watch's group, or the watch is busy.
func (w *watch) shows(a watchAnswer) (watchAnswer, bool) {
	if !a.emptied {
		w.begun = a.fragment
		return a, true
	}
	switch {
	case a.fragment: // the rest comes
		return a, false
	case w.begun: // the end of what has begun
		w.begun = false
		return a, true
	case w.request.ProgressNotify:
		// etcd believes that the client has got this. It covers only what was left out: for a watch
		// of the past the header's revision is the present.
		out, err := a.changed(func(r *pb.WatchResponse) {
			if r.Header != nil {
				r.Header.Revision = a.last
			}
		})
		return out, err == nil
	}
	return a, false
}
