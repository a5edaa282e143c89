package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/queues"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
	"github.com/netcraq/netcraq/switch/userspace"
)

// TestQueues checks that a packet enters its port's queue between ingress and egress, whatever
// ingress has assigned, and leaves the queue at once. It tests both engines.
func TestQueues(t *testing.T) {
	prog := readProgram(t, "testdata/queues.json")
	look := func(engine string, frame []byte) {
		if len(frame) != 14+28+6 {
			t.Fatalf("%s sends %d bytes", engine, len(frame))
		}
		came, left := binary.BigEndian.Uint64(frame[12:])&(1<<48-1),
			binary.BigEndian.Uint64(frame[22:])&(1<<48-1)
		entered := binary.BigEndian.Uint32(frame[20:])
		if uint32(left)-entered > 1e6 || entered-uint32(came) > 1e6 || left < came || left == 0 {
			t.Errorf("%s: came at %d us, entered the queue at %d, left it at %d", engine, came,
				entered, left)
		}
		for i, name := range []string{"deq_timedelta", "enq_qdepth", "deq_qdepth"} {
			if v := binary.BigEndian.Uint32(frame[30+4*i:]); v != 0 {
				t.Errorf("%s: %s is %d", engine, name, v)
			}
		}
	}
	frame := make([]byte, 20)
	in, err := interp.New(prog, interp.Options{})
	check(t, err)
	for _, o := range in.Process(time.Second, 3, frame) {
		look("interp", o.Frame)
	}
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		c, err := newCaptured(t, prog, h)
		check(t, err)
		out, err := c.process(3, frame, 1)
		check(t, err)
		for _, o := range out {
			look("kernel", o.Frame)
		}
	})
}

// TestNoPriorities checks that the engine refuses a program that gives packets priorities, because
// no queue would apply the priorities.
func TestNoPriorities(t *testing.T) {
	needKernel(t)
	d := newTestDevice(t)
	err := d.Verify(readProgram(t, "../interp/testdata/priorities.json"))
	if !errors.Is(err, target.ErrUnsupported) ||
		!strings.Contains(err.Error(), "priority (standard_metadata.priority)") {
		t.Errorf("priorities: %v", err)
	}
}

// TestQueueRate limits the interpreter's queue to 500 packets per second. The queue must keep the
// packets' order, and no packet may leave sooner than the rate allows by the switch's own clock.
func TestQueueRate(t *testing.T) {
	if os.Getenv("NETCRAQ_QUEUE_RATE") == "" {
		inOwnNamespace(t, "NETCRAQ_QUEUE_RATE")
		return
	}
	c := cablesHere(t, 1, 3)
	d, err := userspace.New(userspace.Options{})
	check(t, err)
	defer d.Close()
	check(t, d.Commit(readProgram(t, "testdata/queues.json")))
	for _, n := range []uint32{1, 3} {
		check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
	}
	check(t, d.SetQueueRate(nil, nil, 500))
	const frames = 11
	for n := range byte(frames) {
		_, err := unix.Write(c.sockets[3], append(make([]byte, 60), n))
		check(t, err)
	}
	var got []stf.Packet
	for begun := time.Now(); len(got) < frames && time.Since(begun) < 20*time.Second; {
		got = append(got, c.takeInOrder(t, frames)...)
	}
	if len(got) != frames {
		t.Fatalf("%d frames came, not %d", len(got), frames)
	}
	left := func(f []byte) uint64 { return binary.BigEndian.Uint64(f[22:]) & (1<<48 - 1) }
	first := left(got[0].Frame)
	for n, p := range got {
		f := p.Frame
		entered, waited := binary.BigEndian.Uint32(f[20:]), binary.BigEndian.Uint32(f[30:])
		if f[len(f)-1] != byte(n) {
			t.Errorf("frame %d came as the %dth", f[len(f)-1], n)
		}
		if after := left(f) - first; after+1 < uint64(n)*2000 {
			t.Errorf("frame %d left %d us after the first", n, after)
		}
		if uint32(left(f)) != entered+waited {
			t.Errorf("frame %d entered the queue at %d us, waited %d and left at %d", n, entered,
				waited, left(f))
		}
	}
}

