package gateway

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Equal watches of many clients (the same keys, filters and so on, by the same user) share one
// watch at etcd.
//
// Each watch starts on its client's own stream to etcd, so etcd itself decides whether the client
// may watch these keys and whether the start revision was compacted, and sends the events so far.
// When the watch's progress is known and there is an equal watch, the gateway makes a common watch
// (shared_watches.go) that starts no later. As soon as both have progressed equally far, the common
// watch answers the client, and its own watch is cancelled at etcd. A client that does not read
// fast enough gets its own watch again, from its current revision: on its own stream etcd waits for
// it, and the other clients do not. When etcd ends a client's stream or the common watch, the
// client's stream ends, as it would without a gateway: clients then resume from their revision.

// Delay before the gateway requests the progress of an unshared watch that could be shared: the
// first one, and the maximum.
const (
	nudgeFirst = 100 * time.Millisecond
	nudgeLast  = 10 * time.Second
)

// progressWait is the timeout for etcd's answer when a client requests its watches' progress. etcd
// does not answer while one of them is behind.
const progressWait = 2 * time.Second

// errSlow ends a stream whose client cannot get its own watch again.
var errSlow = status.Error(codes.Unavailable, "etcd-monitor: the client reads its watches too slowly; they can be resumed")

// watchStream is a client's stream of watches.
type watchStream struct {
	g        *Gateway
	hub      *watchHub
	metadata metadata.MD
	identity string
	out      *mailbox // messages to the client
	etcd     *mailbox // messages to etcd, on the client's own stream

	mu      sync.Mutex
	watches map[int64]*watch // by the id that the client knows
	next    int64            // id for the next watch that requests none
	own     map[int64]*watch // by their ids at etcd, on the client's own stream
	lastOwn int64
	asked   []*pendingWatch // requests that etcd has not answered
	asks    []*question     // open progress requests of the client
	sent    int             // number of progress requests to etcd on the client's own stream
	heard   int             // number of etcd's answers to these requests
	sample  watchAnswer     // an answer of etcd to a created watch
	since   time.Time       // time of the first such answer
	trailer metadata.MD     // trailer with which etcd has ended the client's own stream
	nudging bool
	ended   bool

	ordered atomic.Bool // etcd's answers on the client's own stream come in order (progress.go)
}

// pendingWatch is a request for a watch that etcd has not answered.
type pendingWatch struct {
	watch *watch
	id    int64 // the watch's id at etcd
	again bool  // the client knows the watch already
}

// watch is a client's watch. Fields marked "group" are guarded by the group's lock.
type watch struct {
	stream  *watchStream
	id      int64 // the client's id
	request *pb.WatchCreateRequest
	group   *watchGroup
	refused bool // etcd gets a request that it will refuse, because the client requests only reserved keys

	own       int64 // group: its id at etcd on the client's own stream, 0 while it is shared
	pos       int64 // group: all events up to this revision were answered, if known
	known     bool  // group: pos is valid
	busy      bool  // group: an answer of etcd to the client's own watch is being passed on
	begun     bool  // the client has received the first fragments of an answer
	ending    bool  // group: the client has cancelled it, or it has ended
	notBefore time.Time
	made      madeAt // used only while etcd's answers on the client's own stream are read
}

// madeAt is the time when etcd created a watch, relative to etcd's progress answers on its stream.
// After the answer to the creation, etcd may still send a progress answer from before it, which
// says nothing about the watch. A later answer is recognized by its revision, or because more
// answers have come than requests were open.
type madeAt struct {
	made     bool // etcd has answered that the watch is created
	revision int64
	open     int
}

// counts reports whether the next answer says something about the watch.
func (m *madeAt) counts(answer watchAnswer) bool {
	m.open--
	return m.made && (m.open < 0 || answer.revision > m.revision)
}

// question is a client's request for the progress of its watches. The gateway requests it from etcd
// on all streams that carry them, and answers with the lowest revision.
type question struct {
	stream *watchStream
	until  time.Time
	open   map[any]bool // streams on which etcd has not answered
	answer watchAnswer
	over   bool
}

