package interp

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// queued is a pipeline that runs priorities.p4, with its queues.
type queued struct {
	*Pipeline
	queues *Queues
	said   []string
}

func newQueued(t *testing.T, priorities int) *queued {
	t.Helper()
	text, err := os.ReadFile("testdata/priorities.json")
	must(t, err)
	var doc map[string]any
	must(t, json.Unmarshal(text, &doc))
	alias := []any{"queueing_metadata.qid", []any{"scalars", "m_t.queue"}}
	doc["field_aliases"] = append(doc["field_aliases"].([]any), alias)
	text, err = json.Marshal(doc)
	must(t, err)
	prog, err := bmv2json.Parse(text)
	must(t, err)
	q := &queued{queues: NewQueues(priorities)}
	q.Pipeline, err = New(prog, Options{Queues: q.queues,
		Log: func(s string) { q.said = append(q.said, s) }})
	must(t, err)
	return q
}

// The paths that a packet of priorities.p4 can request.
const (
	goesOn byte = iota
	toGroup
	isCloned
	goesRound
)

// send processes a received packet, and overwrites the packet's memory afterwards. It returns a
// description of the outgoing frames (leaves).
func (q *queued) send(at time.Duration, port, priority, how, number byte) []string {
	frame := append([]byte{port, priority, how, number}, "ten bytes: and more"...)
	outs := q.Process(at, 9, frame)
	for i := range frame {
		frame[i] = 0xff
	}
	return leaves(outs)
}

// depart processes the packets that are due to leave their queues.
func (q *queued) depart(at time.Duration) []string {
	var b Buffer
	q.DepartInto(&b, at)
	return leaves(b.Outs)
}

// leaves describes each frame: its port, its number, its queue, how long it waited, and the length
// of its queue when it arrived and when it left.
func leaves(outs []Out) (told []string) {
	for _, o := range outs {
		f := o.Frame
		if len(f) < 14+25 || string(f[4:14]) != "ten bytes:" || string(f[39:]) != " and more" {
			told = append(told, fmt.Sprintf("%x by %d", f, o.Port))
			continue
		}
		q := f[14:]
		told = append(told, fmt.Sprintf("%d:%d q%d %dus %d %d", o.Port, f[3], q[24],
			binary.BigEndian.Uint32(q[12:]), binary.BigEndian.Uint32(q[16:]),
			binary.BigEndian.Uint32(q[20:])))
	}
	return told
}

