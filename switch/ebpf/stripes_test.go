package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// The operations that packets of testdata/ledger.p4 request.
const (
	ledgerRead  = 0x1111
	ledgerWrite = 0x2222
	ledgerLimit = 0x3333
)

// wraps is an offset that changes an item but not its cells: four times (item + wraps) overflows to
// four times item.
const wraps = 1 << 30

func ledgerFrame(kind, account uint16, item uint32) []byte {
	frame := binary.BigEndian.AppendUint16(make([]byte, 12, 64), kind)
	frame = binary.BigEndian.AppendUint16(frame, account)
	frame = binary.BigEndian.AppendUint32(frame, item)
	return append(frame, make([]byte, 44)...)
}

// newLedger returns a switch with ledger.p4, compiled path by path. The program's packets may write
// to accounts below 512.
func newLedger(t *testing.T, unlocked bool) *device {
	t.Helper()
	d := newTestDevice(t)
	d.Settings.Unlocked = unlocked
	check(t, d.Commit(readProgram(t, "testdata/ledger.json")))
	check(t, d.pipeline.WriteRegister("LedgerIngress.limit", 0, []byte{0, 0, 0, 0, 0, 0, 2, 0}))
	if check(t, d.specialise(true)); !ByPaths(d) {
		t.Fatal("the program was not made by its paths")
	}
	return d
}

// cell returns the content of one register cell of ledger.p4.
func cell(t *testing.T, d *device, register string, index int) uint64 {
	t.Helper()
	b, err := d.pipeline.ReadRegister("LedgerIngress."+register, index)
	check(t, err)
	return binary.BigEndian.Uint64(b)
}

// cellsOf returns the sum of an item's cells.
func cellsOf(t *testing.T, d *device, item int) (sum uint64) {
	for i := range 4 {
		sum += cell(t, d, "cells", 4*item+i)
	}
	return sum
}

