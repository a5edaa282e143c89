package offload

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// inNamespace runs the rest of the test on a thread in a new network namespace with the veth pair a
// and b. The test gets a folder of its own for record files.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	check(t, err)
	space, err := netns.New()
	check(t, err)
	t.Cleanup(func() {
		space.Close()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	})
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}))
	before := Dir
	if d := os.Getenv("NETCRAQ_TEST_RECORDS"); d != "" {
		Dir = d
	} else {
		Dir = t.TempDir()
	}
	t.Cleanup(func() { Dir = before })
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func index(t *testing.T, name string) int {
	t.Helper()
	l, err := net.InterfaceByName(name)
	check(t, err)
	return l.Index
}

func is(t *testing.T, name string, s Setting, want bool) {
	t.Helper()
	on, err := IsOn(name, s)
	check(t, err)
	if on != want {
		t.Errorf("%s of %s is on: %v, want %v", s, name, on, want)
	}
}

func records(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Dir, "*-*"))
	check(t, err)
	return len(files)
}

func TestOffAndRestore(t *testing.T) {
	inNamespace(t)
	for _, s := range []Setting{TxChecksums, TxVLAN, GenericSegment} {
		is(t, "a", s, true)
	}
	// Off did not turn this setting off, so it must stay off.
	check(t, set("a", GenericSegment, false))
	c, err := Off("a", index(t, "a"), TxChecksums, TxVLAN, GenericSegment, LargeReceive)
	check(t, err)
	for _, s := range []Setting{TxChecksums, TxVLAN, GenericSegment, LargeReceive} {
		is(t, "a", s, false)
	}
	if n := records(t); n != 2 {
		t.Errorf("%d records of two changes", n)
	}
	check(t, c.Restore())
	is(t, "a", TxChecksums, true)
	is(t, "a", TxVLAN, true)
	is(t, "a", GenericSegment, false)
	if n := records(t); n != 0 {
		t.Errorf("%d records are left", n)
	}
	check(t, c.Restore()) // a second Restore does nothing
}

func TestTheLastOneTurnsItOn(t *testing.T) {
	inNamespace(t)
	first, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	second, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	check(t, first.Restore())
	is(t, "a", TxChecksums, false)
	check(t, second.Restore())
	is(t, "a", TxChecksums, true)
}

func TestAnotherInterfaceOfThatName(t *testing.T) {
	inNamespace(t)
	c, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	l, err := netlink.LinkByName("a")
	check(t, err)
	check(t, netlink.LinkDel(l))
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b"}))
	check(t, set("a", TxChecksums, false))
	check(t, c.Restore())
	is(t, "a", TxChecksums, false)
	if n := records(t); n != 0 {
		t.Errorf("%d records of an interface that is gone", n)
	}
}

// TestTurnOff is not a test by itself. TestKilled runs it as a separate process, which turns a
// setting off and waits until TestKilled kills it.
func TestTurnOff(t *testing.T) {
	dir := os.Getenv("NETCRAQ_TEST_RECORDS")
	if dir == "" {
		t.Skip("only for TestKilled")
	}
	Dir = dir
	_, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	println("off")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // this read also ends when the test ends
}

func TestKilled(t *testing.T) {
	inNamespace(t)
	turnOff := func() *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Args[0], "-test.run=^TestTurnOff$")
		cmd.Env = append(os.Environ(), "NETCRAQ_TEST_RECORDS="+Dir)
		said, err := cmd.StderrPipe()
		check(t, err)
		_, err = cmd.StdinPipe()
		check(t, err)
		check(t, cmd.Start())
		if line, _ := bufio.NewReader(said).ReadString('\n'); !strings.HasPrefix(line, "off") {
			t.Fatalf("the other process said %q", line)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	// Nothing is undone while the process is alive.
	one := turnOff()
	check(t, Recover())
	is(t, "a", TxChecksums, false)
	kill(one)
	is(t, "a", TxChecksums, false)
	check(t, Recover())
	is(t, "a", TxChecksums, true)
	if n := records(t); n != 0 {
		t.Errorf("%d records are left", n)
	}
	// A process that takes over from a dead process knows which settings were on before.
	kill(turnOff())
	c, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	check(t, c.Restore())
	is(t, "a", TxChecksums, true)
}

// TestKilledElsewhere restores, from one namespace, the settings that a dead process changed in
// another namespace, in which another process runs.
func TestKilledElsewhere(t *testing.T) {
	inNamespace(t)
	there, err := netns.Get()
	check(t, err)
	defer there.Close()
	inside := exec.Command("sleep", "60") // the process keeps this thread's namespace alive
	check(t, inside.Start())
	defer func() { _ = inside.Process.Kill(); _ = inside.Wait() }()
	path, err := pathOf(index(t, "a"), TxChecksums)
	check(t, err)
	check(t, os.MkdirAll(Dir, 0o700))
	// This process has another start time, so the owner counts as dead.
	check(t, write(path, record{Iface: "a", Owners: []owner{{PID: os.Getpid(), Start: 1}}}))
	check(t, set("a", TxChecksums, false))
	elsewhere, err := netns.New()
	check(t, err)
	defer elsewhere.Close()
	check(t, Recover())
	check(t, netns.Set(there))
	is(t, "a", TxChecksums, true)
	if n := records(t); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// TestFilters checks that filters of living processes stay. Filters of dead processes must be
// removed, together with the discipline that these processes added.
func TestFilters(t *testing.T) {
	inNamespace(t)
	l, err := netlink.LinkByName("a")
	check(t, err)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	defer prog.Close()
	mine, err := FilterName(false)
	check(t, err)
	count := func() (filters, disciplines int) {
		t.Helper()
		f, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		check(t, err)
		q, err := netlink.QdiscList(l)
		check(t, err)
		for _, q := range q {
			if q.Type() == "clsact" {
				disciplines++
			}
		}
		return len(f), disciplines
	}
	for _, c := range []struct {
		name                 string
		filters, disciplines int
	}{
		{mine, 1, 1}, {"somebody's", 1, 1}, {fmt.Sprintf("netcraq-%d-1", os.Getpid()), 0, 1},
		{fmt.Sprintf("netcraq-%d-1-q", os.Getpid()), 0, 0},
	} {
		check(t, netlink.QdiscReplace(Discipline(l.Attrs().Index)))
		f := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index,
			Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: 3, Priority: 1},
			Name: c.name, DirectAction: true, Fd: prog.FD()}
		check(t, netlink.FilterAdd(f))
		check(t, Recover())
		if filters, disciplines := count(); filters != c.filters || disciplines != c.disciplines {
			t.Errorf("%q: %d filters and %d disciplines are left, not %d and %d", c.name, filters,
				disciplines, c.filters, c.disciplines)
		}
		if c.filters > 0 {
			check(t, netlink.FilterDel(f))
		}
	}
}

func TestWithoutRecords(t *testing.T) {
	inNamespace(t)
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	Dir = filepath.Join(file, "records") // this folder cannot be created
	c, err := Off("a", index(t, "a"), TxChecksums)
	if err == nil || !errors.Is(err, os.ErrExist) &&
		!strings.Contains(err.Error(), "undone after a crash") {
		t.Errorf("the error is %v", err)
	}
	is(t, "a", TxChecksums, false)
	check(t, c.Restore())
}
