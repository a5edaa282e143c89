package calls

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// These are the defaults of Config.
const (
	DefaultRetransmit = 50 * time.Millisecond // the value in the NetCRAQ paper
	// used by client.Config; Config itself has no default
	DefaultFastRetransmit = 10 * time.Millisecond
	DefaultRetryPause     = 500 * time.Microsecond
	DefaultMaxRetryPause  = 20 * time.Millisecond
	DefaultReturnAfter    = 5 * time.Second
)

// Config configures a Machine. Zero durations mean their defaults.
type Config struct {
	Profile wire.Profile // the profile of the switches' P4 program
	// Addresses are the addresses to send to, in order of preference. The chain's service address
	// comes first, and the switches' own addresses follow.
	Addresses []netip.AddrPort

	// Services are the service addresses of the chains. A switch answers from the service address
	// even if a request was sent to the switch's own address. The machine accepts answers only from
	// Services, Addresses and the request's To. So a machine that sends only to the switches' own
	// addresses needs Services.
	Services []netip.AddrPort

	// Retransmit is how long the machine waits for an answer before it sends the same packet to the
	// next address. It doubles with each round through the addresses, up to MaxRetransmit (default:
	// four times Retransmit).
	Retransmit, MaxRetransmit time.Duration
	// FastRetransmit, if set, makes the first wait for an answer adaptive: after the first answer,
	// it follows the measured round-trip times (RFC 6298), between FastRetransmit and Retransmit.
	// So a lost frame or a failed head causes little delay. Writes without a session wait for
	// Retransmit, because each copy of them is executed.
	FastRetransmit time.Duration
	// RetryPause is the pause before a refused request is sent again. It doubles with each refusal,
	// up to MaxRetryPause. The second half of each pause is random.
	RetryPause, MaxRetryPause time.Duration
	// ReturnAfter applies when the machine has changed from the first address to another one. After
	// this time, it tries the first address again, with one call.
	ReturnAfter time.Duration

	// AtLeastOnce lets writes go without a session while the machine has no session. The head then
	// executes every copy of the write that it receives. A PUT may then undo a later PUT, and a CAS
	// that was executed may report that it failed.
	AtLeastOnce bool

	// Seed seeds the jitter and the first number of reads. It must be unpredictable (crypto/rand),
	// because an answer is recognized by the request's number. Two clients that use the same UDP
	// port one after the other must have different seeds, or the second one may mistake an answer
	// to the first for its own.
	Seed uint64
}

// Request is one operation. Op is wire.Read, wire.Write or wire.CAS.
type Request struct {
	Op       wire.Op
	Key      wire.Key
	Value    []byte       // the new value, in Write and CAS; the machine copies it
	Delete   bool         // in Write and CAS, delete the value
	Expected wire.Version // the expected version, in CAS; 0 if the key was never written
	// in Read, any member of the chain may answer with its last committed value
	Eventual bool
	// To replaces Config.Addresses for this request.
	To []netip.AddrPort
	// Deadline is the time, on the machine's clock, at which the call ends with ErrTimeout. 0 means
	// no deadline.
	Deadline time.Duration
	// Tag is any data of the caller. The machine returns it in the Completion.
	Tag any
}

// CallID identifies a call of one machine.
type CallID uint64

// Send is a packet to be sent.
type Send struct {
	To     netip.AddrPort
	Packet []byte // the UDP payload; the caller must not change it
	Call   CallID // the call that the packet belongs to
}

// Completion reports that a call has ended.
type Completion struct {
	ID     CallID
	Tag    any
	Result Result
}

// Result is the result of a call.
type Result struct {
	Err error // nil, or an *OpError

	// Value and Version are the results. A read returns the value, which the caller may keep, and
	// its version. A write returns the new version.
	Value   []byte
	Version wire.Version
	// Superseded reports that a newer write had already replaced this write when it was answered.
	Superseded bool

	From  netip.AddrPort // the address that answered, usually the chain's service address
	Epoch uint16         // number of the chain configuration of the switch that answered
	// time since the first transmission; with Attempts 1 it is a round-trip time
	RTT      time.Duration
	Attempts int    // packets that were sent for this call
	Session  uint16 // the session under which a write was sent
	Request  uint32
}

