package ebpf

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/netdump"
)

// TestFeatures asks for a veth's XDP features: natively it always runs programs, and it takes
// frames from them once its peer has a program.
func TestFeatures(t *testing.T) {
	sw, _ := inNamespace(t)
	f, err := netdump.XDPFeatures(sw.Attrs().Index)
	if err != nil {
		t.Fatal(err)
	}
	if f&netdump.RunsXDP == 0 || f&netdump.TakesXDP != 0 {
		t.Errorf("a veth without programs has the features %#x", f)
	}
}

// TestOutOfDescriptors: a switch that has no file descriptor left cannot look at its interfaces,
// which says nothing about them. Its ports stay what they are, and the log says what to do.
func TestOutOfDescriptors(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCables(t, []uint32{1, 2})
			var said bytes.Buffer
			opts.Log = slog.New(slog.NewTextHandler(&said, nil))
			d := startHooks(t, opts, 1, 2)
			d.watcher.stop() // it looks when it is told to
			said.Reset()
			withoutDescriptors(t, func() {
				for range 3 {
					d.reconcile()
				}
			})
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, q := range d.ports {
				if q.missing {
					t.Errorf("port %d is gone", q.Number)
				}
			}
			f := hooksFrame(2, 100)
			_, err := unix.Write(c.sockets[1], f)
			check(t, err)
			if got, want := c.take(t, 1), hooksWant(f, 1); show(got) != show(want) {
				t.Errorf("came %s, not %s", show(got), show(want))
			}
			if n := strings.Count(said.String(), "too many open files"); n != 1 ||
				!strings.Contains(said.String(), "ulimit -n") {
				t.Errorf("it said %d times what is wrong:\n%s", n, said.String())
			}
		})
	}
}

// withoutDescriptors does something while the process gets no more file descriptors.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	defer func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was)) }()
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	if f, err := os.Open(os.DevNull); err == nil {
		f.Close()
		t.Fatal(fmt.Errorf("a file can still be opened"))
	}
	do()
}
