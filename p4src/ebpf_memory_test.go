package p4src

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/racedetector"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// memoryMost is the maximum memory of a switch, in bytes.
const memoryMost = 256 << 20

// TestMemory fills every slot of a switch with a key and every cell with a value, and then adds up
// the memory. It adds this process's resident memory and the memory that the kernel charges to the
// BPF maps and programs. Memory that is mapped by the process counts twice, so the sum is an upper
// bound.
func TestMemory(t *testing.T) {
	if err := ebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	if racedetector.Enabled {
		t.Skip("with the race detector the process takes several times as much: make test runs this without it, too")
	}
	for _, c := range []struct{ profile, slots int }{{128, 65536}, {8192, 8192}} {
		t.Run(fmt.Sprintf("%d-bits", c.profile), func(t *testing.T) {
			k := newKernel(t, c.profile, ebpf.HookAuto)
			s := &scenario{open: func(*testing.T, int) device { return k }}
			check(t, s.command(t, nil, fmt.Sprintf("switch profile=%d", c.profile)))
			for n := range c.slots {
				check(t, s.command(t, nil, fmt.Sprintf("slot %#08x %d", 0x01000000+n, n)))
			}
			p := k.device.Pipeline()
			for _, r := range p.Program().Registers {
				value := make([]byte, (r.Width+7)/8)
				value[len(value)-1] = 1
				check(t, p.FillRegister(r.Name, value))
				if strings.HasSuffix(r.Name, "objects_length") && r.Size < c.slots {
					t.Fatalf("%s has %d cells, fewer than %d slots", r.Name, r.Size, c.slots)
				}
			}
			debug.FreeOSMemory() // free the garbage of the test itself
			process, kernel := residentBytes(t), bpfBytes(t)
			t.Logf("%d slots of %d bits: process %d MB + BPF maps and programs %d MB", c.slots, c.profile, process>>20, kernel>>20)
			if process == 0 || kernel == 0 {
				t.Fatal("nothing was measured")
			}
			if process+kernel > memoryMost {
				t.Errorf("%d MB in all, more than %d", (process+kernel)>>20, memoryMost>>20)
			}
		})
	}
}

// field returns the number after a name in a text that has lines "name: number ...".
func field(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

func residentBytes(t *testing.T) int64 {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	check(t, err)
	n, _ := field(string(text), "Rss")
	return n << 10
}

// bpfBytes returns the bytes that the kernel charges to the maps and programs that this process has
// open. Each map and program counts once.
func bpfBytes(t *testing.T) (sum int64) {
	files, err := os.ReadDir("/proc/self/fdinfo")
	check(t, err)
	seen := map[string]bool{}
	for _, f := range files {
		b, err := os.ReadFile("/proc/self/fdinfo/" + f.Name())
		if err != nil {
			continue // the descriptor was closed since the folder was read, as the folder's own descriptor is
		}
		text := string(b)
		memlock, ok := field(text, "memlock")
		if !ok {
			continue
		}
		for _, kind := range []string{"map_id", "prog_id"} {
			if id, ok := field(text, kind); ok {
				if key := fmt.Sprint(kind, id); !seen[key] {
					seen[key] = true
					sum += memlock
				}
			}
		}
	}
	return sum
}
