package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/interp"
)

// pairFrame returns a frame that reads or writes the registers of testdata/pair.p4 at an index.
func pairFrame(write bool, index byte, value []byte) []byte {
	frame := make([]byte, 14, 14+64)
	frame[11] = index
	binary.BigEndian.PutUint16(frame[12:], 0x1111)
	if write {
		binary.BigEndian.PutUint16(frame[12:], 0x2222)
	}
	return append(frame, value...)
}

// found returns how many packets have read equal values from both registers, and how many have read
// different values.
func found(t *testing.T, d *device) (same, different uint64) {
	t.Helper()
	for i, n := range []*uint64{&same, &different} {
		c, err := d.pipeline.ReadCounter("PairIngress.found", i)
		check(t, err)
		*n = c.Packets
	}
	return same, different
}

func needUnlockedReads(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("on this processor all packets take the lock")
	}
}

// TestReadsWithoutLock checks packets that only read registers. Such a packet must pass while
// another packet holds the registers. It must not pass while the registers are being written, or
// after its epoch has ended.
func TestReadsWithoutLock(t *testing.T) {
	needUnlockedReads(t)
	d := newTestDevice(t)
	check(t, d.Commit(readProgram(t, "testdata/pair.json")))
	check(t, d.specialise(true))
	if !ByPaths(d) {
		t.Fatal("the program was not made by its paths")
	}
	p := d.pipeline
	read := func() {
		t.Helper()
		_, err := p.TC.Run(&ebpf.RunOptions{Data: pairFrame(false, 3, make([]byte, 64))})
		check(t, err)
	}
	expect := func(when string, want uint64) {
		t.Helper()
		if same, different := found(t, d); same != want || different != 0 {
			t.Fatalf("%s: %d and %d packets have read, not %d", when, same, different, want)
		}
	}
	read()
	expect("free", 1)
	p.State.Store(p.Lock, 1)
	read()
	expect("another packet has the registers", 2)
	p.State.Store(p.Lock+8, p.State.Load(p.Lock+8)+1)
	read() // the read waits for the lock and gives up in the end
	expect("another packet writes", 2)
	p.State.Store(p.Lock+8, p.State.Load(p.Lock+8)+1)
	p.State.Store(p.Lock, 0)
	read()
	expect("free again", 3)
	oldest := p.State.Load(p.Epoch + memory.OldestEpoch)
	p.State.Store(p.Epoch+memory.OldestEpoch, p.State.Load(p.Epoch)+1)
	read()
	expect("its epoch is over", 3)
	if n := p.State.Load(p.Epoch + memory.EpochDropped); n != 1 {
		t.Errorf("%d packets are said to be dropped", n)
	}
	p.State.Store(p.Epoch+memory.OldestEpoch, oldest)
	version := p.State.Load(p.Lock + 8)
	_, err := p.TC.Run(&ebpf.RunOptions{Data: pairFrame(true, 3, make([]byte, 64))})
	check(t, err)
	check(t, p.WriteRegister("PairIngress.left", 3, make([]byte, 8)))
	if _, err := p.ReadRegister("PairIngress.left", 3); err != nil {
		t.Fatal(err)
	}
	if now := p.State.Load(p.Lock + 8); now != version+4 {
		t.Errorf("a packet's write and the control plane's make version %d of %d", now, version)
	}
}

// TestReadsAreOneStep writes two registers in packets on one CPU, and reads them in packets on
// another CPU. The reads must find equal values. Without locks some must find different values,
// which shows that the test can fail.
func TestReadsAreOneStep(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU: packets cannot meet")
	}
	const each = 300_000
	count := func(unlocked, stripes bool) (same, different uint64) {
		d := newTestDevice(t)
		d.Settings.Unlocked = unlocked
		check(t, d.Commit(readProgram(t, "testdata/pair.json")))
		check(t, d.specialise(true))
		if stripes {
			needUnlockedReads(t)
			check(t, Stripe(d, true))
		}
		onTwoCPUs(t, d, each, func(cpu int) []byte {
			return pairFrame(cpu == 0, 0, make([]byte, 64))
		})
		return found(t, d)
	}
	for _, stripes := range []bool{false, true} {
		if same, different := count(false, stripes); same == 0 || different > 0 {
			t.Errorf("stripes: %v: %d packets found the same in both registers, %d did not", stripes,
				same, different)
		}
	}
	// If two CPUs never run at the same time, no difference appears, so the test tries several
	// times.
	for try := 0; ; try++ {
		if same, different := count(true, false); different > 0 {
			t.Logf("without the lock %d packets of %d find something else in one than in the other",
				different, same+different)
			break
		}
		if try == 10 {
			t.Error("without the lock all packets find the same, too: the test proves nothing")
			break
		}
	}
}