// Stats counts packets and calls since the machine was made.
type Stats struct {
	Started     uint64 // calls that were started
	Completed   uint64 // calls that have ended, including failed calls
	Sent        uint64 // packets that were sent
	Retransmits uint64 // packets in Sent that were sent because no answer came in time
	// Resent counts the packets in Sent that were sent because a switch refused the preceding
	// packet (RETRY, NOT_SERVING, NO_CHAIN) or its session (BAD_SESSION).
	Resent   uint64
	Received uint64 // packets that were received
	// Refusals counts the packets in Received with RETRY, NOT_SERVING or NO_CHAIN. It also counts
	// those with BAD_SESSION after which the write was sent under another session.
	Refusals uint64
	// Strays counts the packets in Received that answer a finished call (duplicates, late answers)
	// or no call at all.
	Strays    uint64
	Malformed uint64 // packets in Received that are malformed
	// Foreign counts the packets in Received whose sender was not asked and is not a chain's
	// service address. The machine ignores these packets.
	Foreign uint64
}

// Machine is the state machine of a client. It is not safe for concurrent use. Times are durations
// since any fixed moment and must not decrease.
type Machine struct {
	cfg Config
	// sources are the addresses from which answers may come, most usual first. It does not include
	// the addresses in Request.To.
	sources []netip.AddrPort
	rand    *rand.Rand
	stats   Stats
	lastID  CallID
	lastNum uint32 // last number used for reads and for writes without a session
	calls   map[CallID]*call
	pending map[pendingKey]*call // calls of which at least one packet was sent
	timers  timerHeap
	pool    sessionPool

	trip roundTrip

	preferred int // index in cfg.Addresses that calls start with
	misses    int // consecutive calls that this address did not answer
	// if another address is preferred, the time to try the first address again
	returnAt time.Duration

	sends, spareSends             []Send
	completions, spareCompletions []Completion
}

type pendingKey struct {
	session uint16
	request uint32
}

// New makes a Machine. It fails if the configuration is not valid.
func New(cfg Config) (*Machine, error) {
	if !cfg.Profile.Valid() {
		return nil, fmt.Errorf("netcraq client: %w: VALUE_BITS %d", wire.ErrProfile, int(cfg.Profile))
	}
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("netcraq client: no address to ask")
	}
	if err := errors.Join(checkAddresses(cfg.Addresses), checkAddresses(cfg.Services)); err != nil {
		return nil, err
	}
	cfg.Addresses = slices.Clone(cfg.Addresses)
	var sources []netip.AddrPort
	for _, a := range slices.Concat(cfg.Services, cfg.Addresses) {
		if !slices.Contains(sources, a) {
			sources = append(sources, a)
		}
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&cfg.Retransmit, DefaultRetransmit}, {&cfg.RetryPause, DefaultRetryPause},
		{&cfg.MaxRetryPause, DefaultMaxRetryPause}, {&cfg.ReturnAfter, DefaultReturnAfter},
		{&cfg.FastRetransmit, 0},
	} {
		if *d.value < 0 {
			return nil, errors.New("netcraq client: a duration of the configuration is negative")
		}
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	cfg.MaxRetransmit = max(cfg.MaxRetransmit, cfg.Retransmit)
	if cfg.MaxRetransmit == cfg.Retransmit {
		cfg.MaxRetransmit = 4 * cfg.Retransmit
	}
	cfg.MaxRetryPause = max(cfg.MaxRetryPause, cfg.RetryPause)
	r := rand.New(rand.NewPCG(cfg.Seed, 0x4E43))
	return &Machine{
		cfg: cfg, sources: sources, rand: r, lastNum: r.Uint32(),
		calls: make(map[CallID]*call), pending: make(map[pendingKey]*call), pool: newSessionPool(),
	}, nil
}

func checkAddresses(addresses []netip.AddrPort) error {
	for _, a := range addresses {
		if !a.IsValid() || !a.Addr().Is4() || a.Port() == 0 {
			return fmt.Errorf("netcraq client: %v is no IPv4 address and port", a)
		}
	}
	return nil
}

// Start begins a call. Each call ends with exactly one Completion, which may be available at once.
func (m *Machine) Start(now time.Duration, req Request) CallID {
	m.lastID++
	m.stats.Started++
	c := &call{id: m.lastID, req: req, addrs: m.cfg.Addresses, started: now, timer: -1}
	m.calls[c.id] = c
	if err := m.prepare(c); err != nil {
		m.fail(now, c, err)
		return c.id
	}
	if req.Deadline != 0 && req.Deadline <= now {
		m.fail(now, c, &OpError{Err: ErrTimeout, Detail: "the deadline had passed before; nothing was sent"})
		return c.id
	}
	if req.Op == wire.Read {
		c.number = m.nextNumber()
		m.sendNumbered(now, c)
	} else {
		m.findSession(now, c)
	}
	return c.id
}

