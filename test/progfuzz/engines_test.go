package progfuzz

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netcraq/netcraq/switch/bmv2test"
	"github.com/netcraq/netcraq/switch/ebpf"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// engine is a kind of switch whose results the test compares.
type engine interface {
	name() string
	// load replaces the last program. If the engine does not support the program, the error wraps
	// target.ErrUnsupported.
	load(c *compiled) error
	pipeline() target.Pipeline
	// exchange sends a frame to a port, and returns the frames that come out. It waits until at
	// least the expected number of frames has come out.
	exchange(port uint32, frame []byte, expect int) ([]stf.Packet, error)
	digests() []target.Digest
	// ordered returns whether the frames of one port arrive in the order in which the switch sends
	// them. BMv2's egress threads share the ports, so the order of frames may change. If a veth
	// port is at the XDP hook, the far end of the pair delivers frames to packet sockets in lists,
	// so their order may also change.
	ordered() bool
	unload()
}

// reference is the interpreter, whose results are the reference for the other engines.
type reference struct {
	*interp.Pipeline
	learned []target.Digest
}

func newReference(c *compiled) (*reference, error) {
	x := &reference{}
	var err error
	x.Pipeline, err = interp.New(c.prog,
		interp.Options{OnDigest: func(d target.Digest) { x.learned = append(x.learned, d) }})
	return x, err
}

// process returns the frames that leave by existing ports and are long enough for an interface.
func (x *reference) process(port uint32, frame []byte, ports []uint32) (out []stf.Packet) {
	for _, o := range x.Process(time.Second, port, bytes.Clone(frame)) {
		if slices.Contains(ports, o.Port) && len(o.Frame) >= shortest {
			out = append(out, stf.Packet{Port: o.Port, Frame: o.Frame})
		}
	}
	return out
}

// cables are the ports s1 to s4 of a switch in its own namespace, with sockets at their far ends.
type cables struct {
	space   *udptest.Space
	sockets map[uint32]int

	mu  sync.Mutex
	cpu []stf.Packet // frames that were sent to the controller
}

func newCables(t testing.TB) *cables {
	c := &cables{space: udptest.NewSpace(t), sockets: map[uint32]int{}}
	c.space.Set(map[string]string{"ipv6/conf/default/disable_ipv6": "1"})
	for n := uint32(1); n <= Ports; n++ {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("s%d", n), MTU: 9000},
			PeerName: fmt.Sprintf("h%d", n), PeerMTU: 9000}
		udptest.Check(t, c.space.Link.LinkAdd(pair))
		for _, name := range []string{pair.Name, pair.PeerName} {
			l, err := c.space.Link.LinkByName(name)
			udptest.Check(t, err)
			udptest.Check(t, c.space.Link.LinkSetUp(l))
		}
		const all = unix.ETH_P_ALL << 8 // ETH_P_ALL in network byte order
		index := c.space.Index(pair.PeerName)
		c.space.Do(func() error {
			fd, err := unix.Socket(unix.AF_PACKET,
				unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			c.sockets[n] = fd
			return errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
				unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
				unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
		})
	}
	return c
}

// packetIn records a frame to the controller.
func (c *cables) packetIn(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cpu = append(c.cpu, stf.Packet{Port: CPUPort, Frame: bytes.Clone(frame)})
}

func (c *cables) send(port uint32, frame []byte) error {
	if _, err := unix.Write(c.sockets[port], frame); err != nil {
		return fmt.Errorf("sending %d bytes by port %d: %w", len(frame), port, err)
	}
	return nil
}

// take waits until at least the expected number of frames has come out, and then until no frame
// comes out for a moment. It returns the frames.
func (c *cables) take(expect int, moment time.Duration) (out []stf.Packet, err error) {
	buffer, control := make([]byte, 65536), make([]byte, 256)
	end, patience := time.Now().Add(moment), time.Now().Add(2*time.Second)
	for {
		for n := uint32(1); n <= Ports; n++ {
			for {
				size, ctl, _, _, err := unix.Recvmsg(c.sockets[n], buffer, control, 0)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if err != nil {
					return nil, err
				}
				frame, err := withTag(bytes.Clone(buffer[:size]), control[:ctl])
				if err != nil {
					return nil, err
				}
				out, end = append(out, stf.Packet{Port: n, Frame: frame}), time.Now().Add(moment)
			}
		}
		c.mu.Lock()
		all := len(out) + len(c.cpu)
		c.mu.Unlock()
		if now := time.Now(); now.After(end) && all >= expect || now.After(patience) {
			break
		}
		runtime.Gosched()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out, c.cpu = append(out, c.cpu...), nil
	return out, nil
}

// withTag inserts the 802.1Q tag from a struct tpacket_auxdata (packet(7)) into a frame again. The
// kernel has removed the tag from the frame.
func withTag(frame, control []byte) ([]byte, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 ||
			binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
		return slices.Insert(frame, 12, binary.BigEndian.AppendUint16(tag,
			binary.NativeEndian.Uint16(m.Data[16:]))...), nil
	}
	return frame, nil
}

// kernel is the engine that runs programs in the Linux kernel, at one hook, with or without a CPU
// port.
type kernel struct {
	*cables
	device  ebpf.Device
	title   string
	hook    ebpf.Hook
	learned []target.Digest
	frames  int // number of frames since the program was loaded
}

