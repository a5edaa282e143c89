package node

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Config configures a client. Zero values mean the defaults in the fields' comments.
type Config struct {
	// Socket is the address of the node's server: a path, or "tcp://host:port". If it is empty, the
	// client takes $NETCRAQ_NODE_SOCKET, otherwise the socket of a running `netcraq dev`, otherwise
	// /run/netcraq/node.sock.
	Socket string
	// Namespace is the namespace of the keys. If it is empty, the program's own namespace is used.
	Namespace string
	// Agent is this program's name in the server's logs. If it is empty, the command's name is
	// used.
	Agent string
	// Wait bounds how long Connect waits for the server. 0 means 30 s.
	Wait time.Duration
	// Timeout bounds calls whose context has no deadline. 0 means 5 s.
	Timeout time.Duration
	// InFlight bounds the number of calls under way; further calls wait for room. 0 means 512. If
	// the server's bound is smaller, the server's bound applies. Locks, campaigns and permits that
	// wait have their own room of the same size.
	InFlight int
}

// maxWaitingBytes bounds the bytes of requests under way; further requests wait for room.
const maxWaitingBytes = 4 << 20

func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = nodeapi.FindSocket(os.Getenv)
	}
	if c.Agent == "" {
		c.Agent = "go " + os.Args[0][strings.LastIndexByte(os.Args[0], '/')+1:]
	}
	if c.Wait == 0 {
		c.Wait = 30 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = nodeapi.DefaultTimeoutMillis * time.Millisecond
	}
	if c.InFlight == 0 {
		c.InFlight = 512
	}
	return c
}

// endpoint splits the socket's address into a network and an address for package net.
func endpoint(socket string) (network, address string) {
	if rest, ok := strings.CutPrefix(socket, "tcp://"); ok {
		return "tcp", rest
	}
	return "unix", strings.TrimPrefix(socket, "unix://")
}

// newIdentity returns a random name by which the server recognizes this client's repeated requests.
func newIdentity() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // rand.Read never fails
	return hex.EncodeToString(b[:])
}
