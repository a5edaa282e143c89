package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// grace is how much longer the caller waits than the server, so that the caller gets the server's
// result instead of an unknown outcome.
const grace = 200 * time.Millisecond

// silentWait is how long Connect waits for a server before it logs that it is waiting.
const silentWait = time.Second

// Client is a connection to the node's server. When the connection ends, the client connects again.
// It is safe for concurrent use.
type Client struct {
	cfg     Config
	done    sync.WaitGroup
	ctx     context.Context // ends when the client ends
	stop    context.CancelFunc
	greeted chan error // nil after the first connection was made, or why no connection will be made

	mu       sync.Mutex
	calls    map[uint64]*call // calls under way, by id
	conn     *connection      // the current connection; nil if there is none
	why      error            // why there is no connection
	next     uint64           // the id of the next call
	identity string           // the client's name in requests that have a number
	numbers  numbers
	numbered bool // whether requests with a number were sent under this identity
	ordinary room
	waiting  room // room for calls that wait for other callers: locks, campaigns, permits
	info     nodeapi.HelloAnswer
	closing  bool
	quiet    chan struct{} // if not nil, closed when no call is under way
	watches  map[stream]struct{}
	held     map[giver]struct{}
	leases   leases
}

// Connect connects to the node's server, for which it waits up to Config.Wait, or until ctx ends.
// If that takes longer than a second, it logs a warning that names the server's address.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	c := &Client{
		cfg: cfg, greeted: make(chan error, 1), calls: map[uint64]*call{}, next: 1, identity: newIdentity(),
		numbers: numbers{first: 1}, ordinary: room{limit: cfg.InFlight}, waiting: room{limit: cfg.InFlight},
		watches: map[stream]struct{}{}, held: map[giver]struct{}{},
		leases: leases{all: map[*lease]struct{}{}, idle: map[leaseKind][]*lease{}},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.done.Go(c.run)
	limit := time.NewTimer(cfg.Wait)
	defer limit.Stop()
	silence := time.After(silentWait)
	reason := func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.why
	}
	const hint = "start netcraq dev, netcraq-sidecar or the node's agent, or set " + nodeapi.SocketVariable + " to where it listens"
	var cause error
	for cause == nil {
		select {
		case err := <-c.greeted:
			if err == nil {
				return c, nil
			}
			c.end()
			return nil, err
		case <-silence:
			slog.Warn("waiting for the node's server", "socket", cfg.Socket, "for", cfg.Wait, "err", reason(), "do", hint)
		case <-limit.C:
			cause = context.DeadlineExceeded
		case <-ctx.Done():
			cause = ctx.Err()
		}
	}
	why := reason()
	c.end()
	return nil, because(cause, CodeUnavailable, hint, "no node server at %s: %v", cfg.Socket, errors.Join(why, cause))
}

// Info returns the description of the server and the namespace that the server gave when the
// connection was made.
func (c *Client) Info() nodeapi.HelloAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info
}

// Close releases what the client holds, such as locks. It waits until calls under way are answered
// or ctx ends, and ends the client. Calls that are still unanswered then fail; later calls fail
// with CodeClosed.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		c.done.Wait()
		return nil
	}
	c.closing = true
	held := slices.Collect(maps.Keys(c.held))
	var streams []stream
	for s := range c.watches {
		streams = append(streams, s)
	}
	for _, k := range c.calls {
		if k.waits {
			c.abandon(k)
			c.finish(k, errClosed)
		}
	}
	c.mu.Unlock()
	for _, s := range streams {
		s.end(errClosed)
	}
	errs := make([]error, len(held))
	var wg sync.WaitGroup
	for i, h := range held {
		wg.Go(func() { errs[i] = h.giveBack(ctx) })
	}
	wg.Wait()
	c.revokeAll(ctx)

	c.mu.Lock()
	var quiet chan struct{}
	if c.underWay() > 0 {
		quiet = make(chan struct{})
		c.quiet = quiet
	}
	c.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
			c.mu.Lock()
			errs = append(errs, because(ctx.Err(), CodeTimeout, "", "%d calls were not answered before the client was closed",
				c.underWay()))
			c.mu.Unlock()
		}
	}
	c.end()
	return errors.Join(errs...)
}

// end ends the client immediately.
func (c *Client) end() {
	c.mu.Lock()
	c.closing = true
	c.stop()
	if c.conn != nil {
		_ = c.conn.Close()
		c.readBehind(c.conn)
	}
	for _, k := range c.calls {
		if k.stream != nil {
			continue
		}
		if k.changes && (k.maybe || k.connection != 0) {
			c.finish(k, because(errClosed, CodeOutcomeUnknown, "",
				"%s was not answered before the client was closed; whether it was done is not known", k.fn))
			continue
		}
		c.finish(k, errClosed)
	}
	for _, r := range []*room{&c.ordinary, &c.waiting} {
		r.limit = 1 << 30
		r.admit()
	}
	c.mu.Unlock()
	c.done.Wait()
}

// underWay counts the calls under way, including those that wait for room. The caller holds c.mu.
func (c *Client) underWay() int {
	n := len(c.ordinary.queue) + len(c.waiting.queue)
	for _, k := range c.calls {
		if k.stream == nil {
			n++
		}
	}
	return n
}

// background starts a goroutine of the client, unless the client has ended.
func (c *Client) background(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.done.Go(f)
	}
}

