package authority

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Identifier finds out which caller is behind a connection.
type Identifier struct {
	// Cgroups finds the pod of a process; nil: this machine has no pods, so none are looked up.
	Cgroups *Cgroups
	// Proc is where procfs is mounted; "": /proc.
	Proc string
}

// Identify returns the caller that has connected. It never fails; if nothing is known about the
// caller, the result is Unknown.
//
// For a Unix socket the kernel records the process that called connect (SO_PEERCRED) by its PID,
// and reuses that number after the process has gone. So Identify holds the process by a pidfd while
// it reads its control group, and then checks that it existed all the time. From Linux 6.5 on the
// pidfd comes from the socket (SO_PEERPIDFD), and there is no gap. On older kernels it is opened by
// number, so a process that gets that number between connect and accept is mistaken for the one
// that connected.
func (i Identifier) Identify(nc net.Conn) Caller {
	if a := nc.RemoteAddr(); a != nil && a.Network() != "unix" {
		return Caller{Kind: TCP, Address: a.String()}
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return Caller{Why: fmt.Sprintf("a connection of the type %T is not the kernel's", nc)}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Caller{Why: err.Error()}
	}
	var c Caller
	if err := raw.Control(func(fd uintptr) { c, err = i.identify(int(fd)) }); err != nil {
		return Caller{Why: err.Error()}
	}
	if err != nil {
		return Caller{Why: err.Error()}
	}
	return c
}

func (i Identifier) identify(socket int) (Caller, error) {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Caller{}, fmt.Errorf("who has connected (SO_PEERCRED): %w", err)
	}
	groups, err := peerGroups(socket)
	if err != nil {
		return Caller{}, err
	}
	c := Caller{Kind: Process, PID: cred.Pid, UID: cred.Uid, GID: cred.Gid, Groups: groups}
	if i.Cgroups == nil {
		return c, nil
	}
	if cred.Pid <= 0 {
		return Caller{}, errors.New("the process is not seen from the server's PID namespace (hostPID)")
	}
	pidfd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOPROTOOPT) {
		pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if err != nil {
		return Caller{}, fmt.Errorf("holding the process that connected: %w", err)
	}
	defer unix.Close(pidfd)
	unix.CloseOnExec(pidfd)
	if c.PodUID, err = i.podOf(pidfd, int(cred.Pid)); err != nil {
		return Caller{}, err
	}
	if c.PodUID != "" {
		c.Kind = Pod
	}
	return c, nil
}

// podOf finds the pod of a process that a pidfd refers to.
func (i Identifier) podOf(pidfd, pid int) (string, error) {
	proc := i.Proc
	if proc == "" {
		proc = "/proc"
	}
	f, err := os.Open(proc + "/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", fmt.Errorf("the control group of the process: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCgroupFile+1))
	if err != nil {
		return "", fmt.Errorf("the control group of the process: %w", err)
	}
	if len(text) > maxCgroupFile {
		return "", fmt.Errorf("the control groups of the process have more than %d bytes", maxCgroupFile)
	}
	// The text belongs to the process that connected only if that process existed until now.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return "", fmt.Errorf("the process that connected has gone: %w", err)
	}
	return i.Cgroups.PodUID(string(text))
}

// peerGroups returns the supplementary groups of the process that connected.
func peerGroups(socket int) ([]uint32, error) {
	for room := 32; ; {
		groups := make([]uint32, room)
		size := uint32(4 * room)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4], nil
		case errno == unix.ERANGE && size > uint32(4*room):
			room = int(size / 4)
		case errno == unix.ENODATA: // the kernel does not have this option
			return nil, nil
		default:
			return nil, fmt.Errorf("reading the groups of the caller (SO_PEERGROUPS): %w", errno)
		}
	}
}

// OwnPrefix is the path before the pods' control groups, as far as this process can see.
func OwnPrefix() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(PrefixOf(string(text)), "/")
}
