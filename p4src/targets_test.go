package p4src

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/switch/ebpf"
)

// realTargets lists the switches that run as separate processes, with their commands.
var realTargets = []struct {
	name    string
	command func(t *testing.T) []string
}{
	{"netcraq-switch", func(t *testing.T) []string {
		return []string{buildSwitch(t), "--engine", "interp"}
	}},
	{"netcraq-switch-tc", func(t *testing.T) []string {
		if err := ebpf.Probe(); err != nil {
			t.Skipf("eBPF is not available: %v", err)
		}
		return []string{buildSwitch(t), "--engine", "ebpf", "--hook", "tc"}
	}},
	{"netcraq-switch-xdp", func(t *testing.T) []string {
		if err := ebpf.Probe(); err != nil {
			t.Skipf("eBPF is not available: %v", err)
		}
		return []string{buildSwitch(t), "--engine", "ebpf", "--hook", "xdp"}
	}},
	{"simple_switch_grpc", func(t *testing.T) []string {
		bin, err := exec.LookPath("simple_switch_grpc")
		if err != nil {
			t.Skip("BMv2 is not installed: no simple_switch_grpc on PATH")
		}
		return []string{bin, "--log-level", "off"}
	}},
}

// buildFolder is where the tests of this package build netcraq-switch. TestMain removes it.
var buildFolder string

func TestMain(m *testing.M) {
	code := m.Run()
	if buildFolder != "" {
		_ = os.RemoveAll(buildFolder)
	}
	os.Exit(code)
}

// buildOnce builds netcraq-switch for all tests of this package, and returns the binary's path.
var buildOnce = sync.OnceValues(func() (string, error) {
	var err error
	if buildFolder, err = os.MkdirTemp("", "netcraq-switch"); err != nil {
		return "", err
	}
	bin := filepath.Join(buildFolder, "netcraq-switch")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/netcraq/netcraq/switch/cmd/netcraq-switch").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building netcraq-switch: %w\n%s", err, out)
	}
	return bin, nil
})

func buildSwitch(t *testing.T) string {
	t.Helper()
	bin, err := buildOnce()
	check(t, err)
	return bin
}

// TestTargets runs the scenarios on real switches, which are processes with network interfaces and
// a P4Runtime server. Their transcripts must equal the interpreter's transcripts. So netcraq-switch
// and BMv2 send the same packets as the interpreter.
func TestTargets(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces and raw sockets")
	}
	for _, target := range realTargets {
		t.Run(target.name, func(t *testing.T) {
			t.Parallel() // a target's test waits most of the time
			command := target.command(t)
			files, err := filepath.Glob("testdata/scenarios/*.txt")
			if err != nil || len(files) == 0 {
				t.Fatalf("no scenarios: %v", err)
			}
			for _, file := range files {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
					s := &scenario{open: func(t *testing.T, profile int) device {
						return &mirrored{startTarget(t, command, profile).(*process), newInterpreter(t, profile, nil)}
					}}
					s.run(t, file)
				})
			}
		})
	}
}

// process is a switch in its own network namespace, with a veth pair for each port of the
// scenarios.
type process struct {
	client    *p4rt.Client
	info      *p4rt.Info
	installed map[string]bool
	sockets   map[uint32]int // the AF_PACKET socket on the other end of each port's veth pair
	process   *os.Process

	mu      sync.Mutex
	packets []output // packet-ins since the last call of send
}

var targetPorts = []uint32{1, 2, 3, 4, 5, 6, 9}

// A packet counts as processed when the switch has sent no frame for the time `quiet` after the
// last frame, or no frame at all for the time `silent`. The switches need less than a millisecond,
// but on a busy machine a switch's thread may be delayed after it has counted the packet. If the
// number of expected frames is known, the test waits for them up to the time `late`, and then waits
// the time `surplus` for a frame too many. A frame that arrives even later counts as an output of
// the next packet, and the test fails there.
const (
	quiet   = 20 * time.Millisecond
	silent  = 80 * time.Millisecond
	late    = 10 * time.Second
	surplus = 4 * time.Millisecond
)

// unknown stands for a number of expected frames that the test does not know.
const unknown = -1

// mirrored is a real switch together with an interpreter that gets the same configuration and
// frames. The interpreter's output shows for how many frames mirrored must wait.
type mirrored struct {
	waiting
	beside *interpreter
}

// waiting is a device that can wait for an expected number of frames.
type waiting interface {
	device
	// sendFor is like send, but waits for the expected number of frames, which may be `unknown`.
	sendFor(port uint32, frame []byte, expected int) ([]output, error)
}

