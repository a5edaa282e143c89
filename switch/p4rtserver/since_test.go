package p4rtserver

import (
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/metadata"
)

// since is a client that reads registers of the program testdata/entities.
type since struct {
	*world
	t  *testing.T
	me *p4v1.Uint128
}

func newSince(t *testing.T) *since {
	w := &since{world: newWorld(t, "testdata/entities"), t: t, me: &p4v1.Uint128{Low: 1}}
	stream, err := w.rpc.StreamChannel(t.Context())
	w.must(err)
	w.must(stream.Send(&p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{DeviceId: 1, ElectionId: w.me}}}))
	_, err = stream.Recv()
	w.must(err)
	w.commit()
	return w
}

func (w *since) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *since) commit() {
	w.t.Helper()
	_, err := w.rpc.SetForwardingPipelineConfig(w.t.Context(),
		&p4v1.SetForwardingPipelineConfigRequest{DeviceId: 1, ElectionId: w.me,
			Action: p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
			Config: &p4v1.ForwardingPipelineConfig{P4Info: w.info, P4DeviceConfig: w.program}})
	w.must(err)
}

func (w *since) cell(register string, index int64) *p4v1.RegisterEntry {
	e := &p4v1.RegisterEntry{RegisterId: w.ids[register]}
	if e.RegisterId == 0 {
		w.t.Fatalf("the program has no register %s", register)
	}
	if index >= 0 {
		e.Index = &p4v1.Index{Index: index}
	}
	return e
}

func (w *since) write(register string, index int64, value byte) {
	w.t.Helper()
	e := w.cell(register, index)
	e.Data = &p4v1.P4Data{Data: &p4v1.P4Data_Bitstring{Bitstring: []byte{value}}}
	_, err := w.rpc.Write(w.t.Context(), &p4v1.WriteRequest{DeviceId: 1, ElectionId: w.me,
		Updates: []*p4v1.Update{{Type: p4v1.Update_MODIFY, Entity: &p4v1.Entity{
			Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: e}}}}})
	w.must(err)
}

// read returns the cells in the answer, which must have distinct indices. It also returns the
// values of the two headers: the name of the snapshot to which the changes refer, and the name of
// the new snapshot.
func (w *since) read(md metadata.MD, what ...*p4v1.RegisterEntry) (cells map[int64]byte, base,
	name string) {
	w.t.Helper()
	q := &p4v1.ReadRequest{DeviceId: 1}
	for _, e := range what {
		q.Entities = append(q.Entities,
			&p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: e}})
	}
	stream, err := w.rpc.Read(metadata.NewOutgoingContext(w.t.Context(), md), q)
	w.must(err)
	cells = map[int64]byte{}
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		for _, e := range answer.Entities {
			r := e.GetRegisterEntry()
			b := r.Data.GetBitstring()
			if b == nil {
				b = []byte{0} // the value of a signed register has no bitstring
			}
			cells[r.Index.Index] = b[len(b)-1]
		}
	}
	header, err := stream.Header()
	w.must(err)
	one := func(key string) string {
		switch v := header.Get(key); len(v) {
		case 0:
			return ""
		case 1:
			return v[0]
		default:
			w.t.Fatalf("the answer has %s %q", key, v)
			return ""
		}
	}
	return cells, one(SinceHeader), one(SnapshotHeader)
}

func (w *since) ask(register, name string) (cells map[int64]byte, base, next string) {
	w.t.Helper()
	return w.read(metadata.Pairs(SinceHeader, name), w.cell(register, -1))
}

