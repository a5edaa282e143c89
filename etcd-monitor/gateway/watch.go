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

// Watches are equal if they are for the same keys, with the same options, by the same user. Equal
// watches of many clients share one watch at etcd.
//
// Each watch starts on its client's own stream to etcd. So etcd itself decides whether the client
// may watch these keys and whether the start revision was compacted. etcd also sends the events so
// far. When the watch's progress is known and there is an equal watch, the gateway makes a common
// watch (shared_watches.go), which starts no later than the two. As soon as a watch and the common
// watch have progressed equally far, the common watch answers the client. The gateway then cancels
// the client's own watch at etcd.
//
// A client that does not read fast enough gets its own watch again, from its current revision. On
// the client's own stream etcd waits for the client, and other clients do not. When etcd ends a
// client's stream or the common watch, the client's stream ends, as it would without a gateway.
// Clients then resume from their revision.

// Delays before the gateway requests the progress of an unshared watch that could be shared: the
// first and the longest delay.
const (
	nudgeFirst = 100 * time.Millisecond
	nudgeLast  = 10 * time.Second
)

// progressWait is how long the gateway waits for etcd's answer when a client requests the progress
// of its watches. etcd does not answer while one of these watches is behind.
const progressWait = 2 * time.Second

// errSlow ends the stream of a slow client whose watch cannot leave the common watch.
var errSlow = status.Error(codes.Unavailable, "etcd-monitor: the client reads its watches too slowly; they can be resumed")

// watchStream is a stream of one client, which carries its watches.
type watchStream struct {
	g        *Gateway
	hub      *watchHub
	metadata metadata.MD
	identity string
	out      *mailbox // messages to the client
	etcd     *mailbox // messages to etcd, on the client's own stream

	mu      sync.Mutex
	watches map[int64]*watch // watches by the ID that the client knows
	next    int64            // next ID for a watch whose client requests none
	own     map[int64]*watch // watches on the client's own stream, by their ID at etcd
	lastOwn int64
	asked   []*pendingWatch // create requests that etcd has not answered
	asks    []*question     // progress requests of the client that are unanswered
	sent    int             // number of progress requests to etcd on the client's own stream
	heard   int             // number of etcd's answers to these requests
	sample  watchAnswer     // an answer of etcd to a create request
	since   time.Time       // when the first such answer arrived
	trailer metadata.MD     // trailer that etcd sent at the end of the client's own stream
	nudging bool
	ended   bool

	ordered atomic.Bool // true if etcd's answers on the client's own stream are in order (progress.go)
}

// pendingWatch is a create request for a watch that etcd has not answered.
type pendingWatch struct {
	watch *watch
	id    int64 // the watch's id at etcd
	again bool  // the client already knows this watch
}

// watch is a watch of one client. The group's lock guards the fields that are marked "group".
type watch struct {
	stream  *watchStream
	id      int64 // ID that the client knows
	request *pb.WatchCreateRequest
	group   *watchGroup
	refused bool // the client requests only reserved keys, so etcd gets a request that it will refuse

	own       int64 // group: ID at etcd on the client's own stream, or 0 while the watch is shared
	pos       int64 // group: the client has got all events up to this revision, if known is set
	known     bool  // group: pos is valid
	busy      bool  // group: an answer on the client's own stream is being forwarded
	begun     bool  // the client has received the first fragments of an answer
	ending    bool  // group: the client has cancelled the watch, or it has ended
	notBefore time.Time
	made      madeAt // only the goroutine that reads the client's own stream uses it
}

// madeAt says when etcd created a watch, relative to its progress answers on the same stream. After
// the creation, etcd may still send a progress answer from before it. Such an answer says nothing
// about the watch. A newer answer has a higher revision, or comes after the answers to all requests
// that were open at the creation.
type madeAt struct {
	made     bool // etcd has confirmed that it created the watch
	revision int64
	open     int
}

// counts reports whether a progress answer also covers the watch.
func (m *madeAt) counts(answer watchAnswer) bool {
	m.open--
	return m.made && (m.open < 0 || answer.revision > m.revision)
}

