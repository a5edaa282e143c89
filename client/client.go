package client

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
)

// These errors say why a call failed; package calls describes them. A failed call's error is an
// *OpError that wraps one of these.
var (
	ErrNotFound      = calls.ErrNotFound
	ErrCASFailed     = calls.ErrCASFailed
	ErrTimeout       = calls.ErrTimeout
	ErrCanceled      = calls.ErrCanceled
	ErrValueTooLarge = calls.ErrValueTooLarge
	ErrInvalid       = calls.ErrInvalid
	ErrNoChain       = calls.ErrNoChain
	ErrDenied        = calls.ErrDenied
	ErrBadSession    = calls.ErrBadSession
	ErrNoSession     = calls.ErrNoSession
	ErrSessionLost   = calls.ErrSessionLost
	ErrFull          = calls.ErrFull
	ErrProtocol      = calls.ErrProtocol
	ErrClosed        = calls.ErrClosed
)

type (
	// OpError describes a failed operation: why it failed, and whether it may have had an effect.
	OpError = calls.OpError
	// Request is one operation, for Do and Batch. The client sets its Deadline and Tag; leave them
	// unset.
	Request = calls.Request
	// Result is the result of an operation.
	Result = calls.Result
	// Session is a session id and the number of its next request.
	Session = calls.Session
	// Stats has the counters of packets and calls.
	Stats = calls.Stats
)

// Config configures a client. Zero values mean the defaults in the fields' comments.
type Config struct {
	// Addresses are the addresses to send to, in order of preference. The chain's service address
	// comes first. The switches' own addresses follow, for use when the service address does not
	// answer.
	Addresses []netip.AddrPort
	// Services is the chain's service address if it is not one of Addresses. A client of several
	// chains lists all of their service addresses. Switches answer from the service address even if
	// a packet was sent to their own address. The client ignores packets from other addresses.
	Services []netip.AddrPort
	// Profile is the profile of the switches' P4 program. 0 means 128 bits.
	Profile wire.Profile
	// Sessions provides the sessions to write with. If it is nil, writes fail with ErrNoSession or,
	// if AtLeastOnce is set, are sent without a session.
	Sessions SessionSource
	// AtLeastOnce has the meaning that calls.Config describes.
	AtLeastOnce bool
	// Retransmit, MaxRetransmit and FastRetransmit have the meanings that calls.Config describes.
	// If they are 0, Retransmit is 50 ms, as in the NetCRAQ paper; MaxRetransmit is four times
	// Retransmit; and FastRetransmit is 10 ms, or Retransmit if that is set and shorter.
	Retransmit, MaxRetransmit, FastRetransmit time.Duration
	// Local is the address to send from. If it is zero, the operating system chooses an address.
	Local netip.AddrPort
}

// Client is a client of one chain, or of several that share their addresses. It is safe for
// concurrent use.
type Client struct {
	cfg    Config
	socket *socket
	start  time.Time // wall-clock time at which the machine's clock was zero
	done   sync.WaitGroup
	stop   context.CancelFunc

	mu        sync.Mutex
	machine   *calls.Machine
	sessions  []Session
	renewable bool          // whether Sessions can provide new sessions when no session is left
	none      chan struct{} // closed when no session is left
	pumping   bool          // whether a goroutine is executing the machine's actions
	timer     *time.Timer
	armed     time.Duration // time at which the timer fires; 0 if it is not set
	closed    bool
}

// New makes a client. If the configuration has a source of sessions, New also acquires sessions;
// ctx bounds only the time for that.
func New(ctx context.Context, cfg Config) (*Client, error) {
	if cfg.Profile == 0 {
		cfg.Profile = wire.Profile128
	}
	if cfg.FastRetransmit == 0 {
		cfg.FastRetransmit = calls.DefaultFastRetransmit
	}
	var seed [8]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("netcraq client: %w", err)
	}
	m, err := calls.New(calls.Config{
		Profile: cfg.Profile, Addresses: cfg.Addresses, Services: cfg.Services, Retransmit: cfg.Retransmit,
		MaxRetransmit: cfg.MaxRetransmit, FastRetransmit: cfg.FastRetransmit, AtLeastOnce: cfg.AtLeastOnce,
		Seed: binary.NativeEndian.Uint64(seed[:]),
	})
	if err != nil {
		return nil, err
	}
	s, err := openSocket(cfg.Local, cfg.Profile)
	if err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, socket: s, start: time.Now(), machine: m, stop: stop, none: make(chan struct{}, 1)}
	c.timer = time.AfterFunc(time.Hour, c.tick)
	c.done.Go(c.receive)
	if cfg.Sessions != nil {
		lost, err := c.acquire(ctx)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.done.Go(func() { c.keepSessions(background, lost) })
	}
	return c, nil
}

