package fromadmin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/clock"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// NamesOptions configures Names. Zero values mean the defaults in the fields' comments.
type NamesOptions struct {
	Admin *admin.Client
	// Sessions is the number of sessions that Names leases for the writes to each chain. It bounds
	// the concurrent writes. 0 means 16. Owner is the name of the lease that operators see.
	Sessions int
	Owner    string
	// Make creates a key. Names calls it for a write to a key that does not exist. If another
	// caller creates the key at the same time, Make returns that key. If Make is nil, such a write
	// fails with ErrNoKey.
	Make func(ctx context.Context, name string) (*admin.Key, error)
	// Patience bounds how long Names retries requests to a controller that does not answer. 0 means
	// 3 s.
	Patience time.Duration
	// Adjust may change the configuration of a chain's client. If it is nil, nothing is changed.
	Adjust func(*client.Config)
}

// Names reads and writes keys by their names, in whatever chain they are. If a key is moved to
// another chain, or removed and added again, Names finds it again, and the caller does not notice.
// Names asks the controller for the places of keys and the addresses of their chains, and caches
// the answers. It can use cached keys while the controller is down. It is safe for concurrent use.
//
// Versions belong to the name and not to the KEY_ID; admin.Key's VersionOffset converts between
// them. The versions of a name only grow, even if the key moves or is removed and added again. A
// key that was added without a value, and not written since, has version 0, like a key that does
// not exist.
//
// A write that may have been executed is not sent again. If a switch answers that a KEY_ID does not
// exist, another copy of the same packet may still have been executed. So a Put or a Delete
// continues under the next KEY_ID only if the old KEY_ID was removed before the call began;
// otherwise its outcome is unknown. The controller reports how long ago that was (SettledMillis),
// and the comparison has a margin for clocks that are slewed. A CompareAndSwap always continues. It
// cannot be executed twice, because a version never occurs again. If it then fails, its own first
// copy may be the reason, so its outcome is also unknown.
type Names struct {
	o      NamesOptions
	places *places
	chains *chains
}

// NewNames makes a client that uses names. It does not connect yet.
func NewNames(o NamesOptions) *Names {
	if o.Sessions == 0 {
		o.Sessions = 16
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Second
	}
	return &Names{o: o, places: newPlaces(o.Admin), chains: newChains(o)}
}

// Close ends all calls, closes the chains' clients and releases their sessions.
func (n *Names) Close() error { return n.chains.close() }

// These errors say why a call by name failed, in addition to the errors of package client. A failed
// call's error is a *NameError. It wraps an error of this list, an error of package client, or the
// controller's error.
var (
	// ErrNoKey means that no key with that name exists.
	ErrNoKey = errors.New("no such key")
	// ErrNoController means that the call needs the controller, and the controller does not answer.
	ErrNoController = errors.New("the controller does not answer")
)

// NameError is the failure of a call by name.
type NameError struct {
	Op, Name string
	Err      error
	// OutcomeUnknown reports that the operation is a write that may have been executed, or may
	// still be executed.
	OutcomeUnknown bool
}

func (e *NameError) Error() string {
	text := fmt.Sprintf("%s %q: %v", e.Op, e.Name, e.Err)
	if own := (*client.OpError)(nil); e.OutcomeUnknown && !(errors.As(e.Err, &own) && own.OutcomeUnknown) {
		text += "; whether the write was executed is not known"
	}
	return text
}

// Unwrap implements errors.Unwrap.
func (e *NameError) Unwrap() error { return e.Err }

// Named is the state of a name.
type Named struct {
	// false if the name was never written, when Version is 0, or if it was deleted, when Version is
	// that of the deletion
	Found   bool
	Value   []byte
	Version wire.Version
}

// Get reads a name. A name without a key is not found, and has version 0. If eventual is true, the
// nearest member of the chain answers with its last committed version. Soon after a key was added,
// that may be "not found".
func (n *Names) Get(ctx context.Context, name string, eventual bool) (Named, error) {
	c := n.call("get", name)
	c.eventual = eventual
	c.req = client.Request{Op: wire.Read, Eventual: eventual}
	return c.do(ctx)
}

// Put writes a value, and returns its version.
func (n *Names) Put(ctx context.Context, name string, value []byte) (wire.Version, error) {
	c := n.call("put", name)
	c.makes = true
	c.req = client.Request{Op: wire.Write, Value: value}
	got, err := c.do(ctx)
	return got.Version, err
}

// Delete removes a name's value, and returns the version of the deletion. Deleting a name that does
// not exist succeeds.
func (n *Names) Delete(ctx context.Context, name string) (wire.Version, error) {
	c := n.call("delete", name)
	c.req = client.Request{Op: wire.Write, Delete: true}
	got, err := c.do(ctx)
	return got.Version, err
}

