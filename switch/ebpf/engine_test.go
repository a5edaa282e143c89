package ebpf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/target"
)

// inNamespace moves the test to a thread in a new network namespace with the veth pair sw and peer.
func inNamespace(t *testing.T) (sw, peer netlink.Link) {
	t.Helper()
	needKernel(t)
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	space, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		space.Close()
		if err := netns.Set(home); err == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	// Without IPv6, the kernel sends no unrelated frames.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "sw"},
		PeerName: "peer"}); err != nil {
		t.Fatal(err)
	}
	var links []netlink.Link
	for _, name := range []string{"sw", "peer"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		links = append(links, l)
	}
	return links[0], links[1]
}

// attached counts the BPF programs that are attached to an interface.
func attached(t *testing.T, l netlink.Link) int {
	t.Helper()
	r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index,
		Attach: ebpf.AttachTCXIngress})
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Programs)
}

var toPort1 = &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{2, 0, 0, 0, 0, 0}}},
	Action: &target.ActionCall{Action: "TallyIngress.forward",
		Params: [][]byte{{0, 1}, {0, 0, 0, 1}}}}

// TestPushUnderTraffic pushes programs while frames arrive. Each frame must be answered by exactly
// one of the programs.
func TestPushUnderTraffic(t *testing.T) {
	sw, peer := inNamespace(t)
	d, err := newDevice(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.AddPort(target.Port{Number: 1, Iface: "sw"}); err != nil {
		t.Fatal(err)
	}
	prog := readProgram(t, "testdata/tally.json")
	push := func() {
		t.Helper()
		p, err := d.Prepare(prog)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.InsertEntry("TallyIngress.where", toPort1); err != nil {
			t.Fatal(err)
		}
		if err := d.Activate(p, nil); err != nil {
			t.Fatal(err)
		}
	}
	push()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.ETH_P_ALL<<8)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL << 8,
		Ifindex: peer.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	stop, sent := make(chan bool), make(chan error)
	frames := 0
	go func() {
		frame, buffer := make([]byte, 64), make([]byte, 2048)
		frame[0] = 2
		for {
			select {
			case <-stop:
				sent <- nil
				return
			default:
			}
			frames++
			binary.BigEndian.PutUint32(frame[20:], uint32(frames))
			if _, err := unix.Write(fd, frame); err != nil {
				sent <- err
				return
			}
			for {
				n, from, err := unix.Recvfrom(fd, buffer, 0)
				if err != nil {
					sent <- errors.Join(errors.New("a frame was lost"), err)
					return
				}
				if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
					continue
				}
				if n != 64 || binary.BigEndian.Uint32(buffer[20:]) != uint32(frames) {
					sent <- errors.New("another frame came")
					return
				}
				break
			}
		}
	}()
	for range 10 {
		push()
	}
	close(stop)
	if err := <-sent; err != nil {
		t.Fatalf("frame %d: %v", frames, err)
	}
	if frames < 100 {
		t.Errorf("only %d frames went during the pushes", frames)
	}
	if n := attached(t, sw); n != 1 {
		t.Errorf("%d programs on the port", n)
	}
	if err := d.RemovePort(1); err != nil {
		t.Fatal(err)
	}
	if n := attached(t, sw); n != 0 {
		t.Errorf("%d programs on what was a port", n)
	}
	t.Logf("%d frames during 10 pushes", frames)
}

// TestHoldSwitch is not a test. TestKilled runs it as a separate process that holds a switch until
// TestKilled kills the process.
func TestHoldSwitch(t *testing.T) {
	if os.Getenv("NETCRAQ_HOLD_SWITCH") == "" {
		t.Skip("only for TestKilled")
	}
	// The log must stay silent, because TestKilled expects "holding" as the first output.
	d, err := newDevice(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Commit(readProgram(t, "testdata/tally.json")),
		d.AddPort(target.Port{Number: 1, Iface: "sw"})); err != nil {
		t.Fatal(err)
	}
	println("holding")
	time.Sleep(time.Minute)
}

// TestKilled kills a process that runs a switch. No program of the dead switch may stay on the
// port, and the next switch must start.
func TestKilled(t *testing.T) {
	sw, _ := inNamespace(t)
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHoldSwitch$")
		cmd.Env = append(os.Environ(), "NETCRAQ_HOLD_SWITCH=1")
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(said).ReadString('\n')
		if !strings.HasPrefix(line, "holding") {
			_ = cmd.Process.Kill()
			t.Fatalf("the switch said %q", line)
		}
		if n := attached(t, sw); n != 1 {
			t.Errorf("%d programs on the port of a switch", n)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		eventually(t, 5*time.Second, func() string {
			if attached(t, sw) > 0 {
				return "a dead switch's program is still at the port"
			}
			return ""
		})
	}
}
