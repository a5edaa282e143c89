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

// NamesOptions configure Names. Zero values mean what their comments say.
type NamesOptions struct {
	Admin *admin.Client
	// Sessions is how many sessions are leased for the writes to each chain, which is how many
	// writes may be on their way at once. 0: 16. Owner tells people who has them.
	Sessions int
	Owner    string
	// Make makes a key that is to be written and is not there, or gives the one that is there by
	// now. nil: such a write fails with ErrNoKey.
	Make func(ctx context.Context, name string) (*admin.Key, error)
	// Patience is how long a controller that does not answer is asked again. 0: 3 s.
	Patience time.Duration
	// Adjust may change the options of a chain's client. nil: nothing is changed.
	Adjust func(*client.Config)
}

// Names reads and writes keys by their names, wherever they are: if a key is moved to another
// chain, or removed and added again, Names looks it up again and the caller does not notice. It
// asks the controller where keys are and how to reach their chains, and caches the answers; cached
// keys work without a controller. It is safe for concurrent use.
//
// Versions are those of the name (admin.Key's VersionOffset): they only grow, also when a key moves
// or comes back. A key that was added without a value, and not written since, has version 0, as one
// that is not there.
//
// A write that may have been executed is not sent again. The answer that a KEY_ID no longer exists
// is about one copy of a packet. So a Put or a Delete continues under the next KEY_ID only if the
// controller says that the KEY_ID had gone before the call began (SettledMillis, a duration, which
// is compared with a margin for clocks that are slewed); otherwise its outcome is unknown. A
// CompareAndSwap continues in any case, because it cannot be executed twice: versions never come
// again. If it fails then, its own first copy may be the reason, so the outcome is unknown as well.
type Names struct {
	o      NamesOptions
	places *places
	chains *chains
}

// NewNames makes a client by names. It does not connect yet.
func NewNames(o NamesOptions) *Names {
	if o.Sessions == 0 {
		o.Sessions = 16
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Second
	}
	return &Names{o: o, places: newPlaces(o.Admin), chains: newChains(o)}
}

// Close ends all calls, and gives sessions back.
func (n *Names) Close() error { return n.chains.close() }

// Why a call by name failed, in addition to the errors of package client. A failed call's error is
// a *NameError that wraps one of these, one of package client's, or the controller's error.
var (
	// ErrNoKey: no key of that name is placed.
	ErrNoKey = errors.New("no such key")
	// ErrNoController: the controller does not answer, and the call needs it.
	ErrNoController = errors.New("the controller does not answer")
)

// NameError says why a call by name failed.
type NameError struct {
	Op, Name string
	Err      error
	// OutcomeUnknown: a write that may have been executed, or may be yet.
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
	Found   bool // false: never written, or deleted; Version is 0, or that of the deletion
	Value   []byte
	Version wire.Version
}

// Get reads a name. A name without a key is not found, at version 0. eventual: the version that the
// nearest member of its chain has committed; just after a key was added, it may still be not found.
func (n *Names) Get(ctx context.Context, name string, eventual bool) (Named, error) {
	c := n.call("get", name)
	c.eventual = eventual
	c.req = client.Request{Op: wire.Read, Eventual: eventual}
	return c.do(ctx)
}

// Put writes a value, and gives its version.
func (n *Names) Put(ctx context.Context, name string, value []byte) (wire.Version, error) {
	c := n.call("put", name)
	c.makes = true
	c.req = client.Request{Op: wire.Write, Value: value}
	got, err := c.do(ctx)
	return got.Version, err
}

// Delete removes a name's value, and returns the version of that deletion. Deleting a name that
// does not exist succeeds.
func (n *Names) Delete(ctx context.Context, name string) (wire.Version, error) {
	c := n.call("delete", name)
	c.req = client.Request{Op: wire.Write, Delete: true}
	got, err := c.do(ctx)
	return got.Version, err
}

// CompareAndSwap writes a value if the version is the expected one (0: never written), and gives
// the name's state then. Otherwise it gives the state as it was found, and ErrCASFailed.
func (n *Names) CompareAndSwap(ctx context.Context, name string, expected wire.Version, value []byte) (Named, error) {
	c := n.call("compare and swap", name)
	c.expected, c.makes = expected, expected == 0
	c.req = client.Request{Op: wire.CAS, Value: value}
	return c.do(ctx)
}

