package gateway

import (
	"bytes"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Clients' watches never contain reserved keys. The gateway refuses a watch of only reserved keys.
// The refusal has etcd's form and comes in the order of the requests, because clients match answers
// to requests only by order. From other watches, the gateway removes the events of reserved keys.
// In this file, keys have their names at etcd.

// refuses reports whether a client requests a watch of only reserved keys. If so, it changes the
// request to a range without keys. etcd refuses such a range, so that the answer comes in order.
func (g *Gateway) refuses(q *pb.WatchCreateRequest) bool {
	if len(g.reserved.Prefixes()) == 0 {
		return false
	}
	key := string(q.Key)
	if key == "" { // etcd treats an empty key as the first key
		key = "\x00"
	}
	if len(g.reserved.Without(key, string(q.RangeEnd))) > 0 {
		return false
	}
	q.Key, q.RangeEnd = []byte("a"), []byte("a")
	return true
}

// denied converts etcd's answer to a request that [Gateway.refuses] has changed. The result has the
// error for the client.
func (g *Gateway) denied(a watchAnswer) (watchAnswer, error) {
	return a.changed(func(r *pb.WatchResponse) { r.CancelReason = g.reserved.Denied().Error() })
}

// withoutReserved removes the events of reserved keys from an answer. The result still covers the
// same revisions.
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

// changed applies a change to an answer. The result covers the same revisions.
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

// shows returns the part of an answer that the client gets, if any. It drops an answer whose events
// were all removed, with two exceptions. An answer in fragments must get its end, and a client that
// requested progress notifications must get them. The caller holds the lock of the watch's group,
// or the watch is busy.
func (w *watch) shows(a watchAnswer) (watchAnswer, bool) {
	if !a.emptied {
		w.begun = a.fragment
		return a, true
	}
	switch {
	case a.fragment: // more fragments follow
		return a, false
	case w.begun: // the answer is the end of an answer in fragments
		w.begun = false
		return a, true
	case w.request.ProgressNotify:
		// etcd assumes that the client gets this answer as a progress notification. It covers only
		// the removed events, because for a watch in the past the header's revision is the current
		// one.
		out, err := a.changed(func(r *pb.WatchResponse) {
			if r.Header != nil {
				r.Header.Revision = a.last
			}
		})
		return out, err == nil
	}
	return a, false
}
