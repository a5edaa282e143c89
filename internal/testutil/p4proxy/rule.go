package p4proxy

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Rule says how the proxy treats the messages that it catches. A message that no rule catches
// passes at once. A caught message waits, and later messages overtake it.
type Rule struct {
	Match Match
	// Most is the number of messages after which the rule ends. 0 means unlimited.
	Most int
	// Hold makes each message wait until Release.
	Hold bool
	// Late makes each message wait until its caller has gone, because its deadline has passed, the
	// caller has cancelled the call, or its connection has broken.
	Late bool
	// Delay returns an additional waiting time for each message after that. nil means no additional
	// time.
	Delay func() time.Duration
	// GiveUp answers each caught call with DEADLINE_EXCEEDED at once, as gRPC does when a deadline
	// passes. The proxy still delivers the call to the switch.
	GiveUp bool
}

// Delivery is the result of a caught message.
type Delivery struct {
	*Message
	// Err is the switch's answer to a call, or the reason why the message could not be delivered.
	// It is nil if the switch has executed the call, or if the packet was sent.
	Err error
}

// Caught holds the messages that a rule catches. It is safe for concurrent use.
type Caught struct {
	p    *Proxy
	rule Rule

	mu      sync.Mutex
	more    chan struct{} // closed and replaced when a message is caught or delivered
	n       int
	waiting []*waiting
	refused int
	ended   bool
	opened  chan struct{} // closed by Release
}

// waiting is a caught message.
type waiting struct {
	of   *Caught
	m    *Message
	done bool
	err  error
}

// Add adds a rule. If several rules match a message, the rule that was added first catches it.
func (p *Proxy) Add(r Rule) *Caught {
	c := &Caught{p: p, rule: r, more: make(chan struct{}), opened: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, c)
	return c
}

// catch returns the message as caught by a rule, or nil if no rule has caught it.
func (p *Proxy) catch(m *Message) *waiting {
	if m == nil {
		return nil
	}
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, c := range rules {
		if w := c.catch(m); w != nil {
			return w
		}
	}
	return nil
}

func (c *Caught) catch(m *Message) *waiting {
	if !c.rule.Match(m) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	c.n++
	c.ended = c.n == c.rule.Most
	w := &waiting{of: c, m: m}
	c.waiting = append(c.waiting, w)
	c.changed()
	return w
}

// changed wakes callers that wait for a change. The caller must hold c.mu.
func (c *Caught) changed() {
	close(c.more)
	c.more = make(chan struct{})
}

// wait waits as the rule requires. It returns false if the proxy was closed first.
func (w *waiting) wait(caller context.Context) bool {
	r := w.of.rule
	if r.Hold {
		select {
		case <-w.of.opened:
		case <-w.of.p.ctx.Done():
			return false
		}
	}
	if r.Late && !r.GiveUp {
		select {
		case <-caller.Done():
		case <-w.of.p.ctx.Done():
			return false
		}
	}
	if r.Delay != nil {
		select {
		case <-time.After(r.Delay()):
		case <-w.of.p.ctx.Done():
			return false
		}
	}
	return w.of.p.ctx.Err() == nil
}

// delivered records that the message has had its effect, or will have none.
func (w *waiting) delivered(err error) {
	c := w.of
	c.mu.Lock()
	defer c.mu.Unlock()
	w.done, w.err = true, err
	if err != nil {
		c.refused++
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(x *waiting) bool { return x == w })
	c.changed()
}

// Count returns the number of caught messages, and how many of them could not be delivered or were
// refused by the switch.
func (c *Caught) Count() (caught, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.refused
}

// Waiting returns the number of caught messages that are not delivered yet.
func (c *Caught) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// Await waits until the rule has caught n messages.
func (c *Caught) Await(ctx context.Context, n int) error {
	return c.until(ctx, func() bool { return c.n >= n })
}

func (c *Caught) until(ctx context.Context, so func() bool) error {
	for {
		c.mu.Lock()
		ok, more := so(), c.more
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End stops the rule from catching more messages. Caught messages continue to wait as the rule
// says.
func (c *Caught) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// Release ends the rule, releases the messages that it holds, waits until all caught messages are
// delivered, and returns their results. The messages are released in any order.
func (c *Caught) Release(ctx context.Context) ([]Delivery, error) {
	c.mu.Lock()
	c.ended = true
	select {
	case <-c.opened:
	default:
		close(c.opened)
	}
	all := slices.Clone(c.waiting)
	c.mu.Unlock()
	err := c.until(ctx, func() bool { return len(c.waiting) == 0 })
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Delivery
	for _, w := range all {
		if w.done {
			out = append(out, Delivery{w.m, w.err})
		}
	}
	return out, err
}

// Chance describes one rule of a random run. It has the share of messages to catch, and their
// treatment.
type Chance struct {
	Name  string // name of the rule in Tally
	Match Match
	Share float64 // share of messages to catch, between 0 and 1
	// Longest is the maximum waiting time of a message. Most wait much less.
	Longest time.Duration
	GiveUp  bool // as GiveUp in Rule
}

// Random is a run of rules whose random choices follow from a seed.
type Random struct {
	names  []string
	caught []*Caught
}

// AddRandom adds the rules of a random run.
func (p *Proxy) AddRandom(seed uint64, chances ...Chance) *Random {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 35))
	out := &Random{}
	for _, ch := range chances {
		out.names = append(out.names, ch.Name)
		out.caught = append(out.caught, p.Add(Rule{
			Match: func(m *Message) bool {
				if !ch.Match(m) {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				return random.Float64() < ch.Share
			},
			Delay: func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				x := random.Float64()
				return time.Duration(x * x * x * float64(ch.Longest))
			},
			GiveUp: ch.GiveUp,
		}))
	}
	return out
}

// Tally adds the number of caught messages to sum, by the chances' names.
func (r *Random) Tally(sum map[string]int) {
	for i, c := range r.caught {
		n, _ := c.Count()
		sum[r.names[i]] += n
	}
}

// End ends the rules, and waits until all caught messages are delivered.
func (r *Random) End(ctx context.Context) error {
	for _, c := range r.caught {
		c.End()
	}
	for _, c := range r.caught {
		if _, err := c.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}