// CompareAndDelete deletes a name if its version is the expected one; otherwise as CompareAndSwap.
func (n *Names) CompareAndDelete(ctx context.Context, name string, expected wire.Version) (Named, error) {
	c := n.call("compare and delete", name)
	c.expected = expected
	c.req = client.Request{Op: wire.CAS, Delete: true}
	return c.do(ctx)
}

// Forget drops what is known about where a name is.
func (n *Names) Forget(name string) { n.places.forget(name, nil) }

// Place is where a name's key is, as far as is known without asking. It turns a switch's answer for
// that KEY_ID into the state of the name.
func (n *Names) Place(name string) (key wire.Key, state func(found bool, value []byte, v wire.Version) Named,
	known bool) {
	p := n.places.known(name)
	if p == nil {
		return 0, nil, false
	}
	return p.id, p.state, true
}

// Learn records what the controller has said about a key, in a list for example.
func (n *Names) Learn(k *admin.Key) { n.places.learn(k) }

func (n *Names) call(op, name string) *namedCall {
	return &namedCall{n: n, op: op, name: name, begun: clock.Now()}
}

// namedCall is one operation until it is done.
type namedCall struct {
	n        *Names
	op, name string
	req      client.Request // without its key and its expected version
	expected wire.Version   // by name
	eventual bool
	makes    bool // the key, if it does not exist
	begun    clock.Time

	gone      *place // it was asked there, and not found
	refused   error  // so
	uncertain bool   // a copy of the write may have been executed
	doubt     bool   // ... where gone was, if it is not heard that it had gone before
	again     int    // how often the call has begun again
}

const (
	firstPause   = 2 * time.Millisecond
	longestPause = 100 * time.Millisecond
	// mostAgain bounds how often a call follows a key that is elsewhere each time.
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

// place is where the key is; nil: it does not exist, and is not to be created.
func (c *namedCall) place(ctx context.Context) (*place, error) {
	if p := c.n.places.known(c.name); p != nil && p != c.gone {
		if c.gone == nil || !c.writes() {
			return p, nil
		}
		c.n.places.forget(c.name, p) // others have learned it meanwhile, but its age must be asked for
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
		// A CAS that expects a key that was never written would succeed again after the key was
		// removed.
		if c.req.Op == wire.Write || c.expected == 0 && p.unwritten != c.gone.unwritten {
			return nil, c.refused
		}
	}
	c.doubt = false
	return p, nil
}

// wasGone says whether nothing that was sent until now can have been executed: it was sent to a
// KEY_ID, not the one of now, that had gone before.
func (c *namedCall) wasGone(settled time.Duration) bool {
	// The controller's clock is not slewed, and this one may be. (settled is in whole
	// milliseconds.)
	return settled > clock.Outlasts(clock.Since(c.begun))+time.Millisecond
}

// ask asks the controller, repeatedly if it says that it will know soon, and for a while if it does
// not answer.
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
		case errors.As(err, &said): // it is under way there
			silent = clock.Now()
		case clock.Since(silent) > c.n.o.Patience:
			return nil, fmt.Errorf("%w: %w", ErrNoController, err)
		}
		if !sleep(ctx, pause) {
			return nil, fmt.Errorf("%w: %w", ended(ctx), err)
		}
	}
}

// absent is the end of a call of a name that has no key.
func (c *namedCall) absent() (Named, error) {
	switch {
	case c.req.Op == wire.CAS && (c.expected != 0 || c.uncertain || c.doubt):
		return Named{}, c.fail(client.ErrCASFailed)
	default: // a read; or there is nothing to delete (any more)
		return Named{}, nil
	}
}

// reach is a chain's client, until release is called. Nothing was sent yet, so it tries again while
// the controller says that it cannot lease sessions at the moment: for example because this node's
// switch is being set up.
func (c *namedCall) reach(ctx context.Context, name string) (chain *client.Client, release func(), err error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		chain, release, err = c.n.chains.get(ctx, name)
		if !errors.Is(err, &admin.Error{Code: admin.CodeUnavailable}) || !sleep(ctx, pause) {
			return chain, release, err
		}
	}
}

// at tries the call where the key is. over is false if the key has to be looked up again.
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
			if expected = p.unwritten; expected == 0 { // it was made with a value
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
	case e.Err == client.ErrDenied && c.again == 0: // programs without closed keys say it of keys that go
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

// read ends a call that has read the name, as all reads do, and a CAS that cannot succeed.
func (c *namedCall) read(got Named) (Named, bool, error) {
	if c.req.Op == wire.CAS {
		return got, true, c.fail(client.ErrCASFailed)
	}
	return got, true, nil
}

// ended is why a context is done, as package client says it.
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
