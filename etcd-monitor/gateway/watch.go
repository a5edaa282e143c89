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

// Equal watches of many clients (the same keys, filters and so on, as the same user) are one at
// etcd.
//
// Each watch begins on a stream to etcd of its client's own: etcd says whether the client may watch
// these keys, whether its start was compacted, and what has happened since. When it is known up to
// which revision the watch has been answered, and there is another one like it, a common watch
// (shared_watches.go) is made that begins no later; from the moment that both have come equally far
// the client is answered from the common watch, and its own one is ended at etcd. A client that
// does not read fast enough gets its own one back, from where it is: on its own stream etcd waits
// for it, and the others do not. What ends a client's stream at etcd, or the common watch, ends the
// client's stream, as it would without a gateway: clients begin again from where they are.

// Time before etcd is asked for the progress of a watch that is not shared and could be: at first,
// and at most.
const (
	nudgeFirst = 100 * time.Millisecond
	nudgeLast  = 10 * time.Second
)

// progressWait is how long to wait for etcd when a client asks for its watches' progress. etcd does
// not answer while one of them is behind.
const progressWait = 2 * time.Second

// errSlow ends a stream whose client cannot be given its own watch back.
var errSlow = status.Error(codes.Unavailable, "etcd-monitor: the client reads its watches too slowly; they can be resumed")

// watchStream is a client's stream of watches.
type watchStream struct {
	g        *Gateway
	hub      *watchHub
	metadata metadata.MD
	identity string
	out      *mailbox // to the client
	etcd     *mailbox // to etcd, on the client's own stream

	mu      sync.Mutex
	watches map[int64]*watch // by the client's ids
	next    int64            // the id that a watch without one gets
	own     map[int64]*watch // by their ids at etcd, on the client's own stream
	lastOwn int64
	asked   []*pendingWatch // what etcd has not answered yet
	asks    []*question     // how far the watches are
	sent    int             // how often etcd was asked that on the client's own stream,
	heard   int             // and how often it has answered
	sample  watchAnswer     // one of etcd's, that a watch is made; the first one came
	since   time.Time       // at this time
	trailer metadata.MD     // with which etcd has ended the client's own stream
	nudging bool
	ended   bool

	ordered atomic.Bool // etcd's answers on the client's own stream come in order (progress.go)
}

// pendingWatch is a request for a watch that etcd has not answered yet.
type pendingWatch struct {
	watch *watch
	id    int64 // at etcd
	again bool  // the client has it already
}

// watch is one of a client's watches. What is said to be the group's is guarded by its lock.
type watch struct {
	stream  *watchStream
	id      int64 // the client's
	request *pb.WatchCreateRequest
	group   *watchGroup
	refused bool // etcd gets a request that it refuses, because the client asks only for reserved keys

	own       int64 // the group's: its id at etcd on the client's own stream, 0 while it is shared
	pos       int64 // the group's: all events up to this revision were answered, if
	known     bool  // says so
	busy      bool  // the group's: an answer of etcd's to the client's own watch is being passed on
	begun     bool  // the client has had the beginning of an answer in fragments
	ending    bool  // guarded by the group: the client has asked for its end, or it has ended
	notBefore time.Time
	made      madeAt // as etcd's answers are read on the client's own stream
}

// madeAt is the time when etcd made a watch, relative to etcd's progress answers on its stream.
// After etcd has reported the watch as made, it may still send a progress answer from before that,
// which says nothing about the watch. A later answer is recognized by its revision, or because more
// answers have come than questions were open.
type madeAt struct {
	made     bool // otherwise etcd has not said that it is
	revision int64
	open     int
}

// counts says whether the next answer says something about the watch.
func (m *madeAt) counts(answer watchAnswer) bool {
	m.open--
	return m.made && (m.open < 0 || answer.revision > m.revision)
}

// question is a client's request for the progress of its watches. The gateway asks etcd on all
// streams that carry them, and answers with the lowest revision.
type question struct {
	stream *watchStream
	until  time.Time
	open   map[any]bool // the streams on which etcd has not answered
	answer watchAnswer
	over   bool
}

// watches serves a client's watches.
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
	go func() { // it ends with the handler at the latest, because the stream does then
		if err := s.receive(down); err != nil {
			cancel()
		}
	}()
	go send(s.etcd, up) // its errors are reported by receiving
	// A watch has its header long before its first answer, and clients wait for it.
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