// TestSince checks that a client that names the snapshot of its last answer gets only the changes
// of that register. Each name works only once. A client that sends another name, or makes another
// kind of request, must get all requested cells.
func TestSince(t *testing.T) {
	const size = 65536
	w := newSince(t)
	w.write("objects", 3, 33)
	cells, base, first := w.ask("objects", "")
	if len(cells) != size || cells[3] != 33 || base != "" || first == "" {
		t.Fatalf("%d cells, cell 3 is %d, since %q, named %q", len(cells), cells[3], base, first)
	}
	w.write("objects", 7, 77)
	w.write("objects", 3, 0)
	w.write("objects", 8, 88)
	w.write("objects", 8, 0) // the cell gets its earlier value again
	w.write("last_len", 5, 5)
	cells, base, second := w.ask("objects", first)
	if want := map[int64]byte{7: 77, 3: 0}; !maps.Equal(cells, want) || base != first ||
		second == "" || second == first {
		t.Errorf("since %q (%q was asked) %v changed, want %v; named %q", base, first, cells, want,
			second)
	}
	if cells, base, _ = w.ask("objects", second); len(cells) != 0 || base != second {
		t.Errorf("nothing has changed, and the answer since %q is %v", base, cells)
	}
	for _, name := range []string{first, "", "no such", second} { // each name is valid only once
		if cells, base, _ = w.ask("objects", name); len(cells) != size || base != "" {
			t.Errorf("since %q: %d cells, since %q", name, len(cells), base)
		}
	}

	// The name of another register's snapshot has no effect, and stays valid for its own register.
	_, _, objects := w.ask("objects", "")
	if cells, base, _ = w.ask("last_len", objects); len(cells) != 512 || cells[5] != 5 || base != "" {
		t.Errorf("another register: %d cells, since %q", len(cells), base)
	}
	if cells, base, objects = w.ask("objects", objects); len(cells) != 0 || base == "" {
		t.Errorf("after another register: %d cells, since %q", len(cells), base)
	}

	// A request for anything other than one whole register of plain bits gets the usual answer.
	md := metadata.Pairs(SinceHeader, objects)
	for text, what := range map[string][]*p4v1.RegisterEntry{
		"a cell":        {w.cell("objects", 7)},
		"two registers": {w.cell("last_len", -1), w.cell("narrow", -1)},
		"signed cells":  {w.cell("deltas", -1)},
	} {
		if cells, base, name := w.read(md, what...); len(cells) == 0 || base != "" || name != "" {
			t.Errorf("%s: %d cells, since %q, named %q", text, len(cells), base, name)
		}
	}
	md.Append(SinceHeader, "another")
	if cells, base, name := w.read(md, w.cell("objects", -1)); len(cells) != size || base != "" ||
		name != "" {
		t.Errorf("two names: %d cells, since %q, named %q", len(cells), base, name)
	}
	if cells, _, name := w.read(nil, w.cell("objects", -1)); len(cells) != size || name != "" {
		t.Errorf("nobody asked, and the answer has %d cells and is named %q", len(cells), name)
	}

	// Registers of another program are different registers, even if they have the same names.
	_, _, objects = w.ask("objects", "")
	w.commit()
	if cells, base, _ = w.ask("objects", objects); len(cells) != size || base != "" || cells[7] != 0 {
		t.Errorf("another program: %d cells, since %q, cell 7 is %d", len(cells), base, cells[7])
	}
}

// TestSnapshotsAreBounded checks that a client that reads again and again cannot use more memory
// than the limit.
func TestSnapshotsAreBounded(t *testing.T) {
	var s snapshots
	const one = snapshotBytes / 4
	var names []string
	for range 1000 {
		names = append(names, s.keep(1, make([]byte, one)))
	}
	if s.size > snapshotBytes || len(s.kept) != 4 {
		t.Errorf("%d snapshots of %d bytes are kept", len(s.kept), s.size)
	}
	if s.take(1, names[995]) != nil || s.take(2, names[999]) != nil {
		t.Error("what was forgotten is there, or another register's")
	}
	for _, name := range names[996:] {
		if s.take(1, name) == nil {
			t.Error("the newest are not there")
		}
	}
	if s.size != 0 || len(s.kept) != 0 {
		t.Errorf("%d bytes are left in %d", s.size, len(s.kept))
	}
	if name := s.keep(1, make([]byte, snapshotBytes+1)); name != "" || s.size != 0 {
		t.Errorf("one that is too large is kept by the name %q", name)
	}
	if name := s.keep(1, make([]byte, snapshotBytes)); s.take(1, name) == nil {
		t.Error("one that just fits is not kept")
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 1000 {
		t.Error("two have one name")
	}
}