func (m *mirrored) set(e p4rt.Entry) error {
	return errors.Join(m.beside.set(e), m.waiting.set(e))
}

func (m *mirrored) remove(e p4rt.Entry) error {
	return errors.Join(m.beside.remove(e), m.waiting.remove(e))
}

func (m *mirrored) group(g p4rt.Group) error {
	return errors.Join(m.beside.group(g), m.waiting.group(g))
}

func (m *mirrored) rate(port uint32, packets int64) error {
	return errors.Join(m.beside.rate(port, packets), m.waiting.rate(port, packets))
}

func (m *mirrored) send(port uint32, frame []byte) ([]output, error) {
	expected, err := m.beside.send(port, slices.Clone(frame))
	if err != nil {
		return nil, err
	}
	return m.waiting.sendFor(port, frame, len(expected))
}

func startTarget(t *testing.T, command []string, profile int) device {
	t.Helper()
	json, text, err := Compiled(profile)
	check(t, err)
	var p4info configv1.P4Info
	check(t, prototext.Unmarshal(text, &p4info))
	info, err := p4rt.NewInfo(&p4info)
	check(t, err)
	p := &process{info: info, installed: map[string]bool{}, sockets: map[uint32]int{}}

	// This thread stays in the namespace until the function returns. Afterwards the switch and the
	// sockets keep the namespace alive.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	check(t, err)
	defer home.Close()
	space, err := netns.New()
	check(t, err)
	defer func() { check(t, netns.Set(home)) }()
	t.Cleanup(func() { space.Close() })
	for _, file := range []string{"all", "default"} {
		// Disable IPv6 to reduce the number of frames that the kernel itself sends. If this fails,
		// the neighbour discovery packets are filtered below.
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+file+"/disable_ipv6", []byte("1"), 0)
	}
	loopback, err := netlink.LinkByName("lo")
	check(t, err)
	check(t, netlink.LinkSetUp(loopback))
	args := append([]string{}, command[1:]...)
	for _, port := range targetPorts {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", port), MTU: 9000},
			PeerName: fmt.Sprintf("h%d", port)}
		check(t, netlink.LinkAdd(link))
		for _, name := range []string{link.Name, link.PeerName} {
			l, err := netlink.LinkByName(name)
			check(t, err)
			check(t, netlink.LinkSetMTU(l, 9000))
			check(t, netlink.LinkSetUp(l))
		}
		peer, err := netlink.LinkByName(link.PeerName)
		check(t, err)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
			int(htons(unix.ETH_P_ALL)))
		check(t, err)
		check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: peer.Attrs().Index}))
		t.Cleanup(func() { unix.Close(fd) })
		p.sockets[port] = fd
		args = append(args, "-i", fmt.Sprintf("%d@%s", port, link.Name))
	}
	args = append(
		args,
		"--device-id",
		"1",
		"--no-p4",
		"--",
		"--grpc-server-addr",
		"127.0.0.1:9559",
		"--cpu-port",
		fmt.Sprint(controllerPort),
	)
	cmd := exec.Command(command[0], args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := cmd.StderrPipe()
	check(t, err)
	cmd.Stdout = io.Discard
	check(t, cmd.Start())
	p.process = cmd.Process
	var said strings.Builder
	var done sync.WaitGroup
	done.Go(func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		done.Wait()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the switch said:\n%s", said.String())
		}
	})

	p.client, err = p4rt.New(p4rt.Options{Name: filepath.Base(command[0]),
		Target: "passthrough:///127.0.0.1:9559", DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 1}, Info: info,
		RPCTimeout: 30 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dialIn(ctx, space, address)
			})}},
		p4rt.Handler{PacketIn: func(in p4rt.PacketIn) {
			header := binary.BigEndian.AppendUint16(nil, uint16(in.Metadata["ingress_port"])<<7)
			p.mu.Lock()
			p.packets = append(p.packets, output{controllerPort, append(header, in.Payload...)})
			p.mu.Unlock()
		}})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go p.client.Run(ctx)
	poll.Until(t, 20*time.Second, "the client is the primary one", func() bool { return p.client.State().Phase == p4rt.Primary },
		func() string { return fmt.Sprint(p.client.State().Err) })
	pipeline, err := p4rt.NewPipeline(info, json)
	check(t, err)
	_, err = p.client.EnsurePipeline(ctx, pipeline)
	check(t, err)
	time.Sleep(100 * time.Millisecond) // BMv2 stays busy for a moment after it has confirmed the program
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// dialIn connects to an address from within a network namespace.
func dialIn(ctx context.Context, space netns.NsHandle, address string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := netns.Set(space); err != nil {
		return nil, err
	}
	defer func() { _ = netns.Set(home) }()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func (p *process) set(e p4rt.Entry) error {
	u := v1.Update_INSERT
	if name := fmt.Sprint(e.Table, e.Match); e.Default || p.installed[name] {
		u = v1.Update_MODIFY
	} else {
		p.installed[name] = true
	}
	return p.write(u, e)
}

func (p *process) remove(e p4rt.Entry) error {
	delete(p.installed, fmt.Sprint(e.Table, e.Match))
	entity, err := encodeMatch(p.info, e)
	if err != nil {
		return err
	}
	return p.client.Write(context.Background(), &v1.Update{Type: v1.Update_DELETE,
		Entity: &v1.Entity{Entity: &v1.Entity_TableEntry{TableEntry: entity}}})
}

func (p *process) write(u v1.Update_Type, e p4rt.Entry) error {
	entity, err := p.info.Encode(e)
	if err != nil {
		return err
	}
	return p.client.Write(context.Background(),
		&v1.Update{Type: u, Entity: &v1.Entity{Entity: &v1.Entity_TableEntry{TableEntry: entity}}})
}

func (p *process) group(g p4rt.Group) error {
	m := &v1.MulticastGroupEntry{MulticastGroupId: g.ID}
	for _, r := range g.Replicas {
		m.Replicas = append(m.Replicas, &v1.Replica{PortKind: &v1.Replica_EgressPort{EgressPort: r.Port},
			Instance: r.Instance})
	}
	return p.client.Write(context.Background(), &v1.Update{Type: v1.Update_INSERT,
		Entity: &v1.Entity{Entity: &v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: &v1.PacketReplicationEngineEntry{
				Type: &v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: m},
			},
		}}})
}

