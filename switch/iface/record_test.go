package iface

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// inNamespace runs the rest of the test on a thread in a network namespace of its own with the veth pair a and b, and with records of its own.
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
	on, err := get(name, s)
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
	check(t, put("a", GenericSegment, false)) // not ours to turn on again
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
	check(t, c.Restore()) // once is enough
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
	check(t, put("a", TxChecksums, false))
	check(t, c.Restore())
	is(t, "a", TxChecksums, false)
	if n := records(t); n != 0 {
		t.Errorf("%d records of an interface that is gone", n)
	}
}

// TestTurnOff is not a test: TestKilled runs it as another process, which turns a setting off and waits to be killed.
func TestTurnOff(t *testing.T) {
	dir := os.Getenv("NETCRAQ_TEST_RECORDS")
	if dir == "" {
		t.Skip("only for TestKilled")
	}
	Dir = dir
	_, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	println("off")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the test is gone, too
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
	// Nothing is undone while it lives.
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
	// Who goes on where a dead process was knows what was on before.
	kill(turnOff())
	c, err := Off("a", index(t, "a"), TxChecksums)
	check(t, err)
	check(t, c.Restore())
	is(t, "a", TxChecksums, true)
}

func TestWithoutRecords(t *testing.T) {
	inNamespace(t)
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	Dir = filepath.Join(file, "records") // cannot be made
	c, err := Off("a", index(t, "a"), TxChecksums)
	if err == nil || !errors.Is(err, os.ErrExist) && !strings.Contains(err.Error(), "undone after a crash") {
		t.Errorf("the error is %v", err)
	}
	is(t, "a", TxChecksums, false)
	check(t, c.Restore())
}
