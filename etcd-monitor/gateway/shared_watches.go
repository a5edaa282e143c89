package gateway

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// sharedAtMost is the maximum number of watches on one stream to etcd.
const sharedAtMost = 1000

// sharedPause is how long equal watches are not shared after etcd has refused a common watch for
// them.
const sharedPause = time.Minute

// watchHub has the watches of all clients, grouped by their keys and options. Locks are taken in
// this order: the hub's, a group's, streamsMu, a stream's.
type watchHub struct {
	g         *Gateway
	waiting   int           // maximum bytes of the answers that wait for one client
	slowPause time.Duration // how long a watch is not shared after it was too slow

	slow     atomic.Int64 // number of watches that are not shared because they are too slow
	versions *memberVersions

	mu     sync.Mutex
	groups map[string]*watchGroup

	streamsMu sync.Mutex
	streams   map[string]*sharedStream // the stream to which new watches are added, by identity
}

// watchGroup is a set of equal watches of several clients.
type watchGroup struct {
	key string

	mu        sync.Mutex
	alone     map[*watch]bool // watches that etcd answers on their clients' own streams
	shared    map[*watch]bool // watches that the common watch answers
	common    *commonWatch    // the group's watch at etcd, or nil
	notBefore time.Time
}

// commonWatch is a watch at etcd whose answers go to many clients.
type commonWatch struct {
	group  *watchGroup
	stream *sharedStream
	id     int64
	made   bool  // etcd has created the watch
	pos    int64 // all events up to this revision were forwarded, or came before the watch was created
	within bool  // only some fragments of an answer were forwarded so far
}

// sharedStream is a stream to etcd that carries common watches.
type sharedStream struct {
	hub      *watchHub
	identity string
	stop     context.CancelFunc
	etcd     *mailbox

	mu      sync.Mutex
	watches map[int64]*commonWatch
	made    int64 // number of watches that the stream has had
	asked   []*commonWatch
	asks    []*question
	dead    bool
}

func newWatchHub(g *Gateway) *watchHub {
	return &watchHub{g: g, waiting: mailboxBytes, slowPause: 10 * time.Second, groups: map[string]*watchGroup{},
		streams: map[string]*sharedStream{}, versions: newMemberVersions(g.upstream, g.log)}
}

// join adds a watch to the group of watches that are equal to it. All options of their requests
// must be equal, except for the start revision and the watch ID.
func (h *watchHub) join(w *watch) {
	q := *w.request
	q.WatchId, q.StartRevision = 0, 0
	b, err := q.Marshal()
	if err != nil {
		b = nil
	}
	key := string(b) + "\x00" + w.stream.identity
	h.mu.Lock()
	defer h.mu.Unlock()
	group := h.groups[key]
	if group == nil {
		group = &watchGroup{key: key, alone: map[*watch]bool{}, shared: map[*watch]bool{}}
		h.groups[key] = group
	}
	group.mu.Lock()
	defer group.mu.Unlock()
	w.group = group
	group.alone[w] = true
}

// leave removes a watch from its group. Without further watches in the group, the common watch
// ends.
func (h *watchHub) leave(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	group := w.group
	group.mu.Lock()
	defer group.mu.Unlock()
	w.ending = true
	delete(group.alone, w)
	delete(group.shared, w)
	if len(group.alone)+len(group.shared) == 0 && h.groups[group.key] == group {
		delete(h.groups, group.key)
	}
	if c := group.common; c != nil && len(group.shared) == 0 && len(group.alone) < 2 {
		c.end()
	}
}

// ends records that the client has cancelled a watch. If etcd must cancel it, ends returns the
// watch's ID on the client's own stream. Otherwise it returns 0, and the watch has ended.
func (h *watchHub) ends(w *watch) int64 {
	w.group.mu.Lock()
	own := w.own
	w.ending = true
	w.group.mu.Unlock()
	if own == 0 {
		h.leave(w)
	}
	return own
}

// streamOf returns the stream of the common watch that answers a watch, or nil if the watch is not
// shared.
func (h *watchHub) streamOf(w *watch) *sharedStream {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	if c := w.group.common; c != nil && w.group.shared[w] {
		return c.stream
	}
	return nil
}

