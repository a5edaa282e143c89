package bmthrift

import (
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// heard is a Publisher that records messages.
type heard struct {
	mu       sync.Mutex
	messages [][]byte
}

func (h *heard) Publish(m []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, slices.Clone(m))
}

func (h *heard) take() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.messages
	h.messages = nil
	return out
}

func entities(t *testing.T) *bmv2json.Program {
	t.Helper()
	json, err := os.ReadFile("../p4rtserver/testdata/entities.json")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := bmv2json.Parse(json)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// TestLearning follows digest samples from a program to a listener, and acknowledgements back.
func TestLearning(t *testing.T) {
	prog, to := entities(t), &heard{}
	l := &learner{device: 7, to: to}
	src := prog.LearnLists[0]
	sample := func(last byte) {
		l.digest(prog, target.Digest{Name: src.Name, Fields: [][]byte{{0, 0, 0, 0, 1, last},
			{1, 2}}})
	}
	sample(1)
	got := to.take()
	want := append([]byte("LEA|"), 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(src.ID), 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2)
	if len(got) != 1 || !slices.Equal(got[0], want) {
		t.Fatalf("the listener gets %q, not %q", got, want)
	}
	sample(1)
	if got := to.take(); len(got) != 0 {
		t.Errorf("what is not acknowledged comes again: %q", got)
	}
	x := l.lists[src.Name]
	with := func(f func()) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f()
	}
	with(func() { x.ack(0, nil) })
	sample(1)
	if got := to.take(); len(got) != 1 || binary.LittleEndian.Uint64(got[0][20:]) != 1 {
		t.Errorf("what has been acknowledged does not come again: %q", got)
	}

	// Two samples fill a notification. A single sample is sent after the timeout.
	with(func() { x.most, x.wait = 2, 20*time.Millisecond })
	sample(2)
	sample(3)
	if got := to.take(); len(got) != 1 || binary.LittleEndian.Uint32(got[0][28:]) != 2 ||
		len(got[0]) != 32+2*8 {
		t.Errorf("two samples come as %q", got)
	}
	sample(4)
	deadline := time.Now().Add(20 * time.Second)
	for got = nil; len(got) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got = to.take()
	}
	if len(got) != 1 || binary.LittleEndian.Uint32(got[0][28:]) != 1 {
		t.Errorf("a sample that waits comes as %q", got)
	}
	// The client acknowledges one of two samples by its number. Unknown numbers have no effect.
	with(func() { x.ack(2, []int32{1, -1, 77}); x.ack(99, nil); x.most = 1 })
	sample(2)
	sample(3)
	if got := to.take(); len(got) != 1 || got[0][len(got[0])-3] != 3 {
		t.Errorf("after one acknowledgement it is %q", got)
	}

	// Nobody acknowledges the samples, so the learner must bound what it stores.
	with(func() { x.most, x.wait = 1000, 0 })
	for i := range maxUnacked + 5000 {
		l.digest(prog, target.Digest{Name: src.Name, Fields: [][]byte{
			binary.BigEndian.AppendUint32([]byte{9, 9}, uint32(i)), {0, 0}}})
	}
	with(func() {
		if len(x.known) > maxUnacked+2000 || len(x.unacked) > 200 {
			t.Errorf("%d samples in %d buffers are kept", len(x.known), len(x.unacked))
		}
	})
	to.take()

	// A new program starts with empty digest lists. Digests that do not match the program are
	// ignored.
	next := entities(t)
	l.digest(next, target.Digest{Name: "no such list"})
	l.digest(next, target.Digest{Name: src.Name, Fields: [][]byte{{1}}})
	with(func() { l.lists[src.Name].most = 1 })
	l.digest(next, target.Digest{Name: src.Name, Fields: [][]byte{{0, 0, 0, 0, 1, 1}, {1, 2}}})
	if got := to.take(); len(got) != 1 || binary.LittleEndian.Uint64(got[0][20:]) != 0 {
		t.Errorf("the new program's digest comes as %d messages", len(got))
	}
}