// TestStripes checks when packets wait for each other. A packet passes if another packet holds
// registers but shares no stripe with it. A packet that writes waits for any holder of one of its
// stripes. A packet that only reads waits only for a holder that writes. A packet that only reads a
// single register never waits.
func TestStripes(t *testing.T) {
	needUnlockedReads(t)
	d := newLedger(t, false)
	check(t, Stripe(d, true))
	p := d.pipeline
	run := func(kind, account uint16, item uint32) {
		t.Helper()
		_, err := p.TC.Run(&ebpf.RunOptions{Data: ledgerFrame(kind, account, item)})
		check(t, err)
	}
	locks := p.Locks()[1:]
	// a third of the locks for each register family: limit, account, and item with cells
	each := len(locks) / 3
	hold := func(family, number int, then func()) {
		at := locks[family*each+number%each]
		p.State.Store(at, 1)
		p.State.Store(at+8, p.State.Load(at+8)+1)
		then()
		p.State.Store(at+8, p.State.Load(at+8)+1)
		p.State.Store(at, 0)
	}
	written := 0
	expect := func(when string, want int) {
		t.Helper()
		got := int(p.State.Load(p.Registers[p.Prog.Register("LedgerIngress.item").Index].At(5)))
		if got != want {
			t.Errorf("%s: written %d times, not %d", when, got, want)
		}
		written = got
	}
	run(ledgerWrite, 3, 5)
	expect("nobody has stripes", 1)
	hold(1, 4, func() { run(ledgerWrite, 3, 5) })
	expect("another account is taken", 2)
	hold(2, 6, func() { run(ledgerWrite, 3, 5) })
	expect("another item is taken", 3)
	hold(0, 0, func() { run(ledgerWrite, 3, 5) })
	expect("the limit is taken, which is only read", 4)
	hold(1, 3, func() { run(ledgerWrite, 3, 5) })
	expect("the account is taken", 4)
	hold(2, 5, func() { run(ledgerWrite, 3, 5) })
	expect("the item is taken", 4)
	hold(2, 5+each, func() { run(ledgerWrite, 3, 5) })
	expect("an item of the same stripe is taken", 4)
	hold(1, 7, func() { run(ledgerWrite, 3, 5+wraps) })
	expect("any is taken, and the item has no stripe", 4)
	if n := cellsOf(t, d, 5); n != 4 {
		t.Errorf("the item's cells were written %d times", n)
	}
	run(ledgerWrite, 3, 5+wraps) // the item of this packet has cells, but no sum
	expect("an item without a stripe", written)
	if n := cellsOf(t, d, 5); n != 5 {
		t.Errorf("the item's cells were written %d times, not 5", n)
	}
	p.State.Store(p.Mode, memory.ModeBoth)
	run(ledgerWrite, 3, 5)
	expect("both are taken", written+1)
	hold(1, 7, func() { run(ledgerWrite, 3, 5) })
	expect("both are taken, and another one has a stripe", written)
	p.State.Store(p.Lock, 1)
	run(ledgerWrite, 3, 5)
	p.State.Store(p.Lock, 0)
	expect("both are taken, and another one has the one lock", written)
	p.State.Store(p.Mode, memory.ModeStripes)
	limit := func() uint64 { return p.State.Load(p.Registers[p.Prog.Register("LedgerIngress.limit").Index].Off) }
	before := limit()
	hold(0, 0, func() { run(ledgerLimit, 0, 0) })
	if limit() != before {
		t.Error("the limit is written though it is taken")
	}
	run(ledgerLimit, 0, 0)
	if limit() != before^1 {
		t.Error("the limit is not written")
	}
	for _, at := range p.Locks() {
		if p.State.Load(at) != 0 || p.State.Load(at+8)%2 != 0 {
			t.Fatalf("a lock stays, at %d", at)
		}
	}
	reads := func() uint64 {
		t.Helper()
		var sum uint64
		for i := range 2 {
			c, err := p.ReadCounter("LedgerIngress.found", i)
			check(t, err)
			sum += c.Packets
		}
		return sum
	}
	run(ledgerRead, 3, 5)
	hold(1, 4, func() { run(ledgerRead, 3, 5) })
	if n := reads(); n != 2 {
		t.Errorf("%d packets have read, not 2", n)
	}
	hold(1, 3, func() { run(ledgerRead, 3, 5) })
	hold(2, 5, func() { run(ledgerRead, 3, 5) })
	if n := reads(); n != 2 {
		t.Errorf("%d packets have read though one writes, not 2", n)
	}
	oldest := p.State.Load(p.Epoch + memory.OldestEpoch)
	p.State.Store(p.Epoch+memory.OldestEpoch, p.State.Load(p.Epoch)+1)
	run(ledgerRead, 3, 5)
	run(ledgerWrite, 3, 5)
	run(ledgerWrite, 3, 5+wraps)
	p.State.Store(p.Epoch+memory.OldestEpoch, oldest)
	expect("their epoch is over", written)
	if n := p.State.Load(p.Epoch + memory.EpochDropped); reads() != 2 || n != 3 {
		t.Errorf("of packets whose epoch is over %d have read, and %d are said to be dropped", reads()-2, n)
	}
	for _, at := range p.Locks() {
		if p.State.Load(at) != 0 || p.State.Load(at+8)%2 != 0 {
			t.Fatalf("a lock stays, at %d", at)
		}
	}
}