// question is a client's request for the progress of its watches. The gateway forwards it on all
// streams that carry these watches, and answers with the lowest revision that etcd returns.
type question struct {
	stream *watchStream
	until  time.Time
	open   map[any]bool // streams on which etcd has not answered yet
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
	go func() { // this goroutine ends no later than the handler's stream
		if err := s.receive(down); err != nil {
			cancel()
		}
	}()
	go send(s.etcd, up) // the receiving goroutine reports the errors of sending
	// A watch's header arrives long before the first answer, and clients wait for the header.
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

// receiveAll calls take for each message of a stream. When the stream ends, it returns the reason.
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

// receive processes the client's requests until the last one. It forwards requests that it does not
// understand.
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
	s.forget() // a pending progress answer could be mistaken for an answer about this watch
	s.mu.Unlock()
	s.hub.join(w)
	s.etcd.room()
	return s.begin(w, q.StartRevision, false)
}

// begin creates a watch at etcd from a revision, on the client's own stream.
func (s *watchStream) begin(w *watch, start int64, again bool) error {
	s.mu.Lock() // locked until the request is queued, because answers are matched by order
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
	// the watch may be one that etcd has not answered; then the client has chosen its ID
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

// progress handles a client's request for the progress of its watches. It sends progress requests
// to etcd.
func (s *watchStream) progress() {
	q := &question{stream: s, until: time.Now().Add(progressWait)}
	s.mu.Lock()
	s.questions() // from here on, moving a watch to another stream cancels q
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

// ask sends a progress request for the watches on the client's own stream. The caller holds mu.
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

// forget drops the client's unanswered progress requests. This is allowed, because etcd itself does
// not answer while a watch is behind, and clients repeat such requests. The caller holds mu.
func (s *watchStream) forget() {
	for _, a := range s.asks {
		a.over = true
	}
	s.asks = nil
}

// questions drops the client's progress requests that were answered or have expired. It reports
// whether others remain. The caller holds mu.
func (s *watchStream) questions() bool {
	s.asks = slices.DeleteFunc(s.asks, func(q *question) bool {
		q.over = q.over || time.Now().After(q.until)
		return q.over
	})
	return len(s.asks) > 0
}

// hears records etcd's progress answer on one of a question's streams. The caller holds mu of the
// client's stream.
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

// pump processes etcd's answers on the client's own stream. When the stream ends, it returns the
// reason.
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

// answered processes an answer of etcd on the client's own stream.
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
		return nil // the watch is now shared, so the common watch sends its events
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

// created processes etcd's answer to the oldest unanswered create request.
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
		if !s.hub.holdsAs(w, c.id) { // the client has cancelled the watch meanwhile
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
	s.hub.holdsAs(w, c.id) // recorded first, because the client may cancel the watch once it knows of it
	s.out.put(a.as(w.id), true)
	s.hub.begun(w, a.revision)
	return nil
}

// endOwn cancels a watch on the client's own stream. The client does not know this watch.
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
	if !s.ordered.Load() { // events up to the answer's revision may still come
		return
	}
	for _, w := range ws {
		s.hub.passed(w, watchAnswer{id: noWatch, revision: a.revision})
	}
}

// nudge starts requesting progress on the client's own stream. This continues while there are
// watches that could be shared if their progress were known.
func (s *watchStream) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.nudging && !s.ended {
		s.nudging = true
		heard := s.heard
		time.AfterFunc(nudgeFirst, func() { s.nudged(nudgeFirst, heard) })
	}
}

// nudged requests progress, if etcd answers in order, and schedules its next call. The delay is
// twice d, but at most nudgeLast. It is nudgeFirst if etcd has answered and a watch still needs
// further answers. etcd does not answer while a watch is behind. A watch that was created after
// such unanswered requests needs one more answer for each of them (madeAt).
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

// identity returns a text that identifies the caller and its options. Requests with the same
// identity may share one request to etcd.
func identity(md metadata.MD) string {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(md)) {
		for _, v := range md[k] {
			b = append(append(append(append(b, k...), '='), v...), 0)
		}
	}
	return string(b)
}
