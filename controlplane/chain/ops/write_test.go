package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

const (
	slotKey  = wire.Key(0x01000001)
	testSlot = 7
)

// slowly is an ops.Runtime in which only sleeping takes time, and calls run one after the other.
type slowly struct{ now *time.Duration }

type timed struct {
	context.Context
	now *time.Duration
	end time.Duration
}

func (t timed) Err() error {
	if *t.now >= t.end {
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

func (s slowly) Now() time.Duration { return *s.now }

func (s slowly) Sleep(ctx context.Context, d time.Duration) error {
	*s.now += d
	return ctx.Err()
}

func (s slowly) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return timed{ctx, s.now, *s.now + d}, func() {}
}

func (s slowly) ForEach(ctx context.Context, n, _ int, do func(context.Context, int) error) error {
	for i := range n {
		if err := do(ctx, i); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// member is a switch with one slot, which behaves like the P4 program.
type member struct {
	name              string
	net               *testChain
	entry             bool
	committed, latest wire.Version
	value, newest     string // "" is a tombstone
	mute              bool
}

// testChain is a chain of members, ordered from head to tail. Packets pass the chain without delay.
type testChain struct {
	t       *testing.T
	clock   slowly
	epoch   uint16
	members []*member
	// held reports whether the test holds back a packet to the head.
	held func(*wire.Packet) bool
	late []*wire.Packet
	// acks reports whether the tail's acknowledgement reaches a member. If acks is nil, it always
	// does.
	acks  func(*member) bool
	wrote []string // the executed writes
}

func newTestChain(t *testing.T, names ...string) *testChain {
	n := &testChain{t: t, clock: slowly{new(time.Duration)}, epoch: 2}
	for _, name := range names {
		n.members = append(n.members, &member{name: name, net: n, entry: true})
	}
	return n
}

func (n *testChain) chain() *ops.Chain {
	begin := func(recorded []uint32) (uint32, error) { return 100, nil }
	return &ops.Chain{Runtime: n.clock, ID: 1, Pool: ops.NewPool(2, begin),
		Switch: func(name string) (*ops.Switch, error) {
			for _, m := range n.members {
				if m.name == name {
					return ops.NewSwitch(name, n.clock, m), nil
				}
			}
			return nil, errors.New("there is no such switch")
		}}
}

func (n *testChain) names() (out []string) {
	for _, m := range n.members {
		out = append(out, m.name)
	}
	return out
}

// writes returns the write of a value to one key. The value "" is a tombstone.
func writes(value string) *ops.Writes {
	w := &ops.Writes{Keys: []ops.Key{{Name: "k", ID: slotKey, Slot: testSlot}}, Values: [][]byte{nil}}
	if value != "" {
		w.Values[0] = []byte(value)
	}
	return w
}

// swap executes a CAS at the head. write is a CAS that succeeds whatever the slot's version is.
func (n *testChain) swap(expected wire.Version, value string) (wire.Status, wire.Version) {
	head := n.members[0]
	switch {
	case !head.entry:
		return wire.NotFound, 0
	case head.latest != head.committed:
		return wire.Retry, 0
	case head.committed != expected:
		return wire.CASFailed, head.committed
	}
	return wire.OK, n.write(value)
}

func (n *testChain) write(value string) wire.Version {
	v := wire.MakeVersion(n.epoch, n.members[0].latest.Sequence()+1)
	n.wrote = append(n.wrote, fmt.Sprintf("%v %s", v, value))
	n.pass(v, value)
	return v
}

// pass sends a version down the chain and the acknowledgement back, unless the tail has committed a
// newer version.
func (n *testChain) pass(v wire.Version, value string) {
	for i, m := range n.members {
		if v > m.latest {
			m.latest, m.newest = v, value
		}
		if i == len(n.members)-1 && v > m.committed {
			m.committed, m.value = v, value
		}
	}
	if n.members[len(n.members)-1].committed > v {
		return
	}
	for _, m := range n.members {
		if (n.acks == nil || n.acks(m)) && v > m.committed {
			m.committed, m.value = v, value
		}
	}
}

// take returns a member's answer to a packet of the controller, or nil if it sends none.
func (m *member) take(p *wire.Packet) *wire.Packet {
	r := *p
	r.Epoch, r.Version, r.Value, r.Tombstone = m.net.epoch, 0, nil, true
	switch {
	case m.mute:
		return nil
	case p.Flags&wire.Session != 0:
		r.Op, r.Status = wire.FetchReply, wire.OK
		if p.Op == wire.Sync {
			r.Op = wire.SyncReply
		}
	case p.Op == wire.Fetch && !m.entry:
		r.Op, r.Status = wire.FetchReply, wire.NotFound
	case p.Op == wire.Fetch:
		r.Op, r.Status, r.Version = wire.FetchReply, wire.OK, m.committed
		value := m.value
		if m.latest != m.committed {
			r.Status = wire.Dirty
			if p.Flags&wire.Newest != 0 {
				r.Version, value = m.latest, m.newest
			}
		}
		r.Value, r.Tombstone = []byte(value), value == ""
	case p.Op == wire.Write && p.Flags&wire.Stamped != 0:
		if p.Epoch == m.net.epoch && m == m.net.members[0] {
			m.net.pass(p.Version, string(p.Value))
		}
		return nil
	case p.Op == wire.CAS:
		r.Op = wire.CASReply
		r.Status, r.Version = m.net.swap(p.Version, string(p.Value))
	case p.Op == wire.Write:
		r.Op, r.Status, r.Version = wire.WriteReply, wire.OK, m.net.write(string(p.Value))
	default:
		m.net.t.Errorf("%s is sent %v", m.name, p)
	}
	return &r
}

// comeLate delivers the held packets to the head.
func (n *testChain) comeLate() {
	n.held = nil
	for _, p := range n.late {
		n.members[0].take(p)
	}
	n.late = nil
}

// equal fails the test unless all members have committed this value and no slot is dirty.
func (n *testChain) equal(value string) {
	n.t.Helper()
	for _, m := range n.members {
		if m.committed != m.latest || m.value != value || m.committed != n.members[0].committed {
			n.t.Errorf("%s has %q at %v (latest %v), and should have %q", m.name, m.value, m.committed, m.latest, value)
		}
	}
}

// member implements ops.Target.

func (m *member) Err() error              { return nil }
func (m *member) Connection() int         { return 1 }
func (m *member) Open() (ops.Port, error) { return &port{member: m}, nil }
func (m *member) Send(p *wire.Packet) error {
	_ = m.take(p)
	return nil
}
func (m *member) Cells(context.Context, string, []int) ([][]byte, error) {
	return nil, ops.ErrUnsupported
}
func (m *member) Keys(context.Context, uint8) ([]wire.Key, error)       { return nil, nil }
func (m *member) WriteEntries(context.Context, bool, []ops.Entry) error { return nil }

type port struct {
	*member
	replies []*wire.Packet
}

func (x *port) Send(p *wire.Packet) error {
	if n := x.net; n.held != nil && x.member == n.members[0] && n.held(p) {
		n.late = append(n.late, p)
		return nil
	}
	if r := x.take(p); r != nil {
		x.replies = append(x.replies, r)
	}
	return nil
}

func (x *port) Receive(ctx context.Context, d time.Duration) (*wire.Packet, error) {
	if len(x.replies) == 0 {
		*x.net.clock.now += max(d, 1)
		return nil, ctx.Err()
	}
	r := x.replies[0]
	x.replies = x.replies[1:]
	return r, nil
}

func (x *port) Close() {}

// TestWriteIsWhatTheSlotExpects: the first write of a key is a CAS on the slot's version. An
// earlier key may have left different content at each member.
func TestWriteIsWhatTheSlotExpects(t *testing.T) {
	n := newTestChain(t, "a", "b", "c")
	for i, m := range n.members { // member a was emptied, and b and c have another key's tombstone
		m.committed = wire.MakeVersion(1, uint64(10*i))
		if m.latest = m.committed; i == 0 {
			m.committed, m.latest = 0, 0
		}
	}
	w := writes("first")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
		t.Fatal(err, w.Err(0))
	}
	n.equal("first")
	if v := w.Version(0); v != wire.MakeVersion(2, 1) {
		t.Errorf("it is told version %v", v)
	}
}

// TestLateWrites: packets of an earlier attempt arrive after a later attempt has succeeded, and
// after a client has written.
func TestLateWrites(t *testing.T) {
	for _, remove := range []bool{false, true} {
		t.Run(map[bool]string{false: "first write", true: "tombstone"}[remove], func(t *testing.T) {
			n := newTestChain(t, "a", "b", "c")
			n.write("earlier")
			w := writes("first")
			if remove {
				w = writes("")
			}
			// All packets of the first attempt to the head are held back.
			n.held = func(p *wire.Packet) bool { return p.Op == wire.CAS || p.Op == wire.Write }
			c := n.chain()
			if err := c.WriteAll(t.Context(), w, n.names(), remove); err == nil && w.Err(0) == nil {
				t.Fatal("it was written, and nothing has come to the head")
			}
			if len(n.late) == 0 {
				t.Fatal("nothing was sent")
			}
			n.held = nil
			// The head is given up, and b becomes the head.
			n.members, n.epoch = n.members[1:], 3
			if err := c.WriteAll(t.Context(), w, n.names(), remove); err != nil || w.Err(0) != nil {
				t.Fatal(err, w.Err(0))
			}
			n.equal(string(w.Values[0]))
			n.write("a client's")
			n.comeLate()
			n.equal("a client's")
			if len(n.wrote) != 3 {
				t.Errorf("executed: %s", strings.Join(n.wrote, ", "))
			}
		})
	}
}

// TestLateWriteIsInTime: packets of an earlier attempt arrive during a later attempt.
func TestLateWriteIsInTime(t *testing.T) {
	n := newTestChain(t, "a", "b")
	w := writes("first")
	n.held = func(p *wire.Packet) bool { return p.Op == wire.CAS }
	c := n.chain()
	if err := c.WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) == nil {
		t.Fatal("it was written, and nothing has come to the head", err)
	}
	late := n.late[0]
	n.held = func(p *wire.Packet) bool {
		if p.Op == wire.CAS && late != nil { // the client writes between the read of the slot and this CAS
			n.members[0].take(late)
			late = nil
		}
		return false
	}
	if err := c.WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
		t.Fatal(err, w.Err(0))
	}
	n.equal("first")
	if want := []string{"2.1 first", "2.2 first"}; !slices.Equal(n.wrote, want) || w.Version(0) != n.members[0].committed {
		t.Errorf("executed: %v, told %v", n.wrote, w.Version(0))
	}
}