// Close ends all calls with ErrClosed and releases the sessions.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.machine.AbortAll(c.now(), ErrClosed)
	c.pump()
	c.timer.Stop()
	hadSessions := c.sessions != nil
	c.mu.Unlock()
	c.stop()
	err := c.socket.close()
	c.done.Wait()
	if hadSessions {
		c.cfg.Sessions.Release()
	}
	if err != nil {
		return fmt.Errorf("closing the client's socket: %w", err)
	}
	return nil
}

// Option changes a single call.
type Option func(*Request)

// Eventual lets any member of the chain answer a read with its last committed value. The read does
// not go to the tail and needs no read lease.
func Eventual() Option { return func(r *Request) { r.Eventual = true } }

// AskAddresses sends the call to these addresses instead of the client's addresses.
func AskAddresses(addresses ...netip.AddrPort) Option { return func(r *Request) { r.To = addresses } }

// Get reads a key. The error is ErrNotFound if there is no value.
func (c *Client) Get(ctx context.Context, key wire.Key, options ...Option) (Result, error) {
	return c.call(ctx, Request{Op: wire.Read, Key: key}, options)
}

// Put writes a value.
func (c *Client) Put(ctx context.Context, key wire.Key, value []byte, options ...Option) (Result, error) {
	return c.call(ctx, Request{Op: wire.Write, Key: key, Value: value}, options)
}

// Delete removes the key's value. The switches keep the key's slot. Deleting a key that is already
// deleted succeeds.
func (c *Client) Delete(ctx context.Context, key wire.Key, options ...Option) (Result, error) {
	return c.call(ctx, Request{Op: wire.Write, Key: key, Delete: true}, options)
}

// CompareAndSwap writes the value if the key's version is the expected one (0: the key was never
// written). Otherwise the error is ErrCASFailed, and its OpError has the committed version and
// value. The expected version must come from an answer. If a program invents a version, the key may
// reach that version later, and a late copy of the request would then be executed.
func (c *Client) CompareAndSwap(ctx context.Context, key wire.Key, expected wire.Version, value []byte,
	options ...Option) (Result, error) {
	return c.call(ctx, Request{Op: wire.CAS, Key: key, Expected: expected, Value: value}, options)
}

// CompareAndDelete deletes the key if its version is the expected one; otherwise it behaves like
// CompareAndSwap.
func (c *Client) CompareAndDelete(ctx context.Context, key wire.Key, expected wire.Version, options ...Option) (
	Result, error) {
	return c.call(ctx, Request{Op: wire.CAS, Key: key, Expected: expected, Delete: true}, options)
}

// Batch executes requests concurrently, and returns their results in the same order. Writes wait
// until a session is free for them. The order in which requests of one batch are executed is not
// defined.
func (c *Client) Batch(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	var wg sync.WaitGroup
	wg.Add(len(requests))
	for i, r := range requests {
		c.Do(ctx, r, func(res Result) {
			results[i] = res
			wg.Done()
		})
	}
	wg.Wait()
	return results
}

// Do starts a request and calls done with its result, once. The client never runs two done
// functions at once, and may run done before Do returns. While done runs, the client is blocked. So
// done may call Do, but must not wait for anything, especially not for another call of this client.
func (c *Client) Do(ctx context.Context, r Request, done func(Result)) {
	if ctx.Done() == nil {
		c.submit(ctx, r, done)
		return
	}
	// The id of the call is known only after the call has begun. By then, the call or its context
	// may already be done.
	var mu sync.Mutex
	var over bool
	var stop func() bool
	id, ok := c.submit(ctx, r, func(res Result) {
		mu.Lock()
		over = true
		if stop != nil {
			stop()
		}
		mu.Unlock()
		done(res)
	})
	if !ok {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if !over {
		stop = context.AfterFunc(ctx, func() { c.abort(ctx, id) })
	}
}

// Await executes a request and waits for its result. It calls ctx.Done only after it has sent the
// request.
func (c *Client) Await(ctx context.Context, r Request) Result {
	result, _ := c.call(ctx, r, nil)
	return result
}

// Stats returns the counters of the client.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Stats()
}

// Now executes a request without waiting. This works if the answer is available as soon as the
// request has been sent, for example from a switch in this machine's kernel. If there is no answer
// yet, ok is false and the request is abandoned; a write may then have been executed, or may still
// be. If recent answers have not arrived that quickly, Now usually sends nothing and returns false.
func (c *Client) Now(r Request) (result Result, ok bool) {
	if !c.socket.prompt.hopeful() {
		return Result{}, false
	}
	ch := make(chan Result, 1)
	id, begun := c.submit(context.Background(), r, func(res Result) { ch <- res })
	select {
	case result = <-ch:
		return result, true
	default:
	}
	if begun {
		c.mu.Lock()
		c.machine.Abort(c.now(), id, ErrCanceled)
		c.pump()
		c.mu.Unlock()
	}
	return Result{}, false
}

