package ebpf

import (
	"encoding/binary"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

func readProgram(t testing.TB, file string) *bmv2json.Program {
	t.Helper()
	prog, err := bmv2json.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// TestRegistersAreAtomic runs a program on two CPUs at once. The program reads a register, looks up
// a table, and writes the register plus one. It runs as loaded, and recompiled path by path. With
// the lock, no increment may be lost. Without the lock, some increments must be lost, which shows
// that the test can fail.
func TestRegistersAreAtomic(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("there is one CPU: packets cannot meet")
	}
	const each = 300000
	count := func(unlocked, paths bool) uint32 {
		d := newTestDevice(t)
		d.Settings.Unlocked = unlocked
		if err := d.Commit(readProgram(t, "testdata/tally.json")); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 64)
		frame[0] = 2
		err := d.pipeline.InsertEntry("TallyIngress.where",
			&target.TableEntry{Match: []target.FieldMatch{{Value: []byte{2, 0, 0, 0, 0, 0}}},
				Action: &target.ActionCall{Action: "TallyIngress.forward",
					Params: [][]byte{{0, 1}, {0, 0, 0, 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		if paths {
			check(t, d.specialise(true))
		}
		if ByPaths(d) != paths {
			t.Fatalf("whether the program was made by its paths is not %v", paths)
		}
		onTwoCPUs(t, d, each, func(int) []byte { return frame })
		b, err := d.pipeline.ReadRegister("TallyIngress.tally", 0)
		if err != nil {
			t.Fatal(err)
		}
		return binary.BigEndian.Uint32(b)
	}
	for _, paths := range []bool{false, true} {
		if got := count(false, paths); got < 2*each {
			t.Errorf("by paths: %v: %d packets counted of %d", paths, got, 2*each)
		}
		// If two CPUs never run at the same time, nothing is lost, so the test tries several times.
		for try := 0; ; try++ {
			if got := count(true, paths); got < 2*each {
				t.Logf("without the lock %d packets are counted of %d", got, 2*each)
				break
			}
			if try == 10 {
				t.Error("without the lock all packets are counted, too: the test proves nothing")
				break
			}
		}
	}
}

// onTwoCPUs runs a device's program on two CPUs at the same time. Each CPU runs it repeatedly with
// its own frame.
func onTwoCPUs(t *testing.T, d *device, times uint32, frame func(cpu int) []byte) {
	t.Helper()
	var done sync.WaitGroup
	for cpu := range 2 {
		done.Go(func() {
			// The goroutine never unlocks the thread, so the thread ends with it.
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
			}
			if _, err := d.pipeline.TC.Run(&ebpf.RunOptions{Data: frame(cpu), Repeat: times}); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}