// inOwnNamespace runs a test in a new process in a new network namespace. It sets variable in the
// process's environment. A separate process is necessary because the interpreter's threads are in
// the process's namespace.
func inOwnNamespace(t *testing.T, variable string) {
	t.Helper()
	needKernel(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	if top, _, ok := strings.Cut(t.Name(), "/"); ok {
		cmd.Args[1] = "-test.run=^" + top + "$"
	}
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("in a namespace of its own: %v\n%s", err, out)
	}
}

// cablesHere creates veth pairs in the process's namespace.
func cablesHere(t *testing.T, ports ...uint32) *cables {
	t.Helper()
	c := &cables{sockets: map[uint32]int{}}
	noIPv6()
	for _, n := range ports {
		c.plug(t, n)
		c.listen(t, n)
	}
	offload.Dir = t.TempDir()
	return c
}

// TestQueueDepth stops the frames that leave by a port, and checks that a program sees how many
// packets wait: 0 if none does. The interpreter's part runs in its own process, because the
// interpreter's threads are in the process's namespace.
func TestQueueDepth(t *testing.T) {
	if _, err := exec.LookPath("tc"); err != nil {
		t.Skip("no tc (iproute2) on PATH")
	}
	if os.Getenv("NETCRAQ_QUEUE_DEPTH") != "" {
		c := cablesHere(t, 1, 3)
		d, err := userspace.New(userspace.Options{})
		check(t, err)
		queueDepth(t, c, d)
		return
	}
	t.Run("kernel", func(t *testing.T) {
		c := newCables(t, []uint32{1, 3})
		d, err := newDevice(Options{Hook: HookTC, general: true})
		check(t, err)
		queueDepth(t, c, d)
	})
	t.Run("interp", func(t *testing.T) { inOwnNamespace(t, "NETCRAQ_QUEUE_DEPTH") })
}

func queueDepth(t *testing.T, c *cables, d target.Device) {
	defer d.Close()
	tc := func(arguments string) {
		t.Helper()
		if out, err := exec.Command("tc", strings.Fields(arguments)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", arguments, err, out)
		}
	}
	const slow, fast = "tbf rate 100bit burst 1600 limit 1mb", "tbf rate 1gbit burst 100k limit 1mb"
	add := exec.Command("tc", strings.Fields("qdisc add dev s1 root "+slow)...)
	if out, err := add.CombinedOutput(); err != nil {
		t.Skipf("this kernel has no token bucket (sch_tbf): %v: %s", err, out)
	}
	check(t, d.Commit(readProgram(t, "testdata/queues.json")))
	for _, n := range []uint32{1, 3} {
		check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
	}
	send := func(last byte) {
		t.Helper()
		frame := make([]byte, 1400)
		frame[len(frame)-1] = last
		_, err := unix.Write(c.sockets[3], frame)
		check(t, err)
	}
	depth := func(frame []byte) (uint32, uint32) {
		return binary.BigEndian.Uint32(frame[34:]), binary.BigEndian.Uint32(frame[38:])
	}
	take := func(expect int) (got []stf.Packet) {
		t.Helper()
		for begun := time.Now(); len(got) < expect && time.Since(begun) < 20*time.Second; {
			got = append(got, c.takeInOrder(t, expect-len(got))...)
		}
		if len(got) != expect {
			t.Fatalf("%d frames came out, not %d", len(got), expect)
		}
		return got
	}
	// A busy machine needs longer to count waiting packets, so each try pauses for longer than the
	// one before.
	const waiting = 5
	var before, behind uint32
	for pause := 5 * queues.Interval; before == 0; pause *= 2 {
		if pause > 10*time.Second {
			t.Fatalf("a frame that waits for %d others saw none for %v", waiting, pause/2)
		}
		send(0) // the frame leaves at once, with the tokens of a new bucket
		before, behind = depth(take(1)[0].Frame)
		if pause == 5*queues.Interval && (before != 0 || behind != 0) {
			t.Fatalf("a frame that waits for none saw %d and %d", before, behind)
		}
		for range waiting {
			send(0)
		}
		time.Sleep(pause)
		send(1)
		tc("qdisc change dev s1 root " + fast)
		send(2) // The queueing discipline checks its clock when a frame arrives.
		before, behind = depth(take(waiting + 2)[waiting].Frame)
		tc("qdisc change dev s1 root " + slow)
	}
	if before > waiting || behind != before {
		t.Errorf("a frame that waits for %d others saw %d, and %d", waiting, before, behind)
	}
}