// call is a request under way.
type call struct {
	fn   string
	data []byte // encoded data of the request
	// The call has a side effect, so it gets a number by which the server executes it only once.
	changes bool
	waits   bool // The call may have to wait long for another caller.
	urgent  bool // The call needs no room, and may be made while the client is closing.
	stream  stream
	moving  bool // The call was canceled at this server, and will be made at another server.

	id, once   uint64
	deadline   time.Time // deadline that the server gets for this call
	identity   string    // identity under which the call was sent, if it has a number
	connection uint64    // number of the connection on which the call was queued; 0 if none
	start      uint64    // offset of the request's first byte in the connection's stream
	maybe      bool      // The call may have reached the server over a connection that has ended.

	answer []byte
	err    error
	done   chan struct{}
	timer  *time.Timer
}

var callPool = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &call{done: make(chan struct{}, 1), timer: t}
}}

// newCall makes a call of the function fn of the node API. The caller appends the call's data.
func newCall(fn string) *call {
	k := callPool.Get().(*call)
	*k = call{fn: fn, data: k.data[:0], answer: k.answer[:0], done: k.done, timer: k.timer}
	return k
}

// free returns a call to the pool, after do has returned.
func (k *call) free() {
	if cap(k.data) <= 1<<14 && cap(k.answer) <= 1<<14 {
		callPool.Put(k)
	}
}

// do makes the call and waits for the answer, which is afterwards in k.answer.
func (c *Client) do(ctx context.Context, k *call) error {
	if err := ctx.Err(); err != nil {
		return gaveUp(err, k.fn, false, true, "")
	}
	now := time.Now()
	var limit time.Time // limit is the deadline if ctx has no deadline.
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		k.deadline = deadline.Add(-min(left/10, grace))
	} else {
		k.deadline = now.Add(c.cfg.Timeout)
		limit = k.deadline.Add(grace)
	}

	c.mu.Lock()
	if c.closing && !k.urgent {
		c.mu.Unlock()
		return errClosed
	}
	if size := len(k.data) + len(k.fn) + 128; size > nodeapi.MaxMessage {
		c.mu.Unlock()
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("%s: a request of %d bytes; at most %d", k.fn, size,
			nodeapi.MaxMessage)}
	}
	if err := c.enter(ctx, k, limit); err != nil { // enter unlocks c.mu if it fails
		return err
	}
	k.id = c.next
	c.next++
	if k.changes {
		k.once = c.numbers.take()
	}
	c.calls[k.id] = k
	if n := c.conn; n != nil && !n.leaving {
		c.queue(n, k, now)
		reads := !n.taken && !k.waits && k.connection == n.number
		if reads {
			n.taken = true
		} else {
			c.readBehind(n)
		}
		c.flush(n) // flush unlocks c.mu
		if reads && c.readFor(ctx, n, k, limit) {
			return k.err
		}
	} else {
		c.mu.Unlock()
	}

	var cause error
	expired, stop := k.after(limit)
	defer stop()
	select {
	case <-k.done:
		return k.err
	case <-ctx.Done():
		cause = ctx.Err()
	case <-expired:
		cause = context.DeadlineExceeded
	}
	c.mu.Lock()
	if c.calls[k.id] != k { // the call has just been answered
		c.mu.Unlock()
		<-k.done
		return k.err
	}
	mayBeDone := k.changes && (k.maybe || k.connection != 0)
	connected, why := c.conn != nil, ""
	if !connected && c.why != nil {
		why = ": there is no connection to " + c.cfg.Socket + ": " + c.why.Error()
	}
	c.abandon(k)
	c.finish(k, nil)
	<-k.done
	if n := c.conn; n != nil {
		c.flush(n) // flush unlocks c.mu
	} else {
		c.mu.Unlock()
	}
	return gaveUp(cause, k.fn, mayBeDone, connected, why)
}

// after returns a channel that delivers at the time t, or never if t is zero. stop releases the
// channel's timer.
func (k *call) after(t time.Time) (c <-chan time.Time, stop func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	k.timer.Reset(time.Until(t))
	return k.timer.C, func() { k.timer.Stop() }
}

// abandon tells the server that no one waits for a call anymore. The caller holds c.mu, and flushes
// afterwards.
func (c *Client) abandon(k *call) {
	delete(c.calls, k.id)
	n := c.conn
	if n == nil || k.connection != n.number {
		return
	}
	n.push(c.cancelLine(k.id))
}

// cancelLine returns a request to cancel the request with the given id. The cancel request's own id
// belongs to no call, so its answer is ignored.
func (c *Client) cancelLine(id uint64) []byte {
	c.next++
	return fmt.Appendf(nil, `{"id":%d,"func":"cancel","data":{"id":%d}}`+"\n", c.next-1, id)
}

// finish ends a call, so that its caller continues. The caller of finish holds c.mu.
func (c *Client) finish(k *call, err error) {
	if c.calls[k.id] == k {
		delete(c.calls, k.id)
	}
	c.numbers.finish(k.once)
	if !k.urgent && k.stream == nil {
		c.roomOf(k).leave(len(k.data))
	}
	k.err = err
	k.done <- struct{}{}
	if c.quiet != nil && c.underWay() == 0 {
		close(c.quiet)
		c.quiet = nil
	}
}
