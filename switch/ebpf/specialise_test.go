package ebpf

import (
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/target"
)

const tallyTable = "TallyIngress.where"

// tallyEntry returns an entry that sends a destination's frames to a port and adds by to the
// register.
func tallyEntry(destination byte, by uint32) *target.TableEntry {
	return &target.TableEntry{
		Match: []target.FieldMatch{{Value: []byte{destination, 0, 0, 0, 0, 0}}},
		Action: &target.ActionCall{Action: "TallyIngress.forward",
			Params: [][]byte{{0, 1}, {0, 0, 0, byte(by)}}}}
}

// tallied runs a frame and returns the increase of the register. The increase is the parameter of
// the entry that the frame hits, or 1 if the frame hits no entry.
func tallied(t *testing.T, d *device, destination byte) uint32 {
	t.Helper()
	read := func() uint32 {
		b, err := d.pipeline.ReadRegister("TallyIngress.tally", 0)
		check(t, err)
		return uint32(b[2])<<8 | uint32(b[3])
	}
	before := read()
	frame := make([]byte, 64)
	frame[0] = destination
	if _, err := d.pipeline.TC.Run(&ebpf.RunOptions{Data: frame}); err != nil {
		t.Fatal(err)
	}
	return read() - before
}

func tallyDevice(t *testing.T, general bool) *device {
	t.Helper()
	needKernel(t)
	d, err := newDevice(Options{CPUPort: 510, general: general})
	check(t, err)
	t.Cleanup(func() { d.Close() })
	check(t, d.Commit(readProgram(t, "testdata/tally.json")))
	return d
}

// TestKnownTables changes a table after a program was compiled for its earlier content. Each packet
// must use the table's present content.
func TestKnownTables(t *testing.T) {
	d := tallyDevice(t, true)
	p := d.pipeline
	meets := func(destination byte, want uint32, when string) {
		t.Helper()
		if got := tallied(t, d, destination); got != want {
			t.Errorf("%s: destination %d meets %d instead of %d", when, destination, got, want)
		}
	}
	check(t, p.InsertEntry(tallyTable, tallyEntry(2, 20)))
	check(t, p.InsertEntry(tallyTable, tallyEntry(4, 40)))
	general := p.TC
	check(t, d.specialise(true))
	if p.TC == general {
		t.Fatal("the program was not made anew")
	}
	known := p.TC
	for _, when := range []string{"known", "again"} {
		meets(2, 20, when)
		meets(4, 40, when)
		meets(6, 1, when)
		check(t, d.specialise(true))
		if p.TC != known {
			t.Fatal("the program was made anew though nothing has changed")
		}
	}
	check(t, p.ModifyEntry(tallyTable, tallyEntry(2, 21)))
	meets(2, 21, "modified")
	meets(4, 40, "modified")
	check(t, p.DeleteEntry(tallyTable, tallyEntry(4, 0)))
	meets(4, 1, "deleted")
	check(t, p.InsertEntry(tallyTable, tallyEntry(6, 60)))
	meets(6, 60, "inserted")
	if p.TC != known {
		t.Fatal("the program was made anew by itself")
	}
	check(t, d.specialise(true))
	if p.TC == known {
		t.Fatal("the program was not made anew for the changes")
	}
	meets(2, 21, "anew")
	meets(4, 1, "anew")
	meets(6, 60, "anew")
	for i := range byte(60) { // too many ranges for a compiled chain of comparisons
		check(t, p.InsertEntry(tallyTable, tallyEntry(byte(100+2*i), uint32(i))))
	}
	check(t, d.specialise(true))
	meets(100+2*59, 59, "many")
	meets(2, 21, "many")
}

// TestKnownTablesByThemselves checks that the switch recompiles the program once a table has
// stopped changing.
func TestKnownTablesByThemselves(t *testing.T) {
	d := tallyDevice(t, false)
	first := d.pipeline.TC
	check(t, d.pipeline.InsertEntry(tallyTable, tallyEntry(2, 20)))
	program := func() *ebpf.Program {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.pipeline.TC
	}
	began := time.Now()
	for program() == first {
		if time.Since(began) > 30*time.Second {
			t.Fatal("the program was not made anew")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(began); took < 700*time.Millisecond {
		t.Errorf("the table was left alone for %v only", took)
	}
	// Another program takes over completely. It is not compiled for any table content yet.
	check(t, d.Commit(readProgram(t, "testdata/tally.json")))
	if got := tallied(t, d, 2); got != 1 {
		t.Errorf("the new program's table is empty, and a frame met %d", got)
	}
}

// TestKnownTablesUnderLoad changes an entry repeatedly while packets pass on another CPU and the
// switch recompiles the program. After each change no packet may use the earlier entry.
func TestKnownTablesUnderLoad(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU")
	}
	d := tallyDevice(t, true)
	check(t, d.pipeline.InsertEntry(tallyTable, tallyEntry(2, 20)))
	end, ended := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for running := true; running && err == nil; {
			select {
			case <-end:
				running = false
			default:
				err = d.specialise(true)
			}
		}
		ended <- err
	}()
	for i := range 400 {
		by := uint32(2 + i%200)
		check(t, d.pipeline.ModifyEntry(tallyTable, tallyEntry(2, by)))
		check(t, d.pipeline.Barrier())
		if got := talliedBy(t, d, 2); got != by {
			t.Errorf("change %d: a frame met %d instead of %d", i, got, by)
		}
	}
	close(end)
	check(t, <-ended)
}

// talliedBy does what tallied does, for a program that may be replaced meanwhile.
func talliedBy(t *testing.T, d *device, destination byte) (got uint32) {
	t.Helper()
	// The switch replaces programs on this thread.
	check(t, d.netns.Do(func() error { got = tallied(t, d, destination); return nil }))
	return got
}