// holds is called before an answer on the client's own stream is forwarded to the client. It
// returns false if the watch is no longer on that stream. passed is called afterwards.
func (h *watchHub) holds(w *watch, own int64) bool {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	if w.own != own {
		return false
	}
	w.busy = true
	return true
}

// begun records that etcd has created a watch at a revision. etcd sends all events from that
// revision on, or from the watch's start if the start is later.
func (h *watchHub) begun(w *watch, revision int64) {
	group := w.group
	group.mu.Lock()
	defer group.mu.Unlock()
	switch start := w.request.StartRevision; {
	case start == 0:
		w.pos, w.known = revision, true
	case start == revision+1:
		w.pos, w.known = revision, true
	default: // the start may be compacted or far in the future; the first answer will show this
		w.pos = start - 1
	}
	h.share(w)
}

// passed records that an answer on the client's own stream was forwarded to the client.
func (h *watchHub) passed(w *watch, a watchAnswer) {
	group := w.group
	group.mu.Lock()
	defer group.mu.Unlock()
	switch {
	case a.id == noWatch:
		if w.busy || w.own == 0 || w.ending {
			return
		}
		w.pos, w.known = max(w.pos, a.revision), true
	default:
		w.busy = false
		switch {
		case a.fragment:
			w.known = false
		case a.last > 0:
			w.pos, w.known = max(w.pos, a.last), true
		default:
			w.pos, w.known = max(w.pos, a.revision), true
		}
	}
	h.share(w)
}

// count returns the number of watches at etcd, and the number of clients' watches.
func (h *watchHub) count() (etcd, clients int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, group := range h.groups {
		group.mu.Lock()
		etcd += len(group.alone)
		clients += len(group.alone) + len(group.shared)
		if group.common != nil {
			etcd++
		}
		group.mu.Unlock()
	}
	return etcd, clients
}

// holdsAs records that etcd has created a client's own watch. It does so for a new watch, and for a
// watch that is no longer shared. It reports whether the client still wants the watch.
func (h *watchHub) holdsAs(w *watch, own int64) bool {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	if !w.ending {
		w.own = own
	}
	return !w.ending
}

// wants reports whether a watch could be shared if the gateway knew its progress.
func (h *watchHub) wants(w *watch) bool {
	group := w.group
	group.mu.Lock()
	defer group.mu.Unlock()
	if !group.alone[w] || w.own == 0 || w.ending || len(group.alone)+len(group.shared) < 2 || w.tooSlow() {
		return false
	}
	return !w.known || group.common != nil && group.common.made
}

// share makes the common watch answer a watch, if both have progressed equally far. Otherwise, if
// two watches have known progress, it makes a common watch. The caller holds the group's lock.
func (h *watchHub) share(w *watch) {
	group := w.group
	if !group.alone[w] || w.own == 0 || w.ending || len(group.alone)+len(group.shared) < 2 || w.tooSlow() {
		return
	}
	c := group.common
	switch {
	case !w.known:
		w.stream.nudge()
	case c == nil:
		h.make(group)
	case !c.made:
	case c.within || w.pos < c.pos || !w.move():
		w.stream.nudge()
	}
}

// make makes a common watch if two watches of a group have known progress. Otherwise it queries the
// progress of the other watches. The caller holds the group's lock.
func (h *watchHub) make(group *watchGroup) {
	if time.Now().Before(group.notBefore) {
		return
	}
	known := 0
	var one *watch
	for w := range group.alone {
		if w.known && !w.ending {
			known, one = known+1, w
		}
	}
	if known >= 2 {
		h.add(&commonWatch{group: group}, one.stream, one.request)
		return
	}
	for w := range group.alone { // a watch that was first in its group has not queried its progress
		if !w.known && !w.ending {
			w.stream.nudge()
		}
	}
}

// add creates a common watch at etcd. The caller holds the group's lock.
func (h *watchHub) add(c *commonWatch, like *watchStream, request *pb.WatchCreateRequest) {
	h.streamsMu.Lock()
	defer h.streamsMu.Unlock()
	st := h.streams[like.identity]
	if st == nil || !st.add(c, request) {
		st = h.open(like.identity, like.metadata)
		st.add(c, request)
	}
	c.group.common = c
}