// TestStripesAreOneStep writes registers of two register families on two CPUs at once. The CPUs use
// the same account, the same item, the same stripe, or numbers without stripes, and the locking
// mode changes or stays. No write may be lost. Without locks some writes must be lost, which shows
// that the test can fail.
func TestStripesAreOneStep(t *testing.T) {
	needUnlockedReads(t)
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU: packets cannot meet")
	}
	const each = 200_000
	type numbers struct {
		account uint16
		item    uint32
	}
	// write returns how many writes are missing in one register or the other. The kernel repeats a
	// run that a signal interrupted. There may then be more writes than requested, but equally many
	// in all registers.
	write := func(d *device, a, b numbers) (lost uint64) {
		sums := func() (accounts, cells uint64) {
			seen := map[int]bool{}
			for _, w := range []numbers{a, b} {
				if i := int(w.account); !seen[i] {
					seen[i] = true
					accounts += cell(t, d, "account", i)
				}
			}
			clear(seen)
			for _, w := range []numbers{a, b} {
				if i := int(w.item % wraps); !seen[i] {
					seen[i] = true
					cells += cellsOf(t, d, i)
				}
			}
			return accounts, cells
		}
		accounts, cells := sums()
		onTwoCPUs(t, d, each, func(cpu int) []byte {
			w := []numbers{a, b}[cpu]
			return ledgerFrame(ledgerWrite, w.account, w.item)
		})
		nowAccounts, nowCells := sums()
		accounts, cells = nowAccounts-accounts, nowCells-cells
		most := max(accounts, cells, 2*each)
		return max(most-accounts, most-cells)
	}
	meet := map[string][2]numbers{"one account": {{1, 2}, {1, 3}}, "one item": {{1, 2}, {2, 2}},
		"one account and one item": {{1, 2}, {1, 2}},
		"crossing stripes":         {{1, 2}, {2, 1}},
		"no stripe":                {{1, 2}, {2, 2 + wraps}}}
	d := newLedger(t, false)
	for name, w := range meet {
		for _, stripes := range []bool{true, false} {
			check(t, Stripe(d, stripes))
			if lost := write(d, w[0], w[1]); lost != 0 {
				t.Errorf("%s, stripes: %v: %d writes are lost", name, stripes, lost)
			}
		}
		end, ended := make(chan bool), make(chan int)
		go func() {
			changes := 0
			for on := true; ; on = !on {
				select {
				case <-end:
					ended <- changes
					return
				default:
				}
				if err := Stripe(d, on); err != nil {
					t.Error(err)
				}
				changes++
			}
		}()
		if lost := write(d, w[0], w[1]); lost != 0 {
			t.Errorf("%s, while the mode changes: %d writes are lost", name, lost)
		}
		close(end)
		t.Logf("%s: the mode has changed %d times", name, <-ended)
	}
	unlocked := newLedger(t, true)
	if err := Stripe(unlocked, true); !errors.Is(err, target.ErrUnsupported) {
		t.Errorf("stripes without locks: %v", err)
	}
	for try := 0; ; try++ {
		if lost := write(unlocked, numbers{1, 2}, numbers{1, 3}); lost > 0 {
			t.Logf("without locks %d writes of %d are lost", lost, 2*each)
			break
		}
		if try == 10 {
			t.Fatal("without locks no write is lost, too: the test proves nothing")
		}
	}
}

// TestStripedReadsAreOneStep writes registers of two register families on one CPU and reads them on
// another. Each read must find equal values in both families, also while the locking mode changes.
func TestStripedReadsAreOneStep(t *testing.T) {
	needUnlockedReads(t)
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU: packets cannot meet")
	}
	count := func(unlocked bool, change func(*device)) (same, different uint64) {
		d := newLedger(t, unlocked)
		change(d)
		onTwoCPUs(t, d, 300_000, func(cpu int) []byte {
			return ledgerFrame([]uint16{ledgerWrite, ledgerRead}[cpu], 1, 2)
		})
		for i, n := range []*uint64{&same, &different} {
			c, err := d.pipeline.ReadCounter("LedgerIngress.found", i)
			check(t, err)
			*n = c.Packets
		}
		return same, different
	}
	for name, change := range map[string]func(*device){
		"the one lock": func(*device) {},
		"stripes":      func(d *device) { check(t, Stripe(d, true)) },
		"changing": func(d *device) {
			go func() {
				for on := true; Stripe(d, on) == nil; on = !on {
				}
			}()
		},
	} {
		if same, different := count(false, change); same == 0 || different > 0 {
			t.Errorf("%s: %d packets found the same in both registers, %d did not", name, same, different)
		}
	}
	for try := 0; ; try++ {
		if _, different := count(true, func(*device) {}); different > 0 {
			t.Logf("without locks %d packets find something else in one than in the other", different)
			break
		}
		if try == 10 {
			t.Fatal("without locks all packets find the same, too: the test proves nothing")
		}
	}
}

