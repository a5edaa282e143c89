package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/netlinkdump"
	"github.com/netcraq/netcraq/switch/offload"
)

// TestFeatures reads a veth's XDP features. A veth must always run programs natively, and must
// accept frames from XDP programs once its peer has a program.
func TestFeatures(t *testing.T) {
	sw, _ := inNamespace(t)
	f, err := netlinkdump.XDPFeatures(sw.Attrs().Index)
	if err != nil {
		t.Fatal(err)
	}
	if f&netlinkdump.RunsXDP == 0 || f&netlinkdump.TakesXDP != 0 {
		t.Errorf("a veth without programs has the features %#x", f)
	}
}

// TestDetached detaches each program from a port, as "bpftool link detach" and "tc qdisc del" do.
// The switch must attach the program again and report that.
func TestDetached(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCables(t, []uint32{1, 2})
			restored := make(chan error, 100)
			opts.Restored = func(_ string, err error) { restored <- err }
			d := startHooks(t, opts, 1, 2)
			d.watcher.stop() // this test calls reconcile itself
			works := func(when string) {
				t.Helper()
				f := hooksFrame(2, 100)
				_, err := unix.Write(c.sockets[1], f)
				check(t, err)
				if got, want := c.take(t, 1), hooksWant(f, 1); show(got) != show(want) {
					t.Errorf("%s there comes %s, not %s", when, show(got), show(want))
				}
			}
			works("at first")
			var detaches []func() error
			q := d.ports[1]
			named, err := attach.Named(q.Ifindex, attach.SwitchProgram)
			check(t, err)
			if (len(named) == 1) == opts.clsact {
				t.Errorf("%d programs at tcx are called %s", len(named), attach.SwitchProgram)
			}
			if opts.clsact {
				detaches = append(detaches, func() error { return netlink.QdiscDel(offload.Discipline(q.Ifindex)) })
			} else {
				detaches = append(detaches, func() error { return detachLink(q.Ifindex, d.pipeline.TC) })
			}
			if opts.Hook == HookXDP {
				detaches = append(detaches, func() error { return detachLink(q.Ifindex, d.pipeline.XDP) })
			}
			for i, detach := range detaches {
				check(t, detach())
				for range filterLooks {
					d.reconcile()
				}
				if len(restored) != 1 {
					t.Fatalf("program %d was detached, and %d are put back", i, len(restored))
				}
				check(t, <-restored)
				works("after a program was put back")
			}
		})
	}
}

// detachLink detaches a program from an interface, as "bpftool link detach" does. Links identify
// interfaces by their index, which is not unique across namespaces, so prog identifies the link.
func detachLink(ifindex int, prog *ebpf.Program) error {
	about, err := prog.Info()
	if err != nil {
		return err
	}
	id, _ := about.ID()
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.Program != id {
			continue
		}
		tcx, xdp := info.TCX(), info.XDP()
		if tcx != nil && int(tcx.Ifindex) == ifindex || xdp != nil && int(xdp.Ifindex) == ifindex {
			return it.Link.Detach()
		}
	}
	return errors.Join(errors.New("there is no such link"), it.Err())
}

// TestOutOfDescriptors checks a switch that has no free file descriptor, so it cannot check its
// interfaces. Its ports must keep their state, and the log must say what to do.
func TestOutOfDescriptors(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCables(t, []uint32{1, 2})
			var said bytes.Buffer
			opts.Log = slog.New(slog.NewTextHandler(&said, nil))
			d := startHooks(t, opts, 1, 2)
			d.watcher.stop() // this test calls reconcile itself
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

// withoutDescriptors calls do while the process cannot open file descriptors.
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