// open opens a stream to etcd for common watches. The caller holds streamsMu.
func (h *watchHub) open(identity string, md metadata.MD) *sharedStream {
	ctx, stop := context.WithCancel(metadata.NewOutgoingContext(h.g.stopping, md))
	st := &sharedStream{hub: h, identity: identity, stop: stop, etcd: newMailbox(mailboxBytes),
		watches: map[int64]*commonWatch{}}
	h.streams[identity] = st
	go func() {
		defer stop()
		st.fail(st.run(ctx))
	}()
	return st
}

// move makes the common watch answer a watch. It does nothing while an answer or a progress request
// for the watch is in progress. The caller holds the group's lock.
func (w *watch) move() bool {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.busy || s.questions() || s.ended {
		return false
	}
	delete(s.own, w.own)
	s.tell(cancelRequest(w.own), false)
	w.own = 0
	delete(w.group.alone, w)
	w.group.shared[w] = true
	return true
}

// tooSlow reports whether a watch is currently not shared because its client was too slow. The
// caller holds the group's lock.
func (w *watch) tooSlow() bool { return time.Now().Before(w.notBefore) }

// back gives a watch whose client is too slow its own watch at etcd again. The client has all
// events up to pos, so the new watch starts after pos. The caller holds the group's lock.
func (w *watch) back(pos int64) {
	w.stream.hub.slow.Add(1)
	delete(w.group.shared, w)
	w.group.alone[w] = true
	w.pos, w.known, w.notBefore = pos, false, time.Now().Add(w.stream.hub.slowPause)
	s := w.stream
	s.mu.Lock()
	s.forget()
	s.mu.Unlock()
	if s.etcd.isClosed() || s.begin(w, pos+1, true) != nil {
		s.out.close(errSlow)
	}
}

// run processes etcd's answers until the stream ends, and returns the reason.
func (st *sharedStream) run(ctx context.Context) error {
	g := st.hub.g
	up, err := g.stream(ctx, watchMethod)
	if err != nil {
		return err
	}
	go send(st.etcd, up)
	return receiveAll(up, func(f frame) error {
		a, ok, err := g.watchAnswer(f)
		if err == nil && ok {
			st.answered(a)
		}
		return err
	})
}

// fail ends the stream. It also ends the streams of all clients that the stream's watches answered.
func (st *sharedStream) fail(why error) {
	h := st.hub
	h.streamsMu.Lock()
	if h.streams[st.identity] == st {
		delete(h.streams, st.identity)
	}
	h.streamsMu.Unlock()
	st.etcd.close(why)
	st.mu.Lock()
	st.dead = true
	all := make([]*commonWatch, 0, len(st.watches))
	for _, c := range st.watches {
		all = append(all, c)
	}
	st.watches = nil
	st.mu.Unlock()
	if _, ok := status.FromError(why); !ok {
		why = status.FromContextError(why).Err()
	}
	for _, c := range all {
		c.group.mu.Lock()
		if c.group.common == c {
			c.group.common = nil
			for w := range c.group.shared {
				w.stream.out.close(why)
			}
		}
		c.group.mu.Unlock()
	}
}

// add creates a watch at etcd, if the stream has room for it.
func (st *sharedStream) add(c *commonWatch, request *pb.WatchCreateRequest) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.dead || st.made >= sharedAtMost {
		return false
	}
	st.made++
	c.stream, c.id = st, st.made
	st.watches[c.id] = c
	st.asked = append(st.asked, c)
	q := *request
	q.WatchId, q.StartRevision = c.id, 0
	st.tell(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &q}})
	return true
}

func (st *sharedStream) tell(r *pb.WatchRequest) {
	if b, err := r.Marshal(); err == nil {
		st.etcd.force(pieces{b})
	}
}

