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
	// changed, the switch may have been restarted or emptied.
	Connection() int
	// Open reserves a port from which a request is sent and to which its replies come.
	Open() (Port, error)
	// Send sends a packet into the switch's pipeline, addressed to the switch itself; no reply
	// comes.
	Send(p *wire.Packet) error
	// Cells reads cells of a register, in the order of cells. It does not read them at one moment.
	// It returns ErrUnsupported if the target shows no registers (BMv2).
	Cells(ctx context.Context, register string, cells []int) ([][]byte, error)
	// Keys returns the KEY_IDs of a chain for which the switch has key_index entries.
	Keys(ctx context.Context, chain uint8) ([]wire.Key, error)
	// WriteEntries makes key_index entries, or deletes them.
	WriteEntries(ctx context.Context, insert bool, entries []Entry) error
}

// Entry is a key_index entry: the slot that a KEY_ID leads to, and whose key it is.
type Entry struct {
	ID   wire.Key
	Slot int
	// Realm is the key's realm, with the next higher bit set if the key is closed.
	Realm uint16
	// Hidden says that clients find no key while the controller reaches the slot. Realm is used by
	// switches whose program does not support hidden keys.
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
	// Receive waits up to d for a reply, and returns nil if none comes. Its error is ctx's.
	Receive(ctx context.Context, d time.Duration) (*wire.Packet, error)
	Close()
}

// ErrUnsupported says that the target does not show its registers.
var ErrUnsupported = errors.New("the target shows no registers")

// Time limits for one exchange of an operation. Within this time the request is sent again many
// times.
const (
	WriteTimeout = 5 * time.Second
	FetchTimeout = 2 * time.Second
)

// Waits before a request is sent again: the first, and the longest.
const (
	firstResend = 30 * time.Millisecond
	lastResend  = 500 * time.Millisecond
)

// Switch is a switch as procedures see it. It is safe for concurrent use.
type Switch struct {
	Name    string
	target  Target
	runtime Runtime
	// trip is the smoothed round-trip time in nanoseconds; 0: not known.
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

// roundTrip returns how long an exchange takes, as far as is known. Sending again, or giving up,
// before that time makes a slow switch slower: dozens of exchanges are under way at a time, and
// BMv2 drops what it cannot process.
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

// fetchIn is Fetch from a switch that must have a given epoch of a chain. Another epoch is an
// error: the switch was restarted, or another controller is changing it, so its slots prove
// nothing.
func (s *Switch) fetchIn(ctx context.Context, epoch uint16, key wire.Key, flags wire.Flags,
	session uint16) (*wire.Packet, error) {
	r, err := s.Fetch(ctx, key, flags, session)
	if err == nil && r.Epoch != epoch {
		return nil, fmt.Errorf("%s has epoch %d, not %d", s.Name, r.Epoch, epoch)
	}
	return r, err
}

// versions holds a slot's committed and latest version, as in the register versions.
type versions struct{ committed, latest wire.Version }

func (v versions) dirty() bool { return v.latest != v.committed }

// versionsOf reads the versions of keys' slots from the registers. ErrUnsupported: the target shows
// no registers.
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
		half := max(0, len(v)-8) // leading zero bytes may be missing
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