// CompareAndSwap writes a value if the version is the expected one, and returns the new state of
// the name. Version 0 means that the name was never written. If the version differs, CompareAndSwap
// returns the state that it found, and ErrCASFailed.
func (n *Names) CompareAndSwap(ctx context.Context, name string, expected wire.Version, value []byte) (Named, error) {
	c := n.call("compare and swap", name)
	c.expected, c.makes = expected, expected == 0
	c.req = client.Request{Op: wire.CAS, Value: value}
	return c.do(ctx)
}

// CompareAndDelete deletes a name if its version is the expected one. Otherwise it behaves like
// CompareAndSwap.
func (n *Names) CompareAndDelete(ctx context.Context, name string, expected wire.Version) (Named, error) {
	c := n.call("compare and delete", name)
	c.expected = expected
	c.req = client.Request{Op: wire.CAS, Delete: true}
	return c.do(ctx)
}

// Forget drops the cached place of a name.
func (n *Names) Forget(name string) { n.places.forget(name, nil) }

// Place returns the cached place of a name's key. state converts a switch's answer for this KEY_ID
// into the state of the name.
func (n *Names) Place(name string) (key wire.Key, state func(found bool, value []byte, v wire.Version) Named,
	known bool) {
	p := n.places.known(name)
	if p == nil {
		return 0, nil, false
	}
	return p.id, p.state, true
}

// Learn caches a key from an answer of the controller, for example from a list.
func (n *Names) Learn(k *admin.Key) { n.places.learn(k) }

func (n *Names) call(op, name string) *namedCall {
	return &namedCall{n: n, op: op, name: name, begun: clock.Now()}
}

// namedCall is one operation on a name.
type namedCall struct {
	n        *Names
	op, name string
	req      client.Request // the request, without the key and the expected version
	expected wire.Version   // expected version of the name
	eventual bool
	makes    bool // whether to create the key if it does not exist
	begun    clock.Time

	gone      *place // the place with the KEY_ID that was last asked and does not exist
	refused   error  // the switch's answer that the KEY_ID does not exist
	uncertain bool   // whether a copy of the write may have been executed
	// doubt means that a copy may have been executed under the KEY_ID of the field `gone`, unless
	// the controller says that this KEY_ID was removed before the call.
	doubt bool
	again int // number of retries
}

const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
	// mostAgain bounds the retries of a call whose key has moved at each try.
	mostAgain = 64
)

func (c *namedCall) fail(err error) error {
	return &NameError{Op: c.op, Name: c.name, Err: err, OutcomeUnknown: c.uncertain || c.doubt}
}

func (c *namedCall) writes() bool { return c.req.Op != wire.Read }

func (c *namedCall) do(ctx context.Context) (Named, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		p, err := c.place(ctx)
		if err != nil {
			return Named{}, c.fail(err)
		}
		if p == nil {
			return c.absent()
		}
		got, over, err := c.at(ctx, p)
		if over {
			return got, err
		}
		if c.again++; c.again > mostAgain {
			return Named{}, c.fail(fmt.Errorf("it was followed %d times: %w", mostAgain, c.refused))
		}
		if !sleep(ctx, pause) {
			return Named{}, c.fail(ended(ctx))
		}
	}
}

// place returns the place of the key. It returns nil if the key does not exist and must not be
// created.
func (c *namedCall) place(ctx context.Context) (*place, error) {
	if p := c.n.places.known(c.name); p != nil && p != c.gone {
		if c.gone == nil || !c.writes() {
			return p, nil
		}
		// another call has cached this place, but only the controller knows how old it is
		c.n.places.forget(c.name, p)
	}
	if c.eventual && c.n.places.lately(c.name) {
		return nil, nil
	}
	var settled time.Duration
	key, err := c.ask(ctx, func(ctx context.Context) (k *admin.Key, err error) {
		k, settled, err = c.n.places.ask(ctx, c.name)
		return k, err
	})
	if err == nil && key == nil && c.makes {
		if c.n.o.Make == nil {
			return nil, ErrNoKey
		}
		key, err = c.ask(ctx, func(ctx context.Context) (*admin.Key, error) {
			if err := c.n.places.turn(ctx); err != nil {
				return nil, err
			}
			defer c.n.places.done()
			k, err := c.n.o.Make(ctx, c.name)
			if err == nil {
				settled = settledOf(k)
			}
			return k, err
		})
	}
	if err != nil {
		return nil, err
	}
	if key == nil {
		c.doubt = c.doubt && !c.wasGone(settled)
		return nil, nil
	}
	p := c.n.places.learn(key)
	if c.doubt && (p.id == c.gone.id || !c.wasGone(settled)) {
		c.uncertain = true
		// A CAS that expects a key that was never written could succeed again after the key was
		// removed and added.
		if c.req.Op == wire.Write || c.expected == 0 && p.unwritten != c.gone.unwritten {
			return nil, c.refused
		}
	}
	c.doubt = false
	return p, nil
}