// watches serves a client's stream of watches.
func (g *Gateway) watches(down grpc.ServerStream) error {
	ctx, cancel := context.WithCancel(outgoing(down.Context()))
	defer cancel()
	defer context.AfterFunc(g.stopping, cancel)()
	up, err := g.stream(ctx, watchMethod)
	if err != nil {
		return g.unlessStopped(err)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	s := &watchStream{g: g, hub: g.hub, metadata: md, identity: identity(md), out: newMailbox(g.hub.waiting),
		etcd: newMailbox(mailboxBytes), watches: map[int64]*watch{}, own: map[int64]*watch{}}
	defer s.end()
	defer context.AfterFunc(ctx, func() { s.out.close(status.FromContextError(ctx.Err()).Err()) })()
	go func() { // ends at the latest when the handler's stream does
		if err := s.receive(down); err != nil {
			cancel()
		}
	}()
	go send(s.etcd, up) // the goroutine that receives reports the errors of sending
	// A watch gets its header long before its first answer, and clients wait for the header.
	header, err := up.Header()
	if err == nil && header != nil {
		if err := down.SendHeader(own(header)); err != nil {
			return err
		}
	}
	go func() {
		err := s.pump(up)
		if _, failed := status.FromError(err); failed || errors.Is(err, io.EOF) {
			s.mu.Lock()
			s.trailer = up.Trailer()
			s.mu.Unlock()
		}
		s.out.close(err)
	}()
	for {
		messages, err := s.out.take()
		if err != nil {
			s.mu.Lock()
			down.SetTrailer(own(s.trailer))
			s.mu.Unlock()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return g.unlessStopped(err)
		}
		for _, m := range messages {
			if err := down.SendMsg(m); err != nil {
				return err
			}
		}
		s.out.sent()
	}
}

// receiveAll processes each message of a stream until the stream ends, and returns the reason.
func receiveAll(from grpc.ClientStream, take func(frame) error) error {
	for {
		var f frame
		if err := from.RecvMsg(&f); err != nil {
			return err
		}
		if err := take(f); err != nil {
			return err
		}
	}
}

// send sends the messages of a mailbox until it is closed.
func send(m *mailbox, to grpc.ClientStream) {
	for {
		messages, err := m.take()
		if err != nil {
			to.CloseSend()
			return
		}
		for _, p := range messages {
			if to.SendMsg(p) != nil {
				m.close(io.EOF)
				return
			}
		}
		m.sent()
	}
}

// receive processes the client's requests until the last one. It passes on requests that it does
// not understand.
func (s *watchStream) receive(down grpc.ServerStream) error {
	for {
		var f frame
		if err := down.RecvMsg(&f); err != nil {
			s.etcd.close(io.EOF)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var r pb.WatchRequest
		if r.Unmarshal(f.bytes) != nil {
			s.etcd.put(pieces{f.bytes}, true)
			continue
		}
		var err error
		switch q := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			err = s.create(&r, q.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			err = s.cancel(&r, q.CancelRequest)
		case *pb.WatchRequest_ProgressRequest:
			s.progress()
		default:
			s.etcd.put(pieces{f.bytes}, true)
		}
		if err != nil {
			return err
		}
	}
}

// create creates a watch at etcd.
func (s *watchStream) create(r *pb.WatchRequest, q *pb.WatchCreateRequest) error {
	if q == nil {
		return s.tell(r, true)
	}
	s.g.names.watchIn(q)
	w := &watch{stream: s, id: q.WatchId, request: q, refused: s.g.refuses(q)}
	s.mu.Lock()
	s.forget() // a pending progress answer would be mistaken for one about this watch
	s.mu.Unlock()
	s.hub.join(w)
	s.etcd.room()
	return s.begin(w, q.StartRevision, false)
}

// begin creates a watch at etcd from a revision, on the client's own stream.
func (s *watchStream) begin(w *watch, start int64, again bool) error {
	s.mu.Lock() // until the request is queued, because answers are matched by order
	defer s.mu.Unlock()
	s.lastOwn++
	id := s.lastOwn
	q := *w.request
	q.WatchId, q.StartRevision = id, start
	b, err := (&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &q}}).Marshal()
	if err != nil {
		return err
	}
	s.asked = append(s.asked, &pendingWatch{w, id, again})
	s.own[id], w.made = w, madeAt{}
	s.etcd.force(pieces{b})
	return nil
}

// tell sends a request to etcd.
func (s *watchStream) tell(r *pb.WatchRequest, wait bool) error {
	b, err := r.Marshal()
	if err != nil {
		return err
	}
	if wait {
		s.etcd.put(pieces{b}, true)
	} else {
		s.etcd.force(pieces{b})
	}
	return nil
}

