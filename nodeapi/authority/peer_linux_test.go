package authority

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// The test binary also acts as the process that connects. With the arguments "connect PATH" it
// connects, and waits until its input ends. With "pass PATH" it passes its connection to its parent
// on descriptor 3, and ends.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == "connect" || os.Args[1] == "pass") {
		if err := connectFor(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func connectFor(what, path string) error {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	if what == "pass" {
		f, err := nc.(*net.UnixConn).File()
		if err != nil {
			return err
		}
		return unix.Sendmsg(3, []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0)
	}
	fmt.Println("connected")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

func listen(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	_ = l.SetDeadline(time.Now().Add(20 * time.Second))
	return l, path
}

// self returns the path of the test binary.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// process starts the test binary as a process that connects to a socket. The returned function ends
// the process.
func process(t *testing.T, program, path string, as *syscall.Credential) (*exec.Cmd, func()) {
	t.Helper()
	cmd := exec.Command(program, "connect", path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	return cmd, end
}

// proc makes a fake /proc, in which the processes are in the given control groups.
func proc(t *testing.T, of map[int]string) string {
	t.Helper()
	dir := t.TempDir()
	for pid, path := range of {
		if err := os.MkdirAll(filepath.Join(dir, itoa(pid)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, itoa(pid), "cgroup"), []byte("0::"+path+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func accept(t *testing.T, l *net.UnixListener) net.Conn {
	t.Helper()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func TestIdentify(t *testing.T) {
	l, path := listen(t)
	cmd, _ := process(t, self(t), path, nil)
	nc := accept(t, l)
	pid := cmd.Process.Pid
	groups, _ := os.Getgroups()
	got := Identifier{}.Identify(nc)
	if got.Kind != Process || int(got.PID) != pid ||
		int(got.UID) != os.Getuid() || int(got.GID) != os.Getgid() || len(got.Groups) != len(groups) {
		t.Errorf("a process: %+v, want pid %d", got, pid)
	}
	if got := (Identifier{Cgroups: &Cgroups{}}).Identify(nc); got.Kind != Process || got.PodUID != "" {
		t.Errorf("a process that is in no pod: %+v", got)
	}
	in := func(path string) Caller {
		return Identifier{Cgroups: &Cgroups{}, Proc: proc(t, map[int]string{pid: path})}.Identify(nc)
	}
	if got := in("/kubepods/pod" + uidA + "/" + id); got.Kind != Pod || got.PodUID != uidA {
		t.Errorf("a pod: %+v", got)
	}
	if got := in(strings.Repeat("/x", maxCgroupFile)); got.Kind != Unknown || !strings.Contains(got.Why, "more than") {
		t.Errorf("a long path: kind %d, %.100s", got.Kind, got.Why)
	}
	if got := (Identifier{Cgroups: &Cgroups{}, Proc: t.TempDir()}).Identify(nc); got.Kind != Unknown {
		t.Errorf("a process that /proc does not have: %+v", got)
	}
}

func TestIdentifyAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be other users: their numbers are not read")
	}
	dir, err := os.MkdirTemp("/tmp", "authority")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = l.SetDeadline(time.Now().Add(20 * time.Second))
	if err := os.Chmod(dir+"/s", 0o666); err != nil {
		t.Fatal(err)
	}
	var many []uint32
	for g := range uint32(100) {
		many = append(many, 5000+g)
	}
	program, err := os.ReadFile(self(t)) // make a copy of the test binary that every user can start
	if err == nil {
		err = os.WriteFile(dir+"/program", program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	process(t, dir+"/program", dir+"/s", &syscall.Credential{Uid: 4321, Gid: 4322, Groups: many})
	got := Identifier{}.Identify(accept(t, l))
	slices.Sort(got.Groups)
	if got.UID != 4321 || got.GID != 4322 || !slices.Equal(got.Groups, many) {
		t.Errorf("%+v", got)
	}
}

// TestPassedSocket checks a process that passes its connection to another process and ends. The
// caller is not the process that holds the connection now. Any process may have the PID of the
// process that connected, so the PID proves nothing.
func TestPassedSocket(t *testing.T) {
	l, path := listen(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	cmd := exec.Command(self(t), "pass", path)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
	if err := cmd.Run(); err != nil { // after Run the process has ended, and its PID is free
		t.Fatal(err)
	}
	theirs.Close()
	oob := make([]byte, unix.CmsgSpace(4))
	if _, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, 0); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	lent := os.NewFile(uintptr(fds[0]), "lent")
	defer lent.Close()
	if _, err := lent.WriteString("hello"); err != nil {
		t.Fatal("the connection does not live in the other's hands:", err)
	}
	nc := accept(t, l)
	// Another process, in a pod, has got the PID.
	reused := proc(t, map[int]string{
		cmd.Process.Pid: "/kubepods/pod" + uidB + "/" + id, os.Getpid(): "/kubepods/pod" + uidA + "/" + id})
	got := Identifier{Cgroups: &Cgroups{}, Proc: reused}.Identify(nc)
	if got.Kind != Unknown {
		t.Errorf("a connection of a process that has gone is %s", got)
	}
}

// TestPassedWhileItLives checks a passed connection while the process that connected still runs.
// The connection has the rights of that process, whichever process holds the connection.
func TestPassedWhileItLives(t *testing.T) {
	l, path := listen(t)
	cmd, end := process(t, self(t), path, nil)
	nc := accept(t, l)
	in := Identifier{Cgroups: &Cgroups{}, Proc: proc(t, map[int]string{
		cmd.Process.Pid: "/kubepods/pod" + uidA + "/" + id, os.Getpid(): "/kubepods/pod" + uidB + "/" + id})}
	if got := in.Identify(nc); got.PodUID != uidA {
		t.Errorf("%+v", got)
	}
	end()
	if got := in.Identify(nc); got.Kind != Unknown {
		t.Errorf("after its end: %+v", got)
	}
}

func TestIdentifyTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if got := (Identifier{}).Identify(nc); got.Kind != TCP || got.Address == "" {
		t.Errorf("%+v", got)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := (Identifier{}).Identify(a); got.Kind != Unknown && got.Kind != TCP {
		t.Errorf("a pipe: %+v", got)
	}
}