// TestWriteOfADirtySlot: if the slot is dirty at the head before a write, the dirty version is
// propagated first.
func TestWriteOfADirtySlot(t *testing.T) {
	n := newTestChain(t, "a", "b", "c")
	n.acks = func(m *member) bool { return m.name != "a" }
	n.write("a client's")
	n.acks = nil
	w := writes("")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), true); err != nil {
		t.Fatal(err)
	}
	n.equal("")
	if *n.clock.now > time.Second {
		t.Errorf("it took %v", *n.clock.now)
	}
}

// TestWriteOverLeftovers: an earlier chain has left different content at each member. Some of it is
// dirty, so the head's version is never committed.
func TestWriteOverLeftovers(t *testing.T) {
	n := newTestChain(t, "a", "b", "c")
	for i, v := range []uint64{3, 9, 7} {
		m := n.members[i]
		m.committed, m.latest = wire.MakeVersion(1, v), wire.MakeVersion(1, v)
		m.value, m.newest = "another's", "another's"
	}
	n.members[0].latest++
	n.members[2].latest++
	w := writes("first")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
		t.Fatal(err, w.Err(0))
	}
	n.equal("first")
}

// TestWriteUntilAllAreClean: an acknowledgement is lost, so that a member would still answer with
// the earlier value.
func TestWriteUntilAllAreClean(t *testing.T) {
	n := newTestChain(t, "a", "b", "c")
	lost := 0
	n.acks = func(m *member) bool {
		if m.name == "b" && lost < 2 {
			lost++
			return false
		}
		return true
	}
	w := writes("first")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
		t.Fatal(err, w.Err(0))
	}
	n.equal("first")
}

