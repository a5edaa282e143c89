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

// Reading only changes. P4Runtime reads a register as a whole or cell by cell. A controller that
// wants only the changes since its last read must read everything again. This server can send only
// the changes. A controller requests this with metadata, which the specification does not define,
// of a Read of one whole register of type bit<W>.
//
// A request with SinceHeader gets SnapshotHeader in the answer's header, which is a name for the
// returned state. If the value of SinceHeader in the request is such a name, and the server still
// has that state, the answer contains only the cells that have changed since then. The answer's
// header then repeats the name in SinceHeader. Clients and servers without this extension work as
// before.
const (
	SinceHeader    = "netcraq-since"
	SnapshotHeader = "netcraq-snapshot"
)

// snapshotBytes is the largest total size of the snapshots of a configuration. The server keeps the
// newest snapshots. This is enough for several snapshots of all registers of NetCRAQ's program,
// except the registers with the values. A client that may read registers can displace the snapshots
// of other clients, which then read everything again.
const snapshotBytes = 8 << 20

// snapshots has the register states that were sent to readers.
type snapshots struct {
	mu   sync.Mutex
	kept []snapshot // the oldest snapshot comes first
	size int        // total size of the snapshots' cells in bytes
}

// snapshot is the content of a register at some time: its cells, one after the other.
type snapshot struct {
	name     string
	register uint32
	cells    []byte
}

// take removes the snapshot with a name and returns it. The reader of this snapshot gets a new one.
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

// keep stores a snapshot and returns its name, or "" if the snapshot is too large. It removes the
// oldest snapshots to make room.
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

// whole returns the register that a request reads, if the request reads exactly one whole register
// whose cells are plain bit strings. Otherwise it returns nil.
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

// readSince reads a whole register, or its changes since the named snapshot, and returns the
// answer's header.
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
