package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// stream is a call with several answers.
type stream interface {
	// data appends the data of the request, as they are now. The caller holds the client's mutex.
	data(b []byte) []byte
	// tell processes an answer. An error ends the connection.
	tell(line []byte) error
	// end ends the stream.
	end(err error)
}

// Event is the newest version of a key. Overtaken counts the versions that were skipped before this
// event.
type Event struct {
	Item
	Overtaken uint64
}

// WatchConfig selects the keys to follow. If Prefix is not nil, these are all keys whose names
// begin with it; otherwise they are Keys.
type WatchConfig struct {
	Keys   []string
	Prefix *string
	// After maps keys to the versions that the caller knows. The watch reports only newer versions.
	// For a key that is not in After, the watch first reports the current state.
	After map[string]Version
}

// follower is the common part of key watches and service watches.
type follower struct {
	c     *Client
	fn    string
	mu    sync.Mutex
	wake  chan struct{} // signals that take may return a result
	begun chan struct{} // closed after the server's first answer, or at the end
	first bool          // whether begun is closed
	err   error         // why the watch ended
	tries int           // attempts since the last answer
	bare  bool          // The watch is resumed without the known versions.
	call  *call         // guarded by the client's mutex; nil while the watch waits to be resumed
	over  bool          // guarded by the client's mutex
	self  stream
}

func (f *follower) init(c *Client, fn string, self stream) {
	f.c, f.fn, f.self = c, fn, self
	f.wake, f.begun = make(chan struct{}, 1), make(chan struct{})
}

// start sends the watch request, and waits for the first answer.
func (f *follower) start(ctx context.Context) error {
	c := f.c
	if !c.send(f) {
		return errClosed
	}
	timer := time.NewTimer(c.cfg.Timeout + grace)
	defer timer.Stop()
	var cause error
	select {
	case <-f.begun:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.err
	case <-ctx.Done():
		cause = ctx.Err()
	case <-timer.C:
		cause = context.DeadlineExceeded
	}
	c.mu.Lock()
	connected, why := c.conn != nil, ""
	if c.why != nil {
		why = ": " + c.why.Error()
	}
	c.mu.Unlock()
	err := gaveUp(cause, f.fn, false, connected, why)
	f.end(err)
	return err
}

// send sends the watch request under a new id.
func (c *Client) send(f *follower) bool {
	c.mu.Lock()
	if c.closing || f.over {
		c.mu.Unlock()
		return false
	}
	f.call = &call{fn: f.fn, stream: f.self, id: c.next}
	c.next++
	c.calls[f.call.id] = f.call
	c.watches[f.self] = struct{}{}
	if n := c.conn; n != nil && !n.leaving {
		c.queue(n, f.call, time.Time{})
		c.readBehind(n)
		c.flush(n) // flush unlocks c.mu
		return true
	}
	c.mu.Unlock()
	return true
}

// failed handles an error of the server, after which the server sends no more answers under that
// id.
func (f *follower) failed(e *Error) {
	f.c.mu.Lock()
	if f.call != nil {
		delete(f.c.calls, f.call.id)
		f.call = nil
	}
	f.c.mu.Unlock()
	f.mu.Lock()
	again := false
	switch e.Code {
	case CodeUnavailable, CodeInternal, CodeTimeout, CodeDraining, CodeNoRoom, CodeOutcomeUnknown:
		again = true
	case CodeQuotaExceeded: // The known versions in the request may exceed the quota.
		again = f.first && !f.bare
		f.bare = true
	}
	if !again {
		f.mu.Unlock()
		f.end(e)
		return
	}
	pause := min(10*firstPause<<min(f.tries, 10), 5*maxPause)
	f.tries++
	f.mu.Unlock()
	f.c.background(func() {
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-f.c.ctx.Done():
			return
		}
		f.c.send(f)
	})
}

// told parses an answer, and passes its data to take while it holds f.mu. An error ends the
// connection.
func told[A any](f *follower, line []byte, take func(*A)) error {
	var r response[A]
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("an answer to a watch that makes no sense: %w", err)
	}
	if r.Error != nil {
		f.failed(r.Error)
		return nil
	}
	f.mu.Lock()
	f.begin()
	if r.Data != nil {
		take(r.Data)
	}
	f.mu.Unlock()
	f.signal()
	if !r.More {
		f.failed(&Error{Code: CodeUnavailable, Message: "the server has ended the watch"})
	}
	return nil
}