// TestControlPlaneTakesStripes checks the control plane against a packet that holds the first or
// the last stripe. The control plane must wait for the packet before it accesses registers and
// before a table change becomes final.
func TestControlPlaneTakesStripes(t *testing.T) {
	needUnlockedReads(t)
	d := newLedger(t, false)
	check(t, Stripe(d, true))
	p := d.pipeline
	for _, at := range []int{p.Locks()[1], p.Locks()[len(p.Locks())-1]} {
		p.State.Store(at, 1)
		if _, err := p.ReadRegister("LedgerIngress.item", 1); err == nil {
			t.Error("the control plane reads though a packet has a stripe")
		}
		done := make(chan error, 1)
		go func() { done <- p.Barrier() }()
		select {
		case err := <-done:
			t.Errorf("a change did not wait: %v", err)
			p.State.Store(at, 0)
		case <-time.After(3 * time.Millisecond):
			p.State.Store(at, 0)
			check(t, <-done)
		}
	}
	for _, at := range p.Locks() {
		if p.State.Load(at) != 0 || p.State.Load(at+8)%2 != 0 {
			t.Fatalf("a lock stays, at %d", at)
		}
	}
	check(t, p.WriteRegister("LedgerIngress.item", 1, []byte{0, 0, 0, 0, 0, 0, 0, 7}))
	if n := cell(t, d, "item", 1); n != 7 {
		t.Errorf("the control plane has written 7 and reads %d", n)
	}
}

// TestStripesLikeInterp runs the same frames on the interpreter and in the kernel. In the kernel it
// runs them with the global lock and with stripes.
func TestStripesLikeInterp(t *testing.T) {
	needUnlockedReads(t)
	eachHook(t, "ledger", func(t *testing.T, h Hook) {
		prog := readProgram(t, "testdata/ledger.json")
		in, err := interp.New(prog, interp.Options{})
		check(t, err)
		c, err := newCaptured(t, prog, h)
		check(t, err)
		for _, p := range []interface {
			WriteRegister(name string, index int, value []byte) error
		}{in, c.pipeline} {
			check(t, p.WriteRegister("LedgerIngress.limit", 0, []byte{0, 0, 0, 0, 0, 0, 0, 4}))
		}
		check(t, c.specialise(true))
		r := rand.New(rand.NewPCG(1, 2))
		for n := range 600 {
			if n%150 == 0 {
				check(t, Stripe(c.device, n%300 == 0))
			}
			kinds := []uint16{ledgerRead, ledgerWrite, ledgerWrite, ledgerLimit, 1}
			frame := ledgerFrame(kinds[r.IntN(len(kinds))], uint16(r.IntN(6)),
				uint32(r.IntN(3))+[]uint32{0, 0, 255, wraps, 2 * wraps}[r.IntN(5)])
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
		for _, reg := range prog.Registers {
			want, err := in.ReadRegisters(reg.Name, 0, reg.Size)
			check(t, err)
			got, err := c.pipeline.ReadRegisters(reg.Name, 0, reg.Size)
			check(t, err)
			for i := range want {
				if !bytes.Equal(want[i], got[i]) {
					t.Errorf("%s[%d]: interp %x, kernel %x", reg.Name, i, want[i], got[i])
				}
			}
		}
	})
}

// TestStripesWherePacketsMeet checks that a switch changes to stripes only when packets have waited
// for each other. It must change back to the global lock when it recompiles the program without
// stripes.
func TestStripesWherePacketsMeet(t *testing.T) {
	needUnlockedReads(t)
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU: packets cannot meet")
	}
	d := newLedger(t, false)
	p := d.pipeline
	_, err := p.TC.Run(&ebpf.RunOptions{Data: ledgerFrame(ledgerWrite, 1, 2), Repeat: 20_000})
	check(t, err)
	check(t, d.stripeIfMeeting())
	if p.Striped() {
		t.Fatal("there are stripes though no packet has met another one")
	}
	for try := 0; !p.Striped(); try++ {
		if try == 20 {
			t.Fatal("packets have met and there are no stripes")
		}
		onTwoCPUs(t, d, 200_000, func(cpu int) []byte {
			return ledgerFrame(ledgerWrite, uint16(cpu), uint32(cpu))
		})
		check(t, d.stripeIfMeeting())
	}
	p.Forget()
	if check(t, d.specialise(true)); !p.Striped() {
		t.Error("a program that knows stripes goes without")
	}
	p.Forget()
	p.Settings.Refused = true
	if check(t, d.specialise(true)); ByPaths(d) || p.Striped() {
		t.Errorf("by paths: %v, stripes: %v, where the kernel refuses a program by its paths", ByPaths(d),
			p.Striped())
	}
	if err := Stripe(d, true); !errors.Is(err, target.ErrUnsupported) {
		t.Errorf("stripes for a program that knows none: %v", err)
	}
	other := newTestDevice(t)
	check(t, other.Commit(readProgram(t, "testdata/indirect.json")))
	check(t, other.specialise(true))
	if err := Stripe(other, true); !errors.Is(err, target.ErrUnsupported) {
		t.Errorf("stripes for a program whose packets' cells are not known before: %v", err)
	}
}

