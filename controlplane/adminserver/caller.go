package adminserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Caller identifies the sender of a request, as reported by the kernel or a token.
type Caller struct {
	// Unix says that the request came through a Unix socket. The following fields are the kernel's
	// data about the connecting process (unix(7), SO_PEERCRED), as seen from this process's
	// namespaces.
	Unix     bool
	UID, GID uint32
	PID      int32 // 0 if the process is in a PID namespace that is not visible from here
	// NetNS is the inode of the process's network namespace when it connected, from
	// /proc/PID/ns/net. It is 0 if the namespace is unknown. It is the namespace of the process's
	// first thread. NetNS tells hosts of a lab network apart, but does not stop root, who may enter
	// any namespace.
	NetNS uint64

	// Token is the kind of token that authenticated a request over TCP: TokenAll, TokenRead or
	// TokenPage. It is "" if there was no token.
	Token string
	// Node is the node whose agent forwards the request, as shown by the agent's certificate. It is
	// "" if no node forwards the request.
	Node string

	// ReadOnly says that the caller may not change anything.
	ReadOnly bool
}

// These are the values of Caller.Token.
const (
	TokenAll  = "all"  // the holder may do everything
	TokenRead = "read" // the holder may only read
	TokenPage = "page" // the caller is a browser that followed a one-time link, and may only read
)

// String describes the caller in logs.
func (c Caller) String() string {
	switch {
	case c.Node != "":
		return "the agent of " + c.Node
	case c.Unix:
		return fmt.Sprintf("process %d of user %d", c.PID, c.UID)
	case c.Token != "":
		return "the token for " + c.Token
	}
	return "somebody"
}

type callerKey struct{}

// WithCaller adds the caller to a request's context.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller in the context of a request to this API. It returns false if nobody
// was authenticated, because the API was served without a Server or the path is open to all.
func CallerFrom(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	return c, ok
}

// peer is the known data about the process at the other end of a Unix socket's connection.
type peer struct {
	caller Caller
	groups []uint32 // all of the process's groups
}

// peerOf asks the kernel for the peer. Call it as soon as the connection is accepted, because the
// kernel may reuse a process's number after its end.
func peerOf(c *net.UnixConn) (peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var p peer
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			failed = fmt.Errorf("asking the kernel who has connected: %w", err)
			return
		}
		p.caller = Caller{Unix: true, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid, NetNS: netNS(int(fd), cred)}
		p.groups = append(peerGroups(int(fd)), cred.Gid)
	}); err != nil {
		return peer{}, err
	}
	return p, failed
}

// netNS returns the inode of a connected process's network namespace, or 0. If the kernel provides
// a pidfd for the peer (Linux 6.5), the answer is certainly for the connected process. An older
// kernel gives only the process's number. Then the answer may be for another process of the same
// user, if the connected process has ended and its number was reused.
func netNS(fd int, cred *unix.Ucred) uint64 {
	if cred.Pid == 0 {
		return 0
	}
	dir := fmt.Sprintf("/proc/%d", cred.Pid)
	var owner, space unix.Stat_t
	if unix.Stat(dir, &owner) != nil || unix.Stat(dir+"/ns/net", &space) != nil {
		return 0
	}
	handle, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		if owner.Uid != cred.Uid {
			return 0
		}
		return space.Ino
	}
	defer unix.Close(handle)
	// The process is alive, so no other process had its number while its files were read.
	if alive := unix.PidfdSendSignal(handle, 0, nil, 0); alive != nil && alive != unix.EPERM {
		return 0
	}
	return space.Ino
}

// peerGroups returns the supplementary groups of a connected process.
func peerGroups(fd int) []uint32 {
	out := make([]uint32, 64)
	for {
		size := uint32(len(out) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&out[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == unix.ERANGE && int(size) > len(out)*4 {
			out = make([]uint32, size/4)
			continue
		}
		if errno != 0 {
			return nil
		}
		return slices.Clip(out[:size/4])
	}
}

// allowed reports whether a process may use the API. Processes of root may, and so may those of
// this process's own user, and of the users and the group that Config names.
func (s *Server) allowed(p peer) bool {
	if p.caller.UID == 0 || int(p.caller.UID) == os.Geteuid() || slices.Contains(s.uids, p.caller.UID) {
		return true
	}
	return s.gid >= 0 && slices.Contains(p.groups, uint32(s.gid))
}