// receiveAll processes each message of a stream until there are no more, and returns why.
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

// send sends what is put into a mailbox, until it is closed.
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

// receive takes the client's requests, until it has no more. Those that are not understood are
// passed on.
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

// create asks etcd for a watch.
func (s *watchStream) create(r *pb.WatchRequest, q *pb.WatchCreateRequest) error {
	if q == nil {
		return s.tell(r, true)
	}
	s.g.names.watchIn(q)
	w := &watch{stream: s, id: q.WatchId, request: q, refused: s.g.refuses(q)}
	s.mu.Lock()
	s.forget() // an answer that is on its way would be taken for this watch's, too
	s.mu.Unlock()
	s.hub.join(w)
	s.etcd.room()
	return s.begin(w, q.StartRevision, false)
}

// begin asks etcd for a watch from a revision on, on the client's own stream.
func (s *watchStream) begin(w *watch, start int64, again bool) error {
	s.mu.Lock() // until it is on its way: etcd's answers are matched by their order
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

// tell sends etcd a request.
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

// cancel ends a watch at the client's word.
func (s *watchStream) cancel(r *pb.WatchRequest, q *pb.WatchCancelRequest) error {
	if q == nil {
		return s.tell(r, true)
	}
	s.mu.Lock()
	w := s.watches[q.WatchId]
	own := int64(0)
	// one that etcd has not answered yet, which the client can know only by the id that it has
	// given to it
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
		return nil // etcd says nothing to that
	}
	s.mu.Lock()
	answer, err := s.sample.cancelled(s.g.newest.Revision(), w.id)
	delete(s.watches, w.id)
	s.mu.Unlock()
	s.out.put(answer, true)
	return err
}

// progress asks etcd how far the client's watches are.
func (s *watchStream) progress() {
	q := &question{stream: s, until: time.Now().Add(progressWait)}
	s.mu.Lock()
	s.questions() // from here on no watch changes its stream without the question being dropped
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

// ask asks etcd how far the watches on the client's own stream are. The caller has locked mu.
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

// forget drops the client's questions how far its watches are: etcd itself leaves them unanswered
// where a watch is behind, and clients ask again. The caller has locked mu.
func (s *watchStream) forget() {
	for _, a := range s.asks {
		a.over = true
	}
	s.asks = nil
}

// questions drops those that have been answered or are too old, and says whether there are others.
// The caller has locked mu.
func (s *watchStream) questions() bool {
	s.asks = slices.DeleteFunc(s.asks, func(q *question) bool {
		q.over = q.over || time.Now().After(q.until)
		return q.over
	})
	return len(s.asks) > 0
}

// hears tells a question etcd's answer on one stream. The caller has locked mu of the client's
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

// pump reads etcd's answers on the client's own stream until there are no more, and returns why.
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

// watchAnswer reads an answer of etcd's to a watch, and leaves out of it what clients do not see.
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
		return nil // it is shared now, and all that comes here comes there
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
		if !s.hub.holdsAs(w, c.id) { // the client has ended it in the meantime
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
	s.hub.holdsAs(w, c.id) // before the client knows it, and may ask for its end
	s.out.put(a.as(w.id), true)
	s.hub.begun(w, a.revision)
	return nil
}

// endOwn ends a watch on the client's own stream that the client does not know.
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
	if !s.ordered.Load() { // events up to that revision may still be on their way
		return
	}
	for _, w := range ws {
		s.hub.passed(w, watchAnswer{id: noWatch, revision: a.revision})
	}
}

// nudge asks etcd for the progress of the client's own stream, as long as there are watches that
// could be shared if that were known.
func (s *watchStream) nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.nudging && !s.ended {
		s.nudging = true
		heard := s.heard
		time.AfterFunc(nudgeFirst, func() { s.nudged(nudgeFirst, heard) })
	}
}

// nudged asks, if etcd answers in order, and repeats that later: after twice d, unless etcd has
// given enough answers since, and owes more. etcd gives none while a watch is behind. Watches that
// were made after a skipped answer wait for it in vain (madeAt), so they need as many answers more.
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

// end is the end of a client's stream.
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

// identity is who asks, and how: requests with the same may be asked of etcd as one.
func identity(md metadata.MD) string {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(md)) {
		for _, v := range md[k] {
			b = append(append(append(append(b, k...), '='), v...), 0)
		}
	}
	return string(b)
}