func expectLeaves(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n    %s\nnot %s", what, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func number[T any](n T) *T { return &n }

// TestQueueRate checks that packets leave a queue a millisecond apart. The program must see their
// waiting time and the queue's length. Packets of other ports must not wait.
func TestQueueRate(t *testing.T) {
	q := newQueued(t, 1)
	must(t, q.queues.SetRate(number(uint32(1)), nil, 1000))
	if _, waits := q.NextDeparture(); waits {
		t.Error("a packet waits before there is one")
	}
	expectLeaves(t, "the first", q.send(time.Second, 1, 0, goesOn, 1), "1:1 q0 0us 0 0")
	for n := byte(2); n < 5; n++ {
		expectLeaves(t, "one that waits", q.send(time.Second, 1, 0, goesOn, n))
	}
	expectLeaves(t, "another port", q.send(time.Second, 2, 0, goesOn, 9), "2:9 q0 0us 0 0")
	at, waits := q.NextDeparture()
	if !waits || at != time.Second+time.Millisecond {
		t.Errorf("the next may go on at %v (%v)", at, waits)
	}
	expectLeaves(t, "too early", q.depart(at-1))
	expectLeaves(t, "in time", q.depart(at), "1:2 q0 1000us 0 2")
	// A late call must pass on the packets that are due, and no other packets.
	expectLeaves(t, "late", q.depart(at+2500*time.Microsecond), "1:3 q0 3500us 1 1",
		"1:4 q0 3500us 2 0")
	if _, waits := q.NextDeparture(); waits {
		t.Error("a packet waits after the last")
	}
	// A packet that arrives after the queue's gap has passed does not wait.
	expectLeaves(t, "after a pause", q.send(time.Minute, 1, 0, goesOn, 5), "1:5 q0 0us 0 0")
	// Without a rate packets do not wait, unless earlier packets are already waiting.
	expectLeaves(t, "with a rate", q.send(time.Minute, 1, 0, goesOn, 6))
	must(t, q.queues.SetRate(nil, nil, 0))
	expectLeaves(t, "without", q.send(time.Minute, 1, 0, goesOn, 7))
	expectLeaves(t, "together", q.depart(time.Minute+time.Millisecond), "1:6 q0 1000us 0 1",
		"1:7 q0 1000us 1 0")
	expectLeaves(t, "at once", q.send(time.Minute, 1, 0, goesOn, 8), "1:8 q0 0us 0 0")
}

// TestPriorities checks that packets of a larger priority overtake others, each at the rate of its
// queue.
func TestPriorities(t *testing.T) {
	q := newQueued(t, 8)
	must(t, q.queues.SetRate(nil, nil, 1000))
	must(t, q.queues.SetRate(nil, number(7), 500))
	for n := byte(0); n < 3; n++ {
		q.send(time.Second, 1, 0, goesOn, n)
	}
	for n := byte(10); n < 12; n++ {
		q.send(time.Second, 1, 7, goesOn, n)
	}
	expectLeaves(t, "both", q.depart(time.Second+2*time.Millisecond), "1:11 q7 2000us 0 0",
		"1:1 q0 2000us 0 1", "1:2 q0 2000us 1 0")

	few := newQueued(t, 2)
	expectLeaves(t, "a priority of two", few.send(time.Second, 1, 1, goesOn, 1), "1:1 q1 0us 0 0")
	for range 3 {
		expectLeaves(t, "a priority too many", few.send(time.Second, 1, 2, goesOn, 1))
	}
	if len(few.said) != 1 || !strings.Contains(few.said[0], "its priority is 2, and there are 2") {
		t.Errorf("what was said of three priorities out of range: %q", few.said)
	}
	expectLeaves(t, "one queue", newQueued(t, 1).send(time.Second, 1, 1, goesOn, 1))
	for _, err := range []error{q.queues.SetRate(nil, number(8), 1),
		q.queues.SetRate(number(uint32(1)), number(-1), 1), few.queues.SetDepth(nil, number(2), 1)} {
		if !errors.Is(err, target.ErrOutOfRange) {
			t.Errorf("a priority that is not there: %v", err)
		}
	}
}

// TestQueueDepth checks that a full queue drops new packets, and logs this only once.
func TestQueueDepth(t *testing.T) {
	q := newQueued(t, 1)
	must(t, q.queues.SetRate(nil, nil, 1000))
	must(t, q.queues.SetDepth(number(uint32(1)), nil, 2))
	for n := byte(0); n < 9; n++ {
		q.send(time.Second, 1, 0, goesOn, n)
	}
	expectLeaves(t, "two that waited", q.depart(time.Hour), "1:1 q0 3599000000us 0 1",
		"1:2 q0 3599000000us 1 0")
	if len(q.said) != 1 || !strings.Contains(q.said[0], "port 1 and priority 0 is full, with 2") {
		t.Errorf("what was said: %q", q.said)
	}
	must(t, q.queues.SetRate(nil, nil, 0))
	must(t, q.queues.SetDepth(nil, nil, 0))
	expectLeaves(t, "a queue of none", q.send(time.Hour, 2, 0, goesOn, 1))
	for _, depth := range []int{-1, MaxQueueDepth + 1} {
		if err := q.queues.SetDepth(nil, nil, depth); !errors.Is(err, target.ErrInvalid) {
			t.Errorf("a depth of %d: %v", depth, err)
		}
	}
	// The total number of waiting packets must be bounded, however many queues there are.
	must(t, q.queues.SetDepth(nil, nil, MaxQueueDepth))
	must(t, q.queues.SetRate(nil, nil, 1))
	for n := range maxWaiting + 1000 {
		q.send(2*time.Hour, byte(n%200), 0, goesOn, 0)
	}
	if q.waiting.count != maxWaiting {
		t.Errorf("%d packets wait, of at most %d", q.waiting.count, maxWaiting)
	}
}

// TestCopiesWait checks that each copy of a group and of a clone (truncated) waits in the queue of
// its port. A packet that loops twice waits in its own port's queue.
func TestCopiesWait(t *testing.T) {
	q := newQueued(t, 1)
	must(t, q.SetMulticastGroup(1, []target.Replica{{Port: 1}, {Port: 2}, {Port: 1}}))
	must(t, q.SetCloneSession(7, &target.CloneSession{Replicas: []target.Replica{{Port: 1}},
		TruncateTo: 20}))
	must(t, q.queues.SetRate(number(uint32(1)), nil, 1000))
	expectLeaves(t, "a group", q.send(time.Second, 1, 0, toGroup, 1), "2:1 q0 0us 0 0",
		"1:1 q0 0us 0 1")
	expectLeaves(t, "its other copy", q.depart(time.Second+time.Millisecond), "1:1 q0 1000us 1 0")
	at := 2 * time.Second
	expectLeaves(t, "the first", q.send(at, 1, 0, goesOn, 2), "1:2 q0 0us 0 0")
	expectLeaves(t, "a packet with a clone", q.send(at, 2, 0, isCloned, 3), "2:3 q0 0us 0 0")
	clone := q.depart(at + time.Millisecond)
	if len(clone) != 1 || len(clone[0]) != 2*20+len(" by 1") ||
		!strings.HasPrefix(clone[0], "02000203") {
		t.Errorf("the clone, cut to 20 bytes, is %s", clone)
	}
	at = 3 * time.Second
	expectLeaves(t, "round", q.send(at, 1, 0, goesRound, 4))
	expectLeaves(t, "round once more", q.depart(at+time.Millisecond), "1:4 q0 1000us 0 0")
}

// TestQueuesOfAProgram replaces a program. The queues must keep their settings, but not the
// packets.
func TestQueuesOfAProgram(t *testing.T) {
	q := newQueued(t, 1)
	must(t, q.queues.SetRate(nil, nil, 1000))
	q.send(time.Second, 1, 0, goesOn, 1)
	q.send(time.Second, 1, 0, goesOn, 2)
	next, err := New(q.Program(), Options{Queues: q.queues})
	must(t, err)
	q.Pipeline = next
	expectLeaves(t, "nothing of before", q.depart(time.Minute))
	expectLeaves(t, "the first", q.send(time.Minute, 1, 0, goesOn, 3), "1:3 q0 0us 0 0")
	expectLeaves(t, "the second", q.send(time.Minute, 1, 0, goesOn, 4))
}