// TestWrittenAndLost: a later attempt does not repeat an earlier attempt's write, unless all
// members have lost it since.
func TestWrittenAndLost(t *testing.T) {
	n := newTestChain(t, "a", "b")
	w, c := writes("first"), n.chain()
	for range 2 {
		if err := c.WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
			t.Fatal(err, w.Err(0))
		}
	}
	if len(n.wrote) != 1 {
		t.Errorf("executed: %v", n.wrote)
	}
	for _, m := range n.members {
		m.committed, m.latest, m.value, m.newest = 0, 0, "", ""
	}
	n.epoch++
	if err := c.WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) != nil {
		t.Fatal(err, w.Err(0))
	}
	n.equal("first")
	if w.Version(0) != n.members[0].committed {
		t.Errorf("it is told version %v", w.Version(0))
	}
}

// TestWriteWithoutAnEntry: somebody has deleted a key's entry at the head. Then the key's removal
// succeeds, and the key's addition fails.
func TestWriteWithoutAnEntry(t *testing.T) {
	n := newTestChain(t, "a", "b")
	n.members[0].entry = false
	w := writes("")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), true); err != nil ||
		w.Version(0) != wire.MakeVersion(n.epoch+1, 0) {
		t.Error(err, w.Version(0))
	}
	w = writes("first")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) == nil ||
		!strings.Contains(w.Err(0).Error(), "a has no slot") {
		t.Error(err, w.Err(0))
	}
	if len(n.wrote) != 0 {
		t.Errorf("executed: %v", n.wrote)
	}
}

// TestWriteToAMuteHead: a write to a head that does not answer ends with an error that says so.
func TestWriteToAMuteHead(t *testing.T) {
	n := newTestChain(t, "a", "b")
	n.members[0].mute = true
	w := writes("first")
	if err := n.chain().WriteAll(t.Context(), w, n.names(), false); err != nil || w.Err(0) == nil ||
		!strings.Contains(w.Err(0).Error(), "a does not answer") {
		t.Error(err, w.Err(0))
	}
	if err := n.chain().WriteAll(t.Context(), w, n.names(), true); !errors.Is(err, ops.ErrNotDeleted) {
		t.Error(err)
	}
}
