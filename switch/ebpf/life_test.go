package ebpf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// kinds are the hooks at which a switch can be attached.
var kinds = map[string]Options{
	"tc": {Hook: HookTC}, "clsact": {Hook: HookTC, clsact: true}, "xdp": {Hook: HookXDP},
	"xdp-clsact": {Hook: HookXDP, clsact: true},
}

// startHooks starts a switch that runs hooks.p4. Its ports are some of the cables.
func startHooks(t *testing.T, opts Options, ports ...uint32) *device {
	t.Helper()
	d, err := newDevice(opts)
	check(t, err)
	t.Cleanup(func() { d.Close() })
	check(t, d.Commit(readProgram(t, "testdata/hooks.json")))
	setHooksEntries(t, d.Pipeline(), ports)
	for _, n := range ports {
		check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
	}
	return d
}

// TestPushes pushes programs while frames pass, including frames that XDP passes to tc. Each frame
// must leave exactly once.
func TestPushes(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			ports := []uint32{1, 2, 3}
			c := newCables(t, ports)
			d := startHooks(t, opts, ports...)
			stop, done := make(chan bool), make(chan bool)
			frames := 0
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					default:
					}
					frames++
					f := hooksFrame([]byte{1, 2, 3, 10}[frames%4], 64)
					binary.BigEndian.PutUint32(f[60:], uint32(frames))
					want := hooksWant(f, 0)
					if _, err := unix.Write(c.sockets[1], f); err != nil {
						t.Error(err)
						return
					}
					if got := c.take(t, len(want)); show(got) != show(want) {
						t.Errorf("frame %d: came %s, not %s", frames, show(got), show(want))
						return
					}
				}
			}()
			prog := readProgram(t, "testdata/hooks.json")
			for range 10 {
				p, err := d.Prepare(prog)
				check(t, err)
				setHooksEntries(t, p, ports)
				check(t, d.Activate(p, nil))
			}
			close(stop)
			<-done
			if lost := d.PortMap.Lost(); lost > 0 || frames < 20 {
				t.Errorf("of %d frames %d were lost between XDP and tc", frames, lost)
			}
			check(t, d.Close())
			state := stateOf(t)
			if strings.Contains(state, "program") || strings.Contains(state, "clsact") {
				t.Errorf("a closed switch leaves %s", state)
			}
		})
	}
}

