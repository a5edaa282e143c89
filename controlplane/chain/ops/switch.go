package ops

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Target is the connection to a switch. It is safe for concurrent use.
type Target interface {
	// Err returns why nothing can be sent to the switch at the moment, or nil.
	Err() error
	// Connection returns the number of the present connection to the switch. If the number has
	// changed, the switch may have been restarted.
	Connection() int
	// Open reserves a port from which a request is sent and to which its replies come.
	Open() (Port, error)
	// Send sends a packet into the switch's pipeline, addressed to the switch itself. The switch
	// does not reply to such a packet.
	Send(p *wire.Packet) error
	// Cells reads cells of a register, in the order of cells. The switch may process packets
	// between the reads. Cells returns ErrUnsupported if the target shows no registers (BMv2).
	Cells(ctx context.Context, register string, cells []int) ([][]byte, error)
	// Keys returns the KEY_IDs of a chain for which the switch has key_index entries.
	Keys(ctx context.Context, chain uint8) ([]wire.Key, error)
	// WriteEntries inserts or deletes key_index entries.
	WriteEntries(ctx context.Context, insert bool, entries []Entry) error
}

// Entry is a key_index entry. It maps a KEY_ID to a slot, and says whose key it is.
type Entry struct {
	ID   wire.Key
	Slot int
	// Realm is the key's realm, with the bit above the realm's bits set if the key is closed.
	Realm uint16
	// Hidden says that clients do not find the key, while the controller can reach its slot.
	// Switches use Realm instead if their program does not support hidden keys.
	Hidden bool
}

func (e Entry) String() string {
	if e.Hidden {
		return fmt.Sprintf("{%v %d hidden}", e.ID, e.Slot)
	}
	return fmt.Sprintf("{%v %d %d}", e.ID, e.Slot, e.Realm)
}

// Port sends one request to a switch and receives its replies.
type Port interface {
	// Send sends a packet into the switch's pipeline. It may be lost.
	Send(p *wire.Packet) error
	// Receive waits up to d for a reply, and returns nil if none comes. It returns an error only if
	// ctx ends.
	Receive(ctx context.Context, d time.Duration) (*wire.Packet, error)
	Close()
}

// ErrUnsupported says that the target does not show its registers.
var ErrUnsupported = errors.New("the target shows no registers")

// These constants limit the time of one exchange within an operation. Within this time the request
// is sent again many times.
const (
	WriteTimeout = 5 * time.Second
	FetchTimeout = 2 * time.Second
)

// These constants are the first and the longest pause before a request is sent again.
const (
	firstResend = 30 * time.Millisecond
	lastResend  = 500 * time.Millisecond
)

// Switch is a switch on which procedures work. It is safe for concurrent use.
type Switch struct {
	Name    string
	target  Target
	runtime Runtime
	// trip is the smoothed round-trip time in nanoseconds, or 0 if it is not known.
	trip        atomic.Int64
	noRegisters atomic.Bool // the target has returned ErrUnsupported
}

// NewSwitch makes a switch from its connection.
func NewSwitch(name string, r Runtime, t Target) *Switch {
	return &Switch{Name: name, target: t, runtime: r}
}

// Exchange sends a packet to a switch repeatedly, until accept returns true for a reply to its
// key, or ctx ends.
func (s *Switch) Exchange(ctx context.Context, p *wire.Packet, accept func(*wire.Packet) bool) (*wire.Packet, error) {
	port, err := s.target.Open()
	if err != nil {
		return nil, err
	}
	defer port.Close()
	began := s.runtime.Now()
	for wait := min(max(firstResend, 3*s.roundTrip()), lastResend); ; wait = min(2*wait, lastResend) {
		sendErr := port.Send(p)
		for until := s.runtime.Now() + wait; ; {
			r, err := port.Receive(ctx, until-s.runtime.Now())
			if err != nil && sendErr != nil {
				return nil, sendErr
			}
			if err != nil {
				return nil, fmt.Errorf("%s does not answer a %v for the key %v: %w", s.Name, p.Op, p.Key, err)
			}
			if r == nil {
				break
			}
			if r.Key == p.Key && accept(r) {
				s.took(s.runtime.Now() - began)
				return r, nil
			}
		}
	}
}

// roundTrip returns the estimated duration of an exchange, or 0 if it is not known. A slow switch
// gets even slower if the controller repeats a request or gives up before that time. Dozens of
// exchanges are under way at a time, and BMv2 drops packets that it cannot process.
func (s *Switch) roundTrip() time.Duration { return time.Duration(s.trip.Load()) }

// took notes how long an exchange took since its first packet. An exchange that waited for the
// repair of a chain says little about the round trip, so its weight is small.
func (s *Switch) took(t time.Duration) {
	t = min(t, lastResend)
	if was := s.roundTrip(); was != 0 {
		t = (7*was + t) / 8
	}
	s.trip.Store(int64(t))
}

// Fetch reads one slot or, if session is not 0, that session's record.
func (s *Switch) Fetch(ctx context.Context, key wire.Key, flags wire.Flags, session uint16) (*wire.Packet, error) {
	p := &wire.Packet{Op: wire.Fetch, Flags: flags, Key: key, Session: session, Request: 1}
	return s.Exchange(ctx, p, func(r *wire.Packet) bool {
		return r.Op == wire.FetchReply && (session == 0 || r.Session == session)
	})
}

// fetchIn is Fetch, but the switch must have the given epoch of the chain. Another epoch is an
// error, because the switch was restarted or another controller is changing it, so its slots prove
// nothing.
func (s *Switch) fetchIn(ctx context.Context, epoch uint16, key wire.Key, flags wire.Flags,
	session uint16) (*wire.Packet, error) {
	r, err := s.Fetch(ctx, key, flags, session)
	if err == nil && r.Epoch != epoch {
		return nil, fmt.Errorf("%s has epoch %d, not %d", s.Name, r.Epoch, epoch)
	}
	return r, err
}

// versions holds a slot's committed and latest version, as the register `versions` stores them.
type versions struct{ committed, latest wire.Version }

func (v versions) dirty() bool { return v.latest != v.committed }

// versionsOf reads the versions of keys' slots from the registers. It returns ErrUnsupported if the
// target shows no registers.
func (s *Switch) versionsOf(ctx context.Context, keys []Key) ([]versions, error) {
	slots := make([]int, len(keys))
	for i, k := range keys {
		slots[i] = k.Slot
	}
	values, err := s.cells(ctx, "versions", slots)
	if err != nil {
		return nil, err
	}
	out := make([]versions, len(keys))
	for i, v := range values {
		half := max(0, len(v)-8) // the value may lack leading zero bytes
		out[i] = versions{wire.Version(number(v[:half])), wire.Version(number(v[half:]))}
	}
	return out, nil
}

// cells reads cells of a register, and remembers if the target shows no registers.
func (s *Switch) cells(ctx context.Context, register string, cells []int) ([][]byte, error) {
	if s.noRegisters.Load() {
		return nil, ErrUnsupported
	}
	out, err := s.target.Cells(ctx, register, cells)
	if errors.Is(err, ErrUnsupported) {
		s.noRegisters.Store(true)
	}
	return out, err
}

// number decodes a value of at most 64 bits.
func number(b []byte) (n uint64) {
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}
