package p4rtserver

import (
	"bytes"
	"crypto/rand"
	"slices"
	"sync"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/metadata"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
)

// Reading only changes. P4Runtime reads a register whole or cell by cell; a controller that has
// read one and wants the changes since must read all of it again. This server sends less to a
// controller that asks for that in a way that the specification leaves free: by metadata of the
// Read of one whole register of bit<W>.
//
// A request with SinceHeader gets SnapshotHeader in the answer's header: a name for the returned
// state. If the request's value is such a name, and the server still knows it, the answer's header
// has it in SinceHeader again, and the answer has only the cells that have changed since. For a
// client that does not ask, and with a server that does not support it, nothing changes.
const (
	SinceHeader    = "netcraq-since"
	SnapshotHeader = "netcraq-snapshot"
)

// snapshotBytes bounds the snapshots of a configuration; the newest are kept: of NetCRAQ's program
// every register but the values', several times over. A client that may read registers can push out
// others' snapshots; they then read everything again.
const snapshotBytes = 8 << 20

// snapshots are the states that readers of registers got.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot // the oldest first
	size int        // of their cells, in bytes
}

// snapshot is what a register's cells were, one after the other.
type snapshot struct {
	name     string
	register uint32
	cells    []byte
}

// take returns the snapshot of a name, and forgets it: its reader gets another.
func (s *snapshots) take(register uint32, name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.kept, func(k snapshot) bool { return k.name == name })
	if at < 0 || s.kept[at].register != register {
		return nil
	}
	cells := s.kept[at].cells
	s.size -= len(cells)
	s.kept = slices.Delete(s.kept, at, at+1)
	return cells
}

// keep stores a snapshot, and returns its name: "" if it is too large. The oldest ones make room.
func (s *snapshots) keep(register uint32, cells []byte) string {
	if len(cells) > snapshotBytes {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := 0
	for s.size += len(cells); s.size > snapshotBytes; old++ {
		s.size -= len(s.kept[old].cells)
	}
	s.kept = slices.Delete(s.kept, 0, old)
	name := rand.Text()
	s.kept = append(s.kept, snapshot{name, register, cells})
	return name
}

// whole is the register that a request asks for, if it asks for all of one whose cells are plain
// bit strings, and for nothing else; otherwise nil.
func (c *config) whole(req *p4v1.ReadRequest) *translate.Register {
	if len(req.Entities) != 1 {
		return nil
	}
	q := req.Entities[0].GetRegisterEntry()
	if q == nil || q.Index != nil {
		return nil
	}
	if r := c.Registers[q.RegisterId]; r != nil && r.Type.Kind == translate.KindBits && r.Size > 0 {
		return r
	}
	return nil
}

// readSince reads a whole register, or its changes since the snapshot of that name, and the header
// that goes with it.
func (c *config) readSince(r *translate.Register, since string, out *response) (metadata.MD, error) {
	cells, err := c.pipe.AppendRegisters(nil, r.Name, 0, r.Size)
	if err != nil {
		return nil, err
	}
	header := metadata.MD{}
	var same func(int) bool
	if was := c.snapshots.take(r.ID, since); len(was) == len(cells) {
		header.Set(SinceHeader, since)
		n := len(cells) / r.Size
		same = func(i int) bool { return bytes.Equal(was[i*n:(i+1)*n], cells[i*n:(i+1)*n]) }
	}
	encodeCells(r, 0, r.Size, cells, same, out)
	if name := c.snapshots.keep(r.ID, cells); name != "" {
		header.Set(SnapshotHeader, name)
	}
	return header, nil
}