// cancel cancels a watch at the client's request.
func (s *watchStream) cancel(r *pb.WatchRequest, q *pb.WatchCancelRequest) error {
	if q == nil {
		return s.tell(r, true)
	}
	s.mu.Lock()
	w := s.watches[q.WatchId]
	own := int64(0)
	// it may be a watch that etcd has not answered; the client can name that only if it chose the
	// id
	if w == nil && q.WatchId != 0 {
		for _, c := range s.asked {
			if c.watch.id == q.WatchId && !c.again {
				own = c.id
			}
		}
	}
	s.mu.Unlock()
	if w != nil {
		own = s.hub.ends(w)
	}
	switch {
	case own != 0:
		return s.tell(cancelRequest(own), true)
	case w == nil:
		return nil // etcd does not answer such a request
	}
	s.mu.Lock()
	answer, err := s.sample.cancelled(s.g.newest.Revision(), w.id)
	delete(s.watches, w.id)
	s.mu.Unlock()
	s.out.put(answer, true)
	return err
}

// progress requests the progress of the client's watches from etcd.
func (s *watchStream) progress() {
	q := &question{stream: s, until: time.Now().Add(progressWait)}
	s.mu.Lock()
	s.questions() // from here on, a watch that changes its stream drops the question
	s.asks = append(s.asks, q)
	ws := slices.Collect(maps.Values(s.watches))
	s.mu.Unlock()
	shared := map[*sharedStream]bool{}
	for _, w := range ws {
		if st := s.hub.streamOf(w); st != nil {
			shared[st] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.open = map[any]bool{}
	for st := range shared {
		q.open[st] = true
		st.ask(q)
	}
	if len(s.own) > 0 || len(shared) == 0 {
		q.open[s] = true
		s.ask()
	}
}

// ask requests the progress of the watches on the client's own stream. The caller holds mu.
func (s *watchStream) ask() {
	s.sent++
	s.tell(progressRequest, false)
}

func cancelRequest(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
		CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

var progressRequest = &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
	ProgressRequest: &pb.WatchProgressRequest{}}}

// forget drops the client's open progress requests. etcd itself does not answer them while a watch
// is behind, and clients repeat them. The caller holds mu.
func (s *watchStream) forget() {
	for _, a := range s.asks {
		a.over = true
	}
	s.asks = nil
}

// questions drops answered and expired progress requests, and reports whether any remain. The
// caller holds mu.
func (s *watchStream) questions() bool {
	s.asks = slices.DeleteFunc(s.asks, func(q *question) bool {
		q.over = q.over || time.Now().After(q.until)
		return q.over
	})
	return len(s.asks) > 0
}

// hears records etcd's answer to a question on one stream. The caller holds mu of the client's
// stream.
func (q *question) hears(on any, answer watchAnswer) {
	if q.over || !q.open[on] {
		return
	}
	if q.answer.bytes == nil || answer.revision < q.answer.revision {
		q.answer = answer
	}
	if delete(q.open, on); len(q.open) == 0 {
		q.over = true
		q.stream.out.force(q.answer.as(noWatch))
	}
}

// pump processes etcd's answers on the client's own stream until it ends, and returns the reason.
func (s *watchStream) pump(up grpc.ClientStream) error {
	return receiveAll(up, func(f frame) error {
		a, ok, err := s.g.watchAnswer(f)
		if err != nil {
			return err
		}
		if !ok {
			s.out.put(pieces{f.bytes}, true)
			return nil
		}
		return s.answered(a)
	})
}

// watchAnswer parses an answer of etcd to a watch, and removes what clients must not see.
func (g *Gateway) watchAnswer(f frame) (a watchAnswer, ok bool, err error) {
	if a, ok = readWatchAnswer(f.bytes); !ok {
		return a, false, nil
	}
	g.newest.Saw(a.revision)
	if a, err = g.withoutReserved(a); err == nil && len(g.names) > 0 && a.last > 0 {
		a, err = a.changed(g.names.watchOut)
	}
	return a, err == nil, err
}

// answered processes an answer on the client's own stream.
func (s *watchStream) answered(a watchAnswer) error {
	switch {
	case a.created:
		return s.created(a)
	case a.id == noWatch:
		s.told(a)
		return nil
	}
	s.mu.Lock()
	w, ours := s.own[a.id], a.id > 0 && a.id <= s.lastOwn
	s.mu.Unlock()
	if !ours {
		s.out.put(pieces{a.bytes}, true)
		return nil
	}
	if w == nil || !s.hub.holds(w, a.id) {
		return nil // the watch is shared: its events come on the common watch
	}
	if a.canceled {
		s.mu.Lock()
		delete(s.own, a.id)
		delete(s.watches, w.id)
		s.mu.Unlock()
		s.hub.leave(w)
		s.out.put(a.as(w.id), true)
		return nil
	}
	if shown, ok := w.shows(a); ok {
		s.out.put(shown.as(w.id), true)
	}
	s.hub.passed(w, a)
	return nil
}

// created processes the answer to the oldest request for a watch.
func (s *watchStream) created(a watchAnswer) error {
	s.mu.Lock()
	if len(s.asked) == 0 {
		s.mu.Unlock()
		s.out.put(pieces{a.bytes}, true)
		return nil
	}
	c := s.asked[0]
	s.asked = s.asked[1:]
	w := c.watch
	s.sample = a
	if s.since.IsZero() {
		s.since = time.Now()
	}
	if a.canceled {
		delete(s.own, c.id)
		s.mu.Unlock()
		s.hub.leave(w)
		if c.again {
			return errSlow
		}
		if w.refused {
			var err error
			if a, err = s.g.denied(a); err != nil {
				return err
			}
		}
		s.out.put(pieces{a.bytes}, true)
		return nil
	}
	w.made = madeAt{true, a.revision, s.sent - s.heard}
	if c.again {
		s.mu.Unlock()
		if !s.hub.holdsAs(w, c.id) { // the client has cancelled it meanwhile
			s.endOwn(c.id)
		}
		return nil
	}
	if w.id == 0 {
		for s.watches[s.next] != nil {
			s.next++
		}
		w.id = s.next
		s.next++
	} else if s.watches[w.id] != nil {
		s.mu.Unlock()
		s.hub.leave(w)
		s.endOwn(c.id)
		answer, err := a.duplicate()
		s.out.put(answer, true)
		return err
	}
	s.watches[w.id] = w
	s.mu.Unlock()
	s.hub.holdsAs(w, c.id) // before the client learns of it, and may cancel it
	s.out.put(a.as(w.id), true)
	s.hub.begun(w, a.revision)
	return nil
}

// endOwn cancels a watch on the client's own stream that the client does not know.
func (s *watchStream) endOwn(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, id)
	s.tell(cancelRequest(id), false)
}