// TestRows checks the registers of one family whose cells lie in one row. The cells must keep the
// values that the control plane and packets write to them in every possible way. Each row must have
// its own cache lines.
func TestRows(t *testing.T) {
	needUnlockedReads(t)
	d := newTestDevice(t)
	prog := netcraq(t, 128)
	check(t, d.Commit(prog))
	p := d.pipeline
	in, err := interp.New(prog, interp.Options{})
	check(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	lines := map[int]int{} // cache line -> 1 + the session that uses the line
	for _, reg := range prog.Registers {
		if a := p.Registers[reg.Index]; strings.Contains(reg.Name, ".session_") {
			for i := range reg.Size {
				line := a.At(i) / 64
				if (a.At(i)+a.Cell-1)/64 != line || lines[line] != 0 && lines[line] != i+1 {
					t.Fatalf("%s[%d] shares the line of session %d", reg.Name, i, lines[line]-1)
				}
				lines[line] = i + 1
			}
		}
		value := func() []byte {
			b := make([]byte, (reg.Width+7)/8)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		}
		all, one, at := value(), value(), r.IntN(reg.Size)
		for _, e := range []interface {
			FillRegister(name string, value []byte) error
			WriteRegister(name string, index int, value []byte) error
		}{in, p} {
			check(t, e.FillRegister(reg.Name, all))
			check(t, e.WriteRegister(reg.Name, at, one))
		}
	}
	if len(lines) != 4096 {
		t.Errorf("4096 sessions are in %d cache lines", len(lines))
	}
	for _, reg := range prog.Registers {
		for _, part := range [][2]int{{0, reg.Size}, {1, 32}, {reg.Size - 33, 33}, {7, 0}} {
			want, err := in.ReadRegisters(reg.Name, part[0], part[1])
			check(t, err)
			got, err := p.ReadRegisters(reg.Name, part[0], part[1])
			check(t, err)
			if len(got) != len(want) {
				t.Fatalf("%s: %d cells instead of %d", reg.Name, len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("%s[%d]: %x instead of %x", reg.Name, part[0]+i, got[i], want[i])
				}
			}
		}
	}
}