// stateOf describes all interface settings that a switch may change, for the interfaces in the
// thread's namespace.
func stateOf(t *testing.T) string {
	t.Helper()
	links, err := netlink.LinkList()
	check(t, err)
	var out []string
	for _, l := range links {
		name := l.Attrs().Name
		if name == "lo" {
			continue
		}
		s := name
		for _, setting := range []offload.Setting{offload.GenericReceive, offload.LargeReceive,
			offload.TCPSegments, offload.GenericSegment, offload.TxChecksums, offload.TxVLAN,
			offload.RxVLAN} {
			on, err := offload.IsOn(name, setting)
			check(t, err)
			s += fmt.Sprintf(" %s=%v", setting, on)
		}
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			s += " an XDP program"
		}
		if attached(t, l) > 0 {
			s += " a tc program"
		}
		disciplines, err := netlink.QdiscList(l)
		check(t, err)
		for _, q := range disciplines {
			if q.Type() == "clsact" {
				s += " clsact"
			}
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestHoldHooks is not a test. TestKilledAndStarted runs it as a separate process that holds a
// switch until TestKilledAndStarted kills the process.
func TestHoldHooks(t *testing.T) {
	kind := os.Getenv("NETCRAQ_HOLD_HOOKS")
	if kind == "" {
		t.Skip("only for TestKilledAndStarted")
	}
	offload.Dir = os.Getenv("NETCRAQ_TEST_RECORDS")
	opts := kinds[kind]
	opts.Log = slog.New(slog.DiscardHandler) // the test expects "holding" as the first output
	startHooks(t, opts, 1, 2)
	println("holding")
	time.Sleep(time.Minute)
}

// TestKilledAndStarted kills a switch and starts another one, of any kind. After the second switch
// has ended normally, all interfaces must be in their original state.
func TestKilledAndStarted(t *testing.T) {
	for first := range kinds {
		for second, opts := range kinds {
			t.Run(first+"-then-"+second, func(t *testing.T) {
				c := newCables(t, []uint32{1, 2})
				before := stateOf(t)
				cmd := exec.Command(os.Args[0], "-test.run=^TestHoldHooks$")
				cmd.Env = append(os.Environ(), "NETCRAQ_HOLD_HOOKS="+first,
					"NETCRAQ_TEST_RECORDS="+offload.Dir)
				said, err := cmd.StderrPipe()
				check(t, err)
				check(t, cmd.Start())
				line, _ := bufio.NewReader(said).ReadString('\n')
				if stateOf(t) == before {
					t.Error("a switch changes nothing")
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if !strings.HasPrefix(line, "holding") {
					t.Fatalf("the switch said %q", line)
				}
				d := startHooks(t, opts, 1, 2)
				f := hooksFrame(2, 100)
				_, err = unix.Write(c.sockets[1], f)
				check(t, err)
				if got, want := c.take(t, 1), hooksWant(f, 1); show(got) != show(want) {
					t.Errorf("came %s, not %s", show(got), show(want))
				}
				check(t, d.Close())
				if after := stateOf(t); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}

// TestComesBack deletes and recreates the interface of a port. The new interface must become the
// port again.
func TestComesBack(t *testing.T) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCables(t, []uint32{1, 2})
			startHooks(t, opts, 1, 2)
			l, err := netlink.LinkByName("s2")
			check(t, err)
			check(t, netlink.LinkDel(l))
			c.plug(t, 2)
			c.listen(t, 2)
			// This runs in both directions. The port belongs to the switch at once, but the kernel
			// drops frames that leave by the port until it has noticed the carrier.
			for _, way := range []struct{ from, to uint32 }{{2, 1}, {1, 2}} {
				eventually(t, 20*time.Second, func() string {
					_, err := unix.Write(c.sockets[way.from], hooksFrame(byte(way.to), 100))
					check(t, err)
					if len(c.takeWithin(t, 1, 500*time.Millisecond)) > 0 {
						return ""
					}
					return fmt.Sprintf("the interface is back, and no frame from port %d is at port %d", way.from, way.to)
				})
			}
			for _, dst := range []byte{2, 10} {
				f := hooksFrame(dst, 100)
				_, err := unix.Write(c.sockets[1], f)
				check(t, err)
				want := slices.DeleteFunc(hooksWant(f, 0),
					func(p stf.Packet) bool { return p.Port > 2 })
				if got := c.take(t, len(want)); show(got) != show(want) {
					t.Errorf("came %s, not %s", show(got), show(want))
				}
			}
		})
	}
}

// TestCabled connects two switches by a veth pair, whose ends are port 2 of both switches. Frames
// pass through both switches. After both have ended, in any order, all interfaces must be in their
// original state.
func TestCabled(t *testing.T) {
	for name, opts := range kinds {
		for _, firstGoes := range []string{"left", "right"} {
			t.Run(name+"-"+firstGoes, func(t *testing.T) {
				c := newCables(t, []uint32{1, 2, 3})
				unix.Close(c.sockets[2])
				delete(c.sockets, 2)
				before := stateOf(t)
				left := startHooks(t, opts, 1, 2)
				right := startHooks(t, opts, 3)
				check(t, right.AddPort(target.Port{Number: 2, Iface: "h2"}))
				to3 := &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{2, 0, 0, 0, 0,
					3}}},
					Action: &target.ActionCall{Action: "HooksIngress.forward",
						Params: [][]byte{{0, 2}}}}
				check(t, left.Pipeline().InsertEntry("HooksIngress.what", to3))
				f := hooksFrame(3, 100)
				eventually(t, 20*time.Second, func() string {
					_, err := unix.Write(c.sockets[1], f)
					check(t, err)
					if got := show(c.takeWithin(t, 1, 500*time.Millisecond)); got != show(hooksWant(f, 1)) {
						return "each should see that the other has come, and what came is " + got
					}
					return ""
				})
				switches := []*device{left, right}
				if firstGoes == "right" {
					slices.Reverse(switches)
				}
				check(t, switches[0].Close())
				if stateOf(t) == before {
					t.Error("the other switch needs nothing?")
				}
				check(t, switches[1].Close())
				if after := stateOf(t); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}
