package server

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is who has connected, as the kernel says.
type Peer struct {
	// Local: by a Unix socket; PID, UID and GID are then those of the process that connected, in
	// this process's namespaces.
	Local    bool
	PID      int32
	UID, GID uint32
	Address  string // by TCP
}

func (p Peer) String() string {
	if p.Local {
		return fmt.Sprintf("uid %d gid %d pid %d", p.UID, p.GID, p.PID)
	}
	return p.Address
}

// principal is what requests' identities are kept under, beside the client's own name.
func (p Peer) principal() string {
	if p.Local {
		return fmt.Sprintf("uid:%d", p.UID)
	}
	host, _, _ := net.SplitHostPort(p.Address)
	return "host:" + host
}

func peerOf(nc net.Conn) Peer {
	if a := nc.RemoteAddr(); a != nil && a.Network() != "unix" {
		return Peer{Address: a.String()}
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return Peer{}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}
	}
	var p Peer
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			p = Peer{Local: true, PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}
		}
	})
	return p
}