// prepare checks the request and encodes its packet, except for the session and the number.
func (m *Machine) prepare(c *call) *OpError {
	req := &c.req
	refuse := func(err error, format string, args ...any) *OpError {
		return &OpError{Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	if req.To != nil {
		if len(req.To) == 0 {
			return refuse(ErrInvalid, "a request with addresses of its own, and there is none")
		}
		if err := checkAddresses(req.To); err != nil {
			return refuse(ErrInvalid, "%v", err)
		}
		c.addrs = slices.Clone(req.To)
	}
	p := wire.Packet{Op: req.Op, Key: req.Key, Value: req.Value}
	switch req.Op {
	case wire.Read:
		if len(req.Value) > 0 || req.Delete || req.Expected != 0 {
			return refuse(ErrInvalid, "a read has no value and no expected version")
		}
		if req.Eventual {
			p.Flags = wire.Eventual
		}
	case wire.Write, wire.CAS:
		switch {
		case req.Eventual:
			return refuse(ErrInvalid, "only a read can be eventual")
		case req.Delete && len(req.Value) > 0:
			return refuse(ErrInvalid, "a deletion has no value")
		case req.Op == wire.Write && req.Expected != 0:
			return refuse(ErrInvalid, "only a compare and swap expects a version")
		case len(req.Value) > m.cfg.Profile.ValueBytes():
			return refuse(ErrValueTooLarge, "%d bytes, the switches' program holds %d", len(req.Value), m.cfg.Profile.ValueBytes())
		}
		p.Version = req.Expected
		p.Tombstone = req.Delete
	default:
		return refuse(ErrInvalid, "a client cannot send %v", req.Op)
	}
	c.packet = p
	c.req.Value = nil
	var err error
	// Marshal cannot fail for other reasons, because the request was checked above.
	if c.bytes, err = p.Marshal(m.cfg.Profile); err != nil {
		return refuse(ErrInvalid, "%v", err)
	}
	c.packet.Value = nil
	return nil
}

// nextNumber returns a number that no current call without a session uses.
func (m *Machine) nextNumber() uint32 {
	for {
		m.lastNum++
		if _, taken := m.pending[pendingKey{0, m.lastNum}]; !taken && m.lastNum != 0 {
			return m.lastNum
		}
	}
}

// Unsent records that the operating system refused to send a packet of a call. A write of which no
// packet left was not executed.
func (m *Machine) Unsent(id CallID) {
	if c := m.calls[id]; c != nil {
		c.unsent++
	}
}

// Abort ends a call that is under way with the error why.
func (m *Machine) Abort(now time.Duration, id CallID, why error) {
	if c := m.calls[id]; c != nil {
		e := &OpError{Err: why}
		if why == ErrTimeout {
			e.Detail = c.waitedFor()
		}
		m.fail(now, c, e)
	}
}

// AbortAll ends all calls, in the order in which they were started.
func (m *Machine) AbortAll(now time.Duration, why error) {
	ids := make([]CallID, 0, len(m.calls))
	for id := range m.calls {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	m.pool.waiting = nil // Otherwise the end of each call would begin a waiting write.
	for _, id := range ids {
		m.Abort(now, id, why)
	}
}

// Receive handles a UDP payload that came from the address `from`.
func (m *Machine) Receive(now time.Duration, from netip.AddrPort, payload []byte) {
	m.stats.Received++
	var p wire.Packet
	if err := p.Unmarshal(payload, m.cfg.Profile); err != nil {
		m.stats.Malformed++
		return
	}
	c := m.pending[pendingKey{p.Session, p.Request}]
	if c != nil && !c.isAnsweredBy(&p) {
		c = nil
	}
	switch {
	case !slices.Contains(m.sources, from) && (c == nil || !slices.Contains(c.req.To, from)):
		m.stats.Foreign++
		if c != nil {
			c.foreign = from
		}
	case c == nil:
		m.stats.Strays++
	default:
		m.answer(now, c, from, &p)
	}
}

// Tick handles all timers that are due at the time `now`.
func (m *Machine) Tick(now time.Duration) {
	for len(m.timers) > 0 && m.timers[0].wake <= now {
		m.wake(now, m.timers[0])
	}
}

// NextTick returns the time of the next timer. ok is false if no timer is set.
func (m *Machine) NextTick() (at time.Duration, ok bool) {
	if len(m.timers) == 0 {
		return 0, false
	}
	return m.timers[0].wake, true
}

// Take returns the packets to send and the calls that have ended since the last Take, each in
// order. Both slices are valid until the next Take.
func (m *Machine) Take() ([]Send, []Completion) {
	sends, completions := m.sends, m.completions
	m.sends, m.spareSends = m.spareSends[:0], sends
	m.completions, m.spareCompletions = m.spareCompletions[:0], completions
	return sends, completions
}

// Outstanding returns the number of calls that have not ended.
func (m *Machine) Outstanding() int { return len(m.calls) }

// Stats returns the counters of the machine.
func (m *Machine) Stats() Stats { return m.stats }