func (c *Client) call(ctx context.Context, r Request, options []Option) (Result, error) {
	for _, o := range options {
		o(&r)
	}
	ch := make(chan Result, 1)
	id, ok := c.submit(ctx, r, func(res Result) { ch <- res })
	if ok {
		select {
		case res := <-ch:
			return res, res.Err
		case <-ctx.Done():
			c.abort(ctx, id)
		}
	}
	res := <-ch
	return res, res.Err
}

// submit passes a request to the machine and sends its packet. If the call ended before anything
// was sent, submit has called done, and ok is false.
func (c *Client) submit(ctx context.Context, r Request, done func(Result)) (id calls.CallID, ok bool) {
	over := func(err error) {
		done(Result{Err: &OpError{Op: r.Op, Delete: r.Delete, Key: r.Key, Err: err, Detail: "nothing was sent"}})
	}
	if ctx.Err() != nil {
		over(reason(ctx))
		return 0, false
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		over(ErrClosed)
		return 0, false
	}
	now := c.now()
	r.Tag, r.Deadline = done, 0
	if d, ok := ctx.Deadline(); ok {
		r.Deadline = max(1, now+time.Until(d))
	}
	id = c.machine.Start(now, r)
	c.pump()
	c.mu.Unlock()
	return id, true
}

func (c *Client) abort(ctx context.Context, id calls.CallID) {
	c.mu.Lock()
	c.machine.Abort(c.now(), id, reason(ctx))
	c.pump()
	c.mu.Unlock()
}

// reason converts the error of a context that is done to the error of a call.
func reason(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return ErrCanceled
}

func (c *Client) now() time.Duration { return time.Since(c.start) }

// pumpRounds bounds how many rounds of other callers' work one caller does before it leaves further
// work to the timer's goroutine.
const pumpRounds = 16

// pump executes the machine's actions, and sets the timer. The caller has locked mu. pump unlocks
// mu while it sends packets and while it delivers results. Only one goroutine runs pump at a time.
// That goroutine also executes the actions that other goroutines add meanwhile, so that many
// packets leave in one batch.
func (c *Client) pump() {
	if c.pumping {
		return
	}
	c.pumping = true
	for round := 0; ; round++ {
		sends, completions := c.machine.Take()
		if len(sends) == 0 && len(completions) == 0 {
			break
		}
		c.mu.Unlock()
		var answers []received
		var refused []calls.CallID
		if len(sends) > 0 {
			refused = c.socket.send(sends)
			answers = c.socket.prompt.answers(len(sends))
		}
		for i := range completions {
			c.deliver(&completions[i])
		}
		c.mu.Lock()
		for _, id := range refused {
			c.machine.Unsent(id)
		}
		c.take(answers)
		if round >= pumpRounds && !c.closed {
			c.arm(0)
			break
		}
	}
	c.pumping = false
	if at, ok := c.machine.NextTick(); ok {
		c.arm(at)
	}
}

func (c *Client) deliver(done *calls.Completion) {
	if e, ok := done.Result.Err.(*OpError); ok && e.Err == ErrTimeout {
		if err := c.socket.failure(); err != nil {
			e.Detail += "; sending fails: " + err.Error()
		}
	}
	done.Tag.(func(Result))(done.Result)
	done.Tag = nil
}

// arm makes the timer fire at the given time or earlier. A timer that is already set is never moved
// to a later time before it fires. So tens of thousands of calls a second that finish early cause
// one timer event per retransmission time, instead of one per call.
func (c *Client) arm(at time.Duration) {
	if c.closed {
		return
	}
	now := c.now()
	at = max(at, now+1)
	if c.armed != 0 && c.armed <= at {
		return
	}
	c.armed = at
	c.timer.Reset(at - now)
}

func (c *Client) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.armed = 0
	c.machine.Tick(c.now())
	c.pump()
}

// receive passes the socket's packets to the machine until the socket is closed.
func (c *Client) receive() {
	for {
		packets, ok := c.socket.receive()
		if !ok {
			return
		}
		c.mu.Lock()
		c.take(packets)
		c.pump()
		c.mu.Unlock()
	}
}

// take passes received packets to the machine. The caller has locked mu.
func (c *Client) take(packets []received) {
	if len(packets) == 0 {
		return
	}
	now := c.now()
	for _, p := range packets {
		c.machine.Receive(now, p.from, p.payload)
	}
	if c.renewable && c.machine.Sessions() == 0 {
		select {
		case c.none <- struct{}{}:
		default: // The channel already contains the signal.
		}
	}
}