// madeAnew is the number of frames after which the engine recompiles a program, specialized for the
// content of its tables, and by paths.
const madeAnew = 20

func newKernel(t testing.TB, hook ebpf.Hook, cpu bool) *kernel {
	k := &kernel{cables: newCables(t), title: "kernel-" + hook.String(), hook: hook}
	opts := ebpf.Options{Hook: hook, Log: slog.New(slog.DiscardHandler)}
	if cpu {
		k.title += "-cpu"
		opts.CPUPort = CPUPort
	}
	k.space.Do(func() (err error) {
		k.device, err = ebpf.New(opts)
		return err
	})
	t.Cleanup(func() { k.device.Close() })
	k.device.OnPacketIn(k.packetIn)
	k.device.OnDigest(func(d target.Digest) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.learned = append(k.learned, d)
	})
	for n := uint32(1); n <= Ports; n++ {
		udptest.Check(t, k.device.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
	}
	return k
}

func (k *kernel) name() string              { return k.title }
func (k *kernel) ordered() bool             { return k.hook == ebpf.HookTC }
func (k *kernel) load(c *compiled) error    { k.frames = 0; return k.device.Commit(c.prog) }
func (k *kernel) pipeline() target.Pipeline { return k.device.Pipeline() }
func (k *kernel) unload() {
	_, _ = k.take(0, 5*time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.learned = nil
}

func (k *kernel) digests() []target.Digest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.learned)
}

func (k *kernel) exchange(port uint32, frame []byte, expect int) ([]stf.Packet, error) {
	if k.frames++; k.frames == madeAnew {
		if err := ebpf.Specialise(k.device); err != nil {
			return nil, fmt.Errorf("making the program anew: %w", err)
		}
		if err := ebpf.Stripe(k.device, true); err != nil && !errors.Is(err, target.ErrUnsupported) {
			return nil, fmt.Errorf("taking stripes of registers: %w", err)
		}
	}
	send := k.send
	if port == CPUPort {
		send = func(_ uint32, frame []byte) error { return k.device.PacketOut(frame) }
	}
	if err := send(port, frame); err != nil {
		return nil, err
	}
	return k.take(expect, 300*time.Microsecond)
}

// behavioralModel is the engine BMv2. Each program gets its own BMv2 process.
type behavioralModel struct {
	*cables
	t       testing.TB
	cpu     bool
	program *bmv2test.Pipeline
	stop    func()
}

func newBMv2(t testing.TB, cpu bool) *behavioralModel {
	return &behavioralModel{cables: newCables(t), t: t, cpu: cpu}
}

func (b *behavioralModel) name() string {
	if b.cpu {
		return "bmv2-cpu"
	}
	return "bmv2"
}
func (b *behavioralModel) pipeline() target.Pipeline { return b.program }
func (b *behavioralModel) digests() []target.Digest  { return nil }
func (b *behavioralModel) ordered() bool             { return false }

func (b *behavioralModel) unload() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
	_, _ = b.take(0, 5*time.Millisecond)
}

func (b *behavioralModel) load(c *compiled) error {
	const address = "127.0.0.1:9559" // an address in the process's own network namespace
	args := []string{"--log-level", "off", "--device-id", "1", "--no-p4"}
	for n := uint32(1); n <= Ports; n++ {
		args = append(args, "-i", fmt.Sprintf("%d@s%d", n, n))
	}
	args = append(args, "--", "--grpc-server-addr", address)
	if b.cpu {
		args = append(args, "--cpu-port", fmt.Sprint(CPUPort))
	}
	cmd := exec.Command("simple_switch_grpc", args...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go b.space.Do(func() error { // The process ends when the thread that started it ends.
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Wait returns when the process is killed
		}
		return nil
	})
	if err := <-started; err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = func() {
		cancel()
		_ = cmd.Process.Kill()
		<-ended
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(
			func(ctx context.Context, address string) (conn net.Conn, err error) {
				b.space.Do(func() error {
					conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", address)
					return nil
				})
				return conn, err
			}))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	if b.program, err = bmv2test.Connect(ctx, conn, 1, c.json, c.prog, c.info, b.packetIn); err != nil {
		return err
	}
	// BMv2 is busy for a moment after it has confirmed the program
	time.Sleep(100 * time.Millisecond)
	return nil
}

func (b *behavioralModel) exchange(port uint32, frame []byte, expect int) ([]stf.Packet, error) {
	var err error
	if port == CPUPort {
		err = b.program.PacketOut(frame)
	} else {
		err = b.send(port, frame)
	}
	if err != nil {
		return nil, err
	}
	return b.take(expect, 2*time.Millisecond)
}

// engines are the engines that run the programs, with and without a CPU port. Each is created when
// it is first needed.
type engines struct {
	t    testing.TB
	bmv2 bool
	list map[bool][]engine
}

func newEngines(t testing.TB) *engines {
	if err := ebpf.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	offload.Dir = t.TempDir()
	_, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Logf("without BMv2: %v", err)
	}
	return &engines{t: t, bmv2: err == nil, list: map[bool][]engine{}}
}

func (e *engines) with(cpu bool) []engine {
	if e.list[cpu] == nil {
		list := []engine{newKernel(e.t, ebpf.HookTC, cpu), newKernel(e.t, ebpf.HookXDP, cpu)}
		if e.bmv2 {
			list = append(list, newBMv2(e.t, cpu))
		}
		e.list[cpu] = list
	}
	return e.list[cpu]
}