// TestReadsPutBack runs reads and writes on the interpreter and in the kernel, with three forms of
// the program. The first form is the program as loaded, and the second is compiled path by path. In
// the third form, another write overtakes each read, so that the read repeats with the lock.
// Outgoing frames and counters must be equal.
func TestReadsPutBack(t *testing.T) {
	eachHook(t, "pair", func(t *testing.T, h Hook) {
		prog := readProgram(t, "testdata/pair.json")
		in, err := interp.New(prog, interp.Options{})
		check(t, err)
		c, err := newCaptured(t, prog, h)
		check(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		// At this index the two registers differ, but an overtaken packet first reads equal values.
		// So the program must undo the changes that it has already made to the frame.
		for _, p := range []interface {
			WriteRegister(name string, index int, value []byte) error
		}{in, c.pipeline} {
			check(t, p.WriteRegister("PairIngress.left", 9, []byte{0, 0, 0, 0, 0, 0, 0, 1 ^ 2}))
		}
		for n := range 600 {
			if n%200 == 100 {
				check(t, Overtake(c.device, n < 200))
				if runtime.GOARCH == "amd64" && n > 200 {
					check(t, Stripe(c.device, n < 400))
				}
				if check(t, c.specialise(true)); !ByPaths(c.device) {
					t.Fatal("the program was not made by its paths")
				}
			}
			value := make([]byte, 64)
			for i := range value {
				value[i] = byte(r.Uint32())
			}
			frame := pairFrame(r.IntN(2) == 0, byte(r.IntN(4)), value)
			if r.IntN(4) == 0 {
				frame = pairFrame(false, 9, value)
			}
			switch r.IntN(8) {
			case 0:
				frame = frame[:14+r.IntN(64)] // the parser stops before the value
			case 1:
				frame = append(frame, value[:r.IntN(64)]...)
			case 2:
				frame[12] = byte(r.Uint32()) // the operation is neither a read nor a write
			}
			var want, got []string
			for _, o := range in.Process(time.Second, 1, bytes.Clone(frame)) {
				want = append(want, fmt.Sprintf("%d %x", o.Port, o.Frame))
			}
			packets, err := c.process(1, bytes.Clone(frame), len(want))
			check(t, err)
			for _, p := range packets {
				got = append(got, fmt.Sprintf("%d %x", p.Port, p.Frame))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("frame %d, %x:\ninterp %v\nkernel %v", n, frame, want, got)
			}
		}
		for i := range 2 {
			want, err := in.ReadCounter("PairIngress.found", i)
			check(t, err)
			got, err := c.pipeline.ReadCounter("PairIngress.found", i)
			check(t, err)
			if want != got || got.Packets == 0 {
				t.Errorf("counter %d: interp %+v, kernel %+v", i, want, got)
			}
		}
	})
}

// TestRefusedByPaths simulates that the kernel's verifier refuses the program that is compiled path
// by path. The switch must continue with a program that is only compiled for its tables' content,
// and must not try the paths again.
func TestRefusedByPaths(t *testing.T) {
	d := tallyDevice(t, true)
	p := d.pipeline
	p.Settings.Refused = true
	check(t, p.InsertEntry(tallyTable, tallyEntry(2, 20)))
	for i, by := range []uint32{20, 30} {
		before := p.TC
		check(t, d.specialise(true))
		if p.TC == before {
			t.Fatalf("%d: the program was not made anew for its table", i)
		}
		if ByPaths(d) {
			t.Fatalf("%d: the kernel has taken a program that it must refuse", i)
		}
		if got := tallied(t, d, 2); got != by {
			t.Errorf("%d: a frame meets %d instead of %d", i, got, by)
		}
		check(t, p.ModifyEntry(tallyTable, tallyEntry(2, 30)))
		if got := tallied(t, d, 2); got != 30 {
			t.Errorf("%d: after a change a frame meets %d instead of 30", i, got)
		}
		// Even after this reset, the switch does not try the paths again.
		p.Settings.Refused = false
	}
}
