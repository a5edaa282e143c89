package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

// rewrite makes the test compute the "packet" bytes in testdata/vectors.json from the fields. The
// Python package encodes and decodes the same file independently. So its tests detect a mistake of
// Marshal that gets into the file.
var rewrite = flag.Bool("rewrite-vectors", false, "rewrite testdata/vectors.json's bytes from its fields")

const vectorsFile = "testdata/vectors.json"

type vectors struct {
	Comment   string      `json:"comment"`
	Packets   []vector    `json:"packets"`
	Malformed []malformed `json:"malformed"`
}

// vector is a packet, given as fields and as bytes.
type vector struct {
	Name      string   `json:"name"`
	ValueBits int      `json:"valueBits"`
	Op        string   `json:"op"`
	Flags     []string `json:"flags,omitempty"`
	Status    string   `json:"status,omitempty"`
	Epoch     uint16   `json:"epoch,omitempty"`
	Session   uint16   `json:"session,omitempty"`
	Request   uint32   `json:"request,omitempty"`
	Key       string   `json:"key"`
	Version   string   `json:"version"` // a text, because a JSON number cannot hold 64 bits
	Tombstone bool     `json:"tombstone,omitempty"`
	Value     string   `json:"value,omitempty"` // the value in hexadecimal
	// number of repetitions of Value that make up the value, to keep long values readable; 0 means
	// one
	Times  int    `json:"valueRepeats,omitempty"`
	Packet string `json:"packet"` // the packet in hexadecimal, without trailing zeros
}

// malformed is bytes that Unmarshal must refuse.
type malformed struct {
	Name      string `json:"name"`
	ValueBits int    `json:"valueBits"`
	Packet    string `json:"packet"` // the first bytes, in hexadecimal
	Zeros     int    `json:"zeros"`  // number of zero bytes that follow Packet
	Error     string `json:"error"`  // the expected error: profile, truncated, length, op or value
}

var malformedErrors = map[string]error{"profile": ErrProfile, "truncated": ErrTruncated, "length": ErrLength, "op": ErrOp, "value": ErrValue}

func readVectors(t testing.TB) vectors {
	t.Helper()
	b, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var v vectors
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", vectorsFile, err)
	}
	return v
}

func (v *vector) packet(t testing.TB) Packet {
	t.Helper()
	p := Packet{Op: opNamed(t, v.Op), Epoch: v.Epoch, Session: v.Session, Request: v.Request, Tombstone: v.Tombstone}
	for _, name := range v.Flags {
		p.Flags |= flagNamed(t, name)
	}
	if v.Status != "" {
		p.Status = statusNamed(t, v.Status)
	}
	var err error
	if p.Key, err = ParseKey(v.Key); err != nil {
		t.Fatal(err)
	}
	if p.Version, err = ParseVersion(v.Version); err != nil {
		t.Fatal(err)
	}
	value, err := hex.DecodeString(strings.Repeat(v.Value, max(v.Times, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if len(value) > 0 {
		p.Value = value
	}
	return p
}

func opNamed(t testing.TB, name string) Op {
	for o := Op(0); o < 255; o++ {
		if o.Valid() && o.String() == name {
			return o
		}
	}
	t.Fatalf("no op %q", name)
	return 0
}

func flagNamed(t testing.TB, name string) Flags {
	for i, n := range flagNames {
		if n == name {
			return 1 << i
		}
	}
	t.Fatalf("no flag %q", name)
	return 0
}

func statusNamed(t testing.TB, name string) Status {
	for i, n := range statusNames {
		if n == name {
			return Status(i)
		}
	}
	t.Fatalf("no status %q", name)
	return 0
}

func TestVectors(t *testing.T) {
	vs := readVectors(t)
	if *rewrite {
		for i := range vs.Packets {
			v := &vs.Packets[i]
			p := v.packet(t)
			b, err := p.Marshal(Profile(v.ValueBits))
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			v.Packet = hex.EncodeToString(bytes.TrimRight(b, "\x00"))
		}
		b, err := json.MarshalIndent(vs, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ops, profiles := map[Op]bool{}, map[Profile]bool{}
	var flags Flags
	statuses := map[Status]bool{}
	for _, v := range vs.Packets {
		t.Run(v.Name, func(t *testing.T) {
			want := v.packet(t)
			profile := Profile(v.ValueBits)
			golden, err := hex.DecodeString(v.Packet)
			if err != nil {
				t.Fatal(err)
			}
			golden = append(golden, make([]byte, max(0, profile.PacketBytes()-len(golden)))...)
			got, err := want.Marshal(profile)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, golden) {
				t.Errorf("Marshal\n got %x\nwant %x", got, golden)
			}
			var p Packet
			if err := p.Unmarshal(golden, profile); err != nil {
				t.Fatal(err)
			}
			if len(p.Value) == 0 {
				p.Value = nil
			}
			if !reflect.DeepEqual(want, p) {
				t.Errorf("Unmarshal: %+v, want %+v", p, want)
			}
			ops[p.Op], profiles[profile] = true, true
			if p.Op.IsReply() {
				statuses[p.Status] = true
			}
			flags |= p.Flags
		})
	}
	if len(ops) != int(SyncReply) || len(profiles) != len(Profiles) || flags != 0xFF ||
		len(statuses) != len(statusNames) {
		t.Errorf("the vectors have %d ops, %d profiles, flags %v, %d statuses: they should have all", len(ops), len(profiles), flags, len(statuses))
	}
	for _, m := range vs.Malformed {
		t.Run(m.Name, func(t *testing.T) {
			b, err := hex.DecodeString(m.Packet)
			if err != nil {
				t.Fatal(err)
			}
			want := malformedErrors[m.Error]
			if want == nil {
				t.Fatalf("no error is called %q", m.Error)
			}
			before := Packet{Op: Fetch, Request: 77}
			p := before
			err = p.Unmarshal(append(b, make([]byte, m.Zeros)...), Profile(m.ValueBits))
			if !errors.Is(err, want) {
				t.Errorf("Unmarshal says %v, want %v", err, want)
			}
			if !reflect.DeepEqual(before, p) {
				t.Errorf("a failed Unmarshal has changed the packet from %+v to %+v", before, p)
			}
		})
	}
}

// TestHeaderByHand compares the encoding with bytes that were written by hand from the table in
// docs/protocol.md.
func TestHeaderByHand(t *testing.T) {
	p := Packet{
		Op: Write, Flags: Stamped | ByCAS, Epoch: 0x0102, Session: 0x0304, Request: 0x05060708, Key: 0x090A0B0C,
		Version: 0x0D0E0F1011121314, Value: []byte("NetCRAQ"),
	}
	want := []byte{
		3, 0x18, 1, 2, 3, 4, 0, 7, // op, flags, epoch, session, length
		5, 6, 7, 8, 9, 10, 11, 12, // request, key
		13, 14, 15, 16, 17, 18, 19, 20, // version
		'N', 'e', 't', 'C', 'R', 'A', 'Q', 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}
	got, err := p.Marshal(Profile128)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
}