// wasGone reports whether no copy that was sent so far can have been executed. That is so if the
// KEY_ID to which the copies were sent is not the present KEY_ID and was removed before the call
// began.
func (c *namedCall) wasGone(settled time.Duration) bool {
	// The margin is needed because this machine's clock may be slewed while the controller's clock
	// is not. One millisecond is added because settled is in whole milliseconds.
	return settled > clock.Outlasts(clock.Since(c.begun))+time.Millisecond
}

// ask sends a request to the controller. It repeats the request while the controller answers that
// it is not ready yet. If the controller does not answer, ask repeats the request for the time
// Patience.
func (c *namedCall) ask(ctx context.Context, question func(context.Context) (*admin.Key, error)) (*admin.Key, error) {
	silent := clock.Now()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		key, err := question(ctx)
		var said *admin.Error
		switch {
		case err == nil:
			return key, nil
		case ctx.Err() != nil:
			return nil, ended(ctx)
		case errors.As(err, &said) && said.Code != admin.CodeUnavailable && said.Code != admin.CodeDeadlineExceeded:
			return nil, err
		case errors.As(err, &said): // The controller has answered that it is not ready yet.
			silent = clock.Now()
		case clock.Since(silent) > c.n.o.Patience:
			return nil, fmt.Errorf("%w: %w", ErrNoController, err)
		}
		if !sleep(ctx, pause) {
			return nil, fmt.Errorf("%w: %w", ended(ctx), err)
		}
	}
}

// absent ends a call on a name that has no key.
func (c *namedCall) absent() (Named, error) {
	switch {
	case c.req.Op == wire.CAS && (c.expected != 0 || c.uncertain || c.doubt):
		return Named{}, c.fail(client.ErrCASFailed)
	default: // The call is a read, or a deletion that has nothing to delete.
		return Named{}, nil
	}
}

// reach returns a chain's client, which stays open until release is called. It retries while the
// controller cannot lease sessions, for example because this node's switch is being set up.
// Retrying is safe, because nothing was sent yet.
func (c *namedCall) reach(ctx context.Context, name string) (chain *client.Client, release func(), err error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		chain, release, err = c.n.chains.get(ctx, name)
		if !errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}) || !sleep(ctx, pause) {
			return chain, release, err
		}
	}
}

// at executes the call at the place p. over is false if the call must look up the key again.
func (c *namedCall) at(ctx context.Context, p *place) (got Named, over bool, err error) {
	chain, release, err := c.reach(ctx, p.chain)
	if err != nil {
		if ctx.Err() != nil {
			err = ended(ctx)
		} else {
			err = fmt.Errorf("%w: %w", ErrNoController, err)
		}
		return Named{}, true, c.fail(err)
	}
	defer release()
	req := c.req
	req.Key = p.id
	if req.Op == wire.CAS {
		expected := c.expected
		if expected == 0 {
			if expected = p.unwritten; expected == 0 {
				// the key was created with a value, so it is not true that it was never written
				req = client.Request{Op: wire.Read, Key: p.id}
			}
		}
		if req.Op == wire.CAS {
			req.Expected = expected - wire.Version(p.offset)
		}
	}
	r := chain.Await(ctx, req)
	var e *client.OpError
	if r.Err != nil && !errors.As(r.Err, &e) {
		return Named{}, true, c.fail(r.Err)
	}
	switch {
	case r.Err == nil && req.Op == wire.Read:
		return c.read(p.state(true, r.Value, r.Version))
	case r.Err == nil:
		return p.state(!req.Delete, req.Value, r.Version), true, nil
	case e.Err == client.ErrNotFound && req.Op == wire.Read && e.Version != 0:
		return c.read(p.state(false, nil, e.Version))
	case e.Err == client.ErrCASFailed && !e.OutcomeUnknown:
		return p.state(e.Found, e.Value, e.Version), true, c.fail(r.Err)
	case e.Err == client.ErrNotFound:
	case e.Err == client.ErrNoChain:
		c.n.chains.forget(p.chain)
	// P4 programs that do not support closed keys answer ErrDenied for keys that are being removed.
	case e.Err == client.ErrDenied && c.again == 0:
	default:
		if e.Err == client.ErrTimeout {
			c.n.chains.doubt(p.chain)
		}
		c.uncertain = c.uncertain || e.OutcomeUnknown
		return Named{}, true, c.fail(r.Err)
	}
	c.gone, c.refused, c.doubt = p, r.Err, c.writes()
	c.n.places.forget(c.name, p)
	return Named{}, false, nil
}

// read ends a call that has read the name. The call is a read, or a CAS that cannot succeed.
func (c *namedCall) read(got Named) (Named, bool, error) {
	if c.req.Op == wire.CAS {
		return got, true, c.fail(client.ErrCASFailed)
	}
	return got, true, nil
}

// ended converts a context's error to the error of package client.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return client.ErrTimeout
	}
	return client.ErrCanceled
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
