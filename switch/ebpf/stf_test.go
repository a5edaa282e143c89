package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// TestSTF runs the project's STF files on this engine, on real interfaces at both hooks. It skips
// programs that the engine does not support.
func TestSTF(t *testing.T) {
	needKernel(t)
	for _, hook := range []Hook{HookTC, HookXDP} {
		for _, file := range programFiles(t) {
			text, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".stf")
			if err != nil {
				continue
			}
			for _, paths := range []bool{false, true} {
				name := hook.String() + "/" + filepath.Base(file)
				if paths {
					name += "/paths"
				}
				t.Run(name, func(t *testing.T) {
					report(t, runSTF(t, hook, file, text, paths))
				})
			}
		}
	}
}

// runSTF runs a file's frames through a program and returns the differences from the file's
// expectations. If paths is set, the program is recompiled for its tables' content and path by
// path.
func runSTF(t *testing.T, hook Hook, file string, text []byte, paths bool) []string {
	f, err := stf.Parse(file, text)
	check(t, err)
	var ports []uint32
	for _, c := range f.Commands {
		if (c.Verb == "packet" || c.Verb == "expect") && !slices.Contains(ports, c.Port) {
			ports = append(ports, c.Port)
		}
	}
	c := newCables(t, ports)
	d, err := newDevice(Options{Hook: hook, general: true})
	check(t, err)
	defer d.Close()
	err = d.Commit(readProgram(t, file))
	if errors.Is(err, target.ErrUnsupported) {
		t.Skip(err)
	}
	check(t, err)
	for _, n := range ports {
		check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
		if q := d.ports[n]; (q.At == HookXDP) != (hook == HookXDP) {
			t.Fatalf("port %d is at %v: %s", n, q.At, q.reason)
		}
	}
	begun := time.Now()
	// expected is how many frames the file expects before each packet that follows. The test waits
	// for them, because frames arrive late on a busy machine.
	var expected []int
	count := 0
	for _, command := range f.Commands {
		switch command.Verb {
		case "packet":
			expected = append(expected, count)
		case "expect":
			count++
		}
	}
	expected = append(expected, count)
	sent, came := 0, 0
	differences, err := stf.Run(f, stf.Switch{Pipeline: d.Pipeline(),
		Process: func(now time.Duration, port uint32, frame []byte) []stf.Packet {
			// The file may advance its clock, so the test waits until the kernel's clock has caught
			// up.
			time.Sleep(now - time.Since(begun))
			if paths {
				check(t, d.specialise(true))
			}
			if _, err := unix.Write(c.sockets[port], frame); err != nil {
				t.Fatalf("sending %x by port %d: %v", frame, port, err)
			}
			sent++
			out := c.takeWithin(t, expected[sent]-came, 2*time.Second)
			came += len(out)
			return out
		}})
	check(t, err)
	return differences
}

func report(t *testing.T, differences []string) {
	t.Helper()
	for _, d := range differences {
		t.Error(d)
	}
}