// drop ends a common watch. If it was the last one on a full stream, drop ends the stream, too.
func (st *sharedStream) drop(c *commonWatch) {
	st.hub.streamsMu.Lock()
	defer st.hub.streamsMu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.watches[c.id] != c {
		return
	}
	delete(st.watches, c.id)
	st.tell(cancelRequest(c.id))
	if len(st.watches) == 0 {
		st.dead = true
		if st.hub.streams[st.identity] == st {
			delete(st.hub.streams, st.identity)
		}
		st.stop()
	}
}

// ask sends a progress request for all watches on this stream.
func (st *sharedStream) ask(q *question) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.asks = append(slices.DeleteFunc(st.asks, func(q *question) bool { return time.Now().After(q.until) }), q)
	st.tell(progressRequest)
}

// answered processes an answer of etcd on the stream.
func (st *sharedStream) answered(a watchAnswer) {
	st.mu.Lock()
	var c *commonWatch
	switch {
	case a.created:
		if len(st.asked) > 0 {
			c, st.asked = st.asked[0], st.asked[1:]
		}
	case a.id == noWatch:
		asks := st.asks
		st.asks = nil
		st.mu.Unlock()
		for _, q := range asks {
			q.stream.mu.Lock()
			q.hears(st, a)
			q.stream.mu.Unlock()
		}
		return
	default:
		c = st.watches[a.id]
	}
	st.mu.Unlock()
	if c == nil {
		return
	}
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.group.common != c {
		return
	}
	switch {
	case a.created && a.canceled:
		c.refused()
	case a.created: // older events may follow, but a client that is moved to this watch already has them
		c.made, c.pos = true, a.revision
		c.gather()
	case a.canceled:
		c.canceled(a)
	default:
		c.pass(a)
	}
}

// gather moves all watches of the group that have progressed equally far to this common watch. The
// caller holds the group's lock.
func (c *commonWatch) gather() {
	for w := range c.group.alone {
		c.stream.hub.share(w)
	}
}

// end ends the common watch when it serves no client. The caller holds the group's lock.
func (c *commonWatch) end() {
	c.group.common = nil
	c.stream.drop(c)
}

// refused records that etcd has refused to create the common watch. The caller holds the group's
// lock.
func (c *commonWatch) refused() {
	c.group.notBefore = time.Now().Add(sharedPause)
	c.end()
}

// canceled records that etcd has cancelled the common watch. It cancels all clients' watches that
// the common watch serves. The caller holds the group's lock.
func (c *commonWatch) canceled(a watchAnswer) {
	c.end()
	for w := range c.group.shared {
		delete(c.group.shared, w)
		w.ending = true
		w.stream.mu.Lock()
		delete(w.stream.watches, w.id)
		w.stream.mu.Unlock()
		w.stream.out.force(a.as(w.id))
		go c.stream.hub.leave(w)
	}
}

// pass forwards an answer of etcd to all clients of the common watch. The caller holds the group's
// lock.
func (c *commonWatch) pass(a watchAnswer) {
	if a.last == 0 { // an answer without events reports progress
		for w := range c.group.shared {
			if a.revision >= w.pos {
				w.stream.out.put(a.as(w.id), false)
			}
		}
		return
	}
	if !c.within { // watches that have all earlier events get this answer from the common watch
		c.gather()
	}
	for w := range c.group.shared {
		part := a
		switch {
		case a.last <= w.pos:
			continue
		case a.first <= w.pos && !a.emptied:
			var err error
			if part, err = a.after(w.pos); err != nil {
				w.stream.out.close(err)
				continue
			}
		}
		part, shown := w.shows(part)
		switch {
		case !shown || w.stream.out.put(part.as(w.id), false):
			if !a.fragment {
				w.pos = a.last
			}
		case c.within || a.fragment || w.request.PrevKv:
			// The watch cannot restart: etcd may omit the previous values of the first events of a
			// watch that starts in the past.
			w.stream.out.close(errSlow)
		default:
			w.back(max(w.pos, a.first-1))
		}
	}
	if len(c.group.shared) == 0 && len(c.group.alone) > 0 &&
		slices.ContainsFunc(slices.Collect(maps.Keys(c.group.alone)), (*watch).tooSlow) {
		c.end() // no client uses this watch; later, another one is made
		return
	}
	if c.within = a.fragment; !c.within {
		c.pos = max(c.pos, a.last)
	}
}
