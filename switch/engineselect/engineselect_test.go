package engineselect

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// fake is an Engine that refuses certain programs by name.
type fake struct {
	name   string
	refuse map[string]bool
	ports  map[uint32]target.Port
	pipe   target.Pipeline
	closed bool
	broken bool // if set, the engine refuses ports
}

type fakePipeline struct {
	target.Pipeline
	prog *bmv2json.Program
}

func newFake(name string, refuse ...string) *fake {
	f := &fake{name: name, refuse: map[string]bool{}, ports: map[uint32]target.Port{}}
	for _, r := range refuse {
		f.refuse[r] = true
	}
	return f
}

func (f *fake) Engine() string { return f.name }
func (f *fake) Verify(p *bmv2json.Program) error {
	if f.refuse[p.Name] {
		return target.ErrUnsupported
	}
	return nil
}
func (f *fake) Commit(p *bmv2json.Program) error { return errors.New("not called") }
func (f *fake) Prepare(p *bmv2json.Program) (target.Pipeline, error) {
	return &fakePipeline{prog: p}, f.Verify(p)
}
func (f *fake) Activate(p target.Pipeline, handOver func() error) error {
	if handOver != nil {
		if err := handOver(); err != nil {
			return err
		}
	}
	f.pipe = p
	return nil
}
func (f *fake) Pipeline() target.Pipeline { return f.pipe }
func (f *fake) AddPort(p target.Port) error {
	if f.broken {
		return target.ErrInvalid
	}
	f.ports[p.Number] = p
	return nil
}
func (f *fake) RemovePort(n uint32) error                  { delete(f.ports, n); return nil }
func (f *fake) Ports() map[target.Port]target.PortCounters { return nil }
func (f *fake) PacketOut([]byte) error                     { return nil }
func (f *fake) OnPacketIn(func([]byte))                    {}
func (f *fake) OnDigest(func(target.Digest))               {}
func (f *fake) Now() time.Duration                         { return 0 }
func (f *fake) Close() error                               { f.closed = true; return nil }

func TestPortsFollowTheProgram(t *testing.T) {
	fast, slow := newFake("fast", "hard", "impossible"), newFake("slow", "impossible")
	d := New(fast, slow, nil)
	for n := range uint32(3) {
		if err := d.AddPort(target.Port{Number: n}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(step, engine string, on, off *fake) {
		t.Helper()
		if d.Engine() != engine || len(on.ports) != 3 || len(off.ports) != 0 ||
			d.Pipeline() != on.pipe {
			t.Fatalf("%s: %s with %d ports, the other has %d", step, d.Engine(), len(on.ports),
				len(off.ports))
		}
	}
	commit := func(name string) error { return d.Commit(&bmv2json.Program{Name: name}) }
	if err := commit("easy"); err != nil {
		t.Fatal(err)
	}
	expect("easy", "fast", fast, slow)
	if err := commit("hard"); err != nil {
		t.Fatal(err)
	}
	expect("hard", "slow (not supported)", slow, fast)
	if err := commit("impossible"); !errors.Is(err, target.ErrUnsupported) {
		t.Fatalf("a program that neither engine runs: %v", err)
	}
	expect("impossible", "slow (not supported)", slow, fast)
	p, err := d.Prepare(&bmv2json.Program{Name: "easy"})
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("no")
	if err := d.Activate(p, func() error { return failed }); !errors.Is(err, failed) {
		t.Fatalf("a hand-over that fails: %v", err)
	}
	expect("failed hand-over", "slow (not supported)", slow, fast)
	fast.broken = true
	if err := d.Activate(p, nil); err == nil {
		t.Fatal("ports were moved to an engine that takes none")
	}
	expect("failed move", "slow (not supported)", slow, fast)
	fast.broken = false
	if err := d.Activate(p, nil); err != nil {
		t.Fatal(err)
	}
	expect("easy again", "fast", fast, slow)
	if err := d.Close(); err != nil || !fast.closed || !slow.closed {
		t.Fatal("not all is closed")
	}
}

// paced is a fake engine with queues.
type paced struct {
	*fake
	rates []uint64
}

func (p *paced) SetQueueDepth(*uint32, *int, int) error { return target.ErrInvalid }
func (p *paced) SetQueueRate(_ *uint32, _ *int, rate uint64) error {
	p.rates = append(p.rates, rate)
	return nil
}

// TestQueues sets queues of the running engine. An engine without queues must return an error.
func TestQueues(t *testing.T) {
	fast, slow := newFake("fast", "hard"), &paced{fake: newFake("slow")}
	d := New(fast, slow, nil)
	if err := d.SetQueueRate(nil, nil, 5); !errors.Is(err, target.ErrUnsupported) ||
		!strings.Contains(err.Error(), "fast, which has no queues") {
		t.Errorf("a rate where there are no queues: %v", err)
	}
	if err := d.Commit(&bmv2json.Program{Name: "hard"}); err != nil {
		t.Fatal(err)
	}
	if err := d.SetQueueRate(nil, nil, 6); err != nil || !slices.Equal(slow.rates, []uint64{6}) {
		t.Errorf("a rate: %v, and %v were set", err, slow.rates)
	}
	if err := d.SetQueueDepth(nil, nil, 6); !errors.Is(err, target.ErrInvalid) {
		t.Errorf("a depth that is refused: %v", err)
	}
}