// told processes a progress answer for all watches on the client's own stream.
func (s *watchStream) told(a watchAnswer) {
	s.mu.Lock()
	s.heard++
	var ws []*watch
	for _, w := range s.own {
		if w.made.counts(a) {
			ws = append(ws, w)
		}
	}
	if len(ws) == len(s.own) {
		for _, q := range s.asks {
			q.hears(s, a)
		}
		s.questions()
	}
	s.mu.Unlock()
	if !s.ordered.Load() { // events up to that revision may still come
		return
	}
	for _, w := range ws {
		s.hub.passed(w, watchAnswer{id: noWatch, revision: a.revision})
	}
}

// nudge starts requesting progress on the client's own stream, as long as there are watches that
// could be shared if the progress were known.
func (s *watchStream) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.nudging && !s.ended {
		s.nudging = true
		heard := s.heard
		time.AfterFunc(nudgeFirst, func() { s.nudged(nudgeFirst, heard) })
	}
}

// nudged requests the progress, if etcd answers in order, and schedules the next call after twice
// d, up to nudgeLast. The pause is nudgeFirst again if etcd has answered and a watch still needs
// further answers. etcd does not answer while a watch is behind. A watch that was made after such
// unanswered requests needs one more answer for each of them (madeAt).
func (s *watchStream) nudged(d time.Duration, heard int) {
	s.mu.Lock()
	ws := slices.Collect(maps.Values(s.own))
	s.mu.Unlock()
	wanted := slices.ContainsFunc(ws, s.hub.wants)
	ordered := wanted && s.ordersProgress()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !wanted {
		s.nudging = false
		return
	}
	owed := s.heard > heard && slices.ContainsFunc(ws, func(w *watch) bool { return w.made.open >= 0 })
	if ordered {
		s.ask()
	}
	if d = min(2*d, nudgeLast); owed {
		d = nudgeFirst
	}
	heard = s.heard
	time.AfterFunc(d, func() { s.nudged(d, heard) })
}

// end ends a client's stream.
func (s *watchStream) end() {
	s.mu.Lock()
	s.ended = true
	s.forget()
	ws := map[*watch]bool{}
	for _, w := range s.watches {
		ws[w] = true
	}
	for _, w := range s.own {
		ws[w] = true
	}
	s.mu.Unlock()
	s.out.close(context.Canceled)
	s.etcd.close(io.EOF)
	for w := range ws {
		s.hub.leave(w)
	}
}

// identity identifies the caller and its options. Requests with the same identity may share one
// request to etcd.
func identity(md metadata.MD) string {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(md)) {
		for _, v := range md[k] {
			b = append(append(append(append(b, k...), '='), v...), 0)
		}
	}
	return string(b)
}
