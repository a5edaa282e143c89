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

// Identifier identifies the callers of connections.
type Identifier struct {
	// Cgroups finds the pod of a process. It is nil if this machine has no pods.
	Cgroups *Cgroups
	// Proc is the folder where procfs is mounted. If it is empty, the folder is /proc.
	Proc string
}

// Identify returns the caller that has opened the connection. It never fails. If nothing is known
// about the caller, the result is Unknown.
//
// For a Unix socket, the kernel records the PID of the process that called connect (SO_PEERCRED).
// When the process has ended, the kernel may give its PID to another process. So Identify opens a
// pidfd of the process, reads the process's control group, and then checks that the process still
// exists. From Linux 6.5 on, the socket returns the pidfd (SO_PEERPIDFD), so there is no race. On
// older kernels Identify opens the pidfd by the PID. If another process gets this PID between
// connect and accept, Identify takes that process for the caller.
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

// podOf returns the UID of the pod of the process that a pidfd refers to.
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
	// This check proves that the process that connected has existed until now, so the text that was
	// read belongs to it.
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

// OwnPrefix returns the path before the control groups of pods, as far as this process can see it.
func OwnPrefix() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(PrefixOf(string(text)), "/")
}