func (p *process) rate(port uint32, packets int64) error {
	e, err := p.info.EncodeMeter("host_rate", int(port), 1, packets)
	if err != nil {
		return err
	}
	// Like packetsAtOnce, this meter never refills. EncodeMeter is not used, because it takes a
	// rate of 0 for no limit.
	config := e.GetMeterEntry().Config
	config.Cir, config.Pir = 0, 0
	return p.client.Write(context.Background(), p4rt.Modify(e))
}

func (p *process) events() ([]uint64, error) {
	cells, err := p.client.ReadCounter(context.Background(), "events")
	if err != nil {
		return nil, err
	}
	out := make([]uint64, len(cells))
	for i, c := range cells {
		out[i] = c.Packets
	}
	return out, nil
}

func (p *process) send(port uint32, frame []byte) ([]output, error) {
	return p.sendFor(port, frame, unknown)
}

// sendFor implements the interface waiting.
func (p *process) sendFor(port uint32, frame []byte, expected int) ([]output, error) {
	before, err := p.events()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.packets = nil
	p.mu.Unlock()
	if port == controllerPort {
		header := binary.BigEndian.Uint16(frame)
		err = p.client.PacketOut(frame[2:], map[string]uint64{"egress_port": uint64(header >> 7),
			"submit_to_ingress": uint64(header >> 6 & 1), "padding": 0})
	} else {
		_, err = unix.Write(p.sockets[port], frame)
	}
	if err != nil {
		return nil, fmt.Errorf("sending by port %d: %w", port, err)
	}
	sum := func(cells []uint64) (n uint64) {
		for _, c := range cells {
			n += c
		}
		return n
	}
	for deadline := time.Now().Add(2 * time.Second); ; {
		after, err := p.events()
		if err != nil {
			return nil, err
		}
		if sum(after) > sum(before) || time.Now().After(deadline) {
			break
		}
	}
	var out []output
	buffer := make([]byte, 65536)
	over := func(last time.Time) bool {
		p.mu.Lock()
		came := len(out) + len(p.packets)
		p.mu.Unlock()
		switch {
		case came < expected:
			return time.Since(last) > late
		case expected != unknown:
			return time.Since(last) > surplus
		case came == 0:
			return time.Since(last) > silent
		}
		return time.Since(last) > quiet
	}
	for last := time.Now(); !over(last); time.Sleep(time.Millisecond) {
		for port, fd := range p.sockets {
			n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("receiving at port %d: %w", port, err)
			}
			ll, _ := from.(*unix.SockaddrLinklayer)
			if ll == nil || ll.Pkttype == unix.PACKET_OUTGOING || n < 14 ||
				binary.BigEndian.Uint16(buffer[12:]) == unix.ETH_P_IPV6 {
				continue
			}
			out = append(out, output{port, append([]byte{}, buffer[:n]...)})
			last = time.Now()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(out, p.packets...), nil
}