func (f *follower) end(err error) {
	f.mu.Lock()
	if f.err != nil {
		f.mu.Unlock()
		return
	}
	f.err = err
	f.begin()
	f.mu.Unlock()
	f.signal()
	c := f.c
	c.mu.Lock()
	delete(c.watches, f.self)
	f.over = true
	if k := f.call; k != nil {
		f.call = nil
		c.abandon(k)
		if n := c.conn; n != nil {
			c.flush(n) // flush unlocks c.mu
			return
		}
	}
	c.mu.Unlock()
}

// begin records that the server has answered. The caller holds f.mu.
func (f *follower) begin() {
	f.tries = 0
	if !f.first {
		f.first = true
		close(f.begun)
	}
}

func (f *follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wait waits until the function `take` returns true. It holds the lock while it calls `take`.
func (f *follower) wait(ctx context.Context, take func() bool) error {
	for {
		f.mu.Lock()
		took, err := take(), f.err
		f.mu.Unlock()
		switch {
		case took:
			return nil
		case err != nil:
			f.signal() // Other goroutines may be waiting.
			return err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return because(ctx.Err(), codeOf(ctx.Err()), "", "%s: no event in time", f.fn)
		}
	}
}

func codeOf(cause error) Code {
	if cause == context.Canceled {
		return CodeCanceled
	}
	return CodeTimeout
}

// Watch follows keys. The library resumes it after a reconnection. If the program does not take a
// key's events in time, only the newest event is kept, and the skipped events are counted.
type Watch struct {
	follower
	namespace string
	cfg       WatchConfig
	named     map[string]bool // the keys in cfg.Keys
	// the newest version of each key that the server has sent; bury removes deleted keys
	last    map[string]Version
	graves  []grave // deletions whose versions are in the field `last`, oldest first
	pending map[string]*Event
	order   []string // the keys of the field pending, in the order of their events
}

// Watch follows keys. It begins with their current state, or after the versions in After. The only
// option is In.
func (c *Client) Watch(ctx context.Context, cfg WatchConfig, opts ...Option) (*Watch, error) {
	for _, key := range cfg.Keys {
		if err := checkKey(nodeapi.FuncWatch, key); err != nil {
			return nil, err
		}
	}
	w := &Watch{namespace: gather(opts).namespace, cfg: cfg, named: map[string]bool{},
		last: map[string]Version{}, pending: map[string]*Event{}}
	for _, key := range cfg.Keys {
		w.named[key] = true
	}
	for key, v := range cfg.After {
		w.last[key] = v
	}
	w.init(c, nodeapi.FuncWatch, w)
	if size := len(w.data(nil)); size > nodeapi.MaxMessage-128 {
		return nil, &Error{Code: CodeTooLarge, Message: fmt.Sprintf("watch: a request of %d bytes; at most %d", size,
			nodeapi.MaxMessage)}
	}
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// Next waits for the next event. After Close it fails with CodeClosed.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	var e Event
	err := w.wait(ctx, func() bool {
		if len(w.order) == 0 {
			return false
		}
		key := w.order[0]
		w.order = w.order[1:]
		e = *w.pending[key]
		delete(w.pending, key)
		if len(w.order) > 0 {
			w.signal()
		}
		return true
	})
	return e, err
}

// Close ends the watch.
func (w *Watch) Close() { w.end(&Error{Code: CodeClosed, Message: "the watch is closed"}) }

// A resumed watch sends at most maxAfter versions, and at most maxAfterBytes bytes of them, because
// the server counts each version as a watch. The server reports keys without a version in the
// request again. That is harmless, because the client drops known versions.
const maxAfter, maxAfterBytes = nodeapi.MaxWatches / 4, 128 << 10

func (w *Watch) data(b []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	b = append(b, '{')
	if w.namespace != "" {
		b = append(appendText(append(b, `"namespace":`...), w.namespace), ',')
	}
	if w.cfg.Prefix != nil {
		b = append(appendText(append(b, `"prefix":`...), *w.cfg.Prefix), ',')
	}
	b = append(b, `"keys":[`...)
	for i, key := range w.cfg.Keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, key)
	}
	b = append(b, `],"after":{`...)
	begin, n := len(b), 0
	for key, v := range w.last {
		if n++; w.bare || n > max(maxAfter, len(w.cfg.Keys)) || len(b)-begin > maxAfterBytes {
			break
		}
		if len(b) > begin {
			b = append(b, ',')
		}
		b = appendText(append(appendText(b, key), ':'), string(v))
	}
	return append(b, "}}"...)
}

func (w *Watch) tell(line []byte) error {
	return told(&w.follower, line, func(a *nodeapi.WatchAnswer) {
		for i := range a.Events {
			w.take(&a.Events[i])
		}
	})
}

// take stores an event, unless its version is known. The caller holds w.mu.
func (w *Watch) take(e *nodeapi.Event) {
	v := Version(e.Version)
	if last, ok := w.last[e.Key]; ok && !v.Newer(last) {
		return
	}
	old := w.pending[e.Key]
	if old != nil && !v.Newer(old.Version) {
		// the version is known, although the field `last` has forgotten it
		return
	}
	w.last[e.Key] = v
	if !e.Found && !w.named[e.Key] {
		w.bury(grave{e.Key, v})
	}
	event := &Event{Item: itemOf(&e.Item), Overtaken: e.Overtaken}
	if old != nil {
		event.Overtaken += old.Overtaken + 1
		*old = *event
		return
	}
	w.pending[e.Key] = event
	w.order = append(w.order, e.Key)
}

// maxGraves is the number of deleted keys whose versions a watch keeps, in addition to the keys
// that it names. It equals the number of versions that a resumed watch may send.
const maxGraves = maxAfter

// grave is the record of a key's deletion.
type grave struct {
	key     string
	version Version
}

// bury remembers the version of a deletion. Beyond the limit, it forgets the version of the oldest
// deletion. For that key, the server still reports only newer versions. When the watch is resumed,
// the server may report that deletion once more. The caller holds w.mu.
func (w *Watch) bury(g grave) {
	w.graves = append(w.graves, g)
	if len(w.graves) <= maxGraves {
		return
	}
	if oldest := w.graves[0]; w.last[oldest.key] == oldest.version {
		delete(w.last, oldest.key)
	}
	w.graves = w.graves[1:]
}

// ServiceWatch follows the instances of a service.
type ServiceWatch struct {
	follower
	namespace, service string
	newest             []Instance
	told               bool // there is a list that Next has not returned yet
}

// WatchService follows the live instances of a service. The only option is In.
func (c *Client) WatchService(ctx context.Context, service string, opts ...Option) (*ServiceWatch, error) {
	w := &ServiceWatch{namespace: gather(opts).namespace, service: service}
	w.init(c, nodeapi.FuncWatchService, w)
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// Next waits until the instances differ from those that it last returned. It returns all instances.
func (w *ServiceWatch) Next(ctx context.Context) ([]Instance, error) {
	var list []Instance
	err := w.wait(ctx, func() bool {
		took := w.told
		list, w.told = w.newest, false
		return took
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Close ends the watch.
func (w *ServiceWatch) Close() { w.end(&Error{Code: CodeClosed, Message: "the watch is closed"}) }

func (w *ServiceWatch) data(b []byte) []byte {
	b = append(b, '{')
	if w.namespace != "" {
		b = append(appendText(append(b, `"namespace":`...), w.namespace), ',')
	}
	return append(appendText(append(b, `"service":`...), w.service), '}')
}

func (w *ServiceWatch) tell(line []byte) error {
	return told(&w.follower, line, func(a *nodeapi.ServiceAnswer) {
		if w.newest != nil && slices.Equal(w.newest, a.Instances) {
			return
		}
		w.newest, w.told = a.Instances, true
		if w.newest == nil {
			w.newest = []Instance{}
		}
	})
}

func decimal(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // "" counts as 0
	return n
}
