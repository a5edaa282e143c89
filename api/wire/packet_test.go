package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestMarshalRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		packet  Packet
		profile Profile
		want    error
	}{
		{"no profile", Packet{Op: Read}, 127, ErrProfile},
		{"profile 0", Packet{Op: Read}, 0, ErrProfile},
		{"op 0", Packet{}, Profile128, ErrOp},
		{"op beyond the last", Packet{Op: 15}, Profile128, ErrOp},
		{"value one byte too long", Packet{Op: Write, Value: make([]byte, 17)}, Profile128, ErrValue},
		{"value too long for the widest", Packet{Op: Write, Value: make([]byte, 1025)}, Profile8192, ErrValue},
		{"tombstone with a value", Packet{Op: Write, Tombstone: true, Value: []byte{1}}, Profile128, ErrTombstone},
		{"status in a request", Packet{Op: Read, Status: Retry}, Profile128, ErrMeaning},
		{"status in an ACK", Packet{Op: Ack, Status: Retry}, Profile128, ErrMeaning},
		{"flags in a reply", Packet{Op: ReadReply, Flags: Eventual}, Profile128, ErrMeaning},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if b, err := tc.packet.Marshal(tc.profile); !errors.Is(err, tc.want) || b != nil {
				t.Errorf("Marshal = %x, %v; want %v", b, err, tc.want)
			}
			before := []byte("before")
			if b, err := tc.packet.AppendTo(before, tc.profile); !errors.Is(err, tc.want) || !bytes.Equal(b, before) {
				t.Errorf("AppendTo = %q, %v; want %q, %v", b, err, before, tc.want)
			}
		})
	}
}

func TestUnmarshalDoesNotLookBehindTheValue(t *testing.T) {
	p := Packet{Op: Write, Value: []byte("ab")}
	b, err := p.Marshal(Profile128)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] = 0xEE
	var got Packet
	if err := got.Unmarshal(b, Profile128); err != nil {
		t.Fatal(err)
	}
	if string(got.Value) != "ab" || cap(got.Value) != 2 {
		t.Errorf("value %q with capacity %d: an append would reach into the packet", got.Value, cap(got.Value))
	}
}

func TestNames(t *testing.T) {
	p := Packet{Op: Write, Flags: Stamped, Epoch: 1, Session: 3, Request: 9, Key: MakeKey(1, 7),
		Version: MakeVersion(1, 4), Value: []byte("on")}
	for _, tc := range []struct{ got, want string }{
		{p.String(), `WRITE key=0x01000007 session=3 request=9 flags=STAMPED epoch=1 version=1.4 value="on"`},
		{(&Packet{Op: ReadReply, Status: NotFound, Tombstone: true}).String(), `READ_REPLY key=0x00000000 status=NOT_FOUND tombstone`},
		{(&Packet{Op: Write, Value: []byte{0xFF, 1}}).String(), `WRITE key=0x00000000 value=hex:ff01`},
		{Op(0).String(), "OP(0)"}, {Op(200).String(), "OP(200)"}, {Status(77).String(), "STATUS(77)"}, {Status(9).String(), "DIRTY"},
		{Flags(0).String(), "0"}, {(Eventual | ToHead).String(), "EVENTUAL|TO_HEAD"}, {Session.String(), "SESSION"},
		{Version(0).String(), "0"}, {MakeVersion(65535, MaxSequence).String(), "65535.281474976710655"},
		{FormatValue([]byte("grüße"), 3), `"gr"... (5 bytes more)`}, {FormatValue(bytes.Repeat([]byte{0}, 5), 2), `hex:0000... (3 bytes more)`},
		{FormatValue([]byte("short"), 0), `"short"`},
	} {
		if tc.got != tc.want {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Key{"0x01000007": 0x01000007, "16777223": 0x01000007, "0XfF": 255, "0": 0, "4294967295": 0xFFFFFFFF} {
		if k, err := ParseKey(s); err != nil || k != want {
			t.Errorf("ParseKey(%q) = %v, %v", s, k, err)
		}
	}
	for _, s := range []string{"", "0x", "-1", "4294967296", "0x100000000", "abc", "1_000", "/registry/x"} {
		if k, err := ParseKey(s); err == nil {
			t.Errorf("ParseKey(%q) = %v, want an error", s, k)
		}
	}
	for s, want := range map[string]Version{"0": 0, "3.17": MakeVersion(3, 17), "844424930131985": MakeVersion(
		3, 17), "0x0003000000000011": MakeVersion(3, 17)} {
		if v, err := ParseVersion(s); err != nil || v != want {
			t.Errorf("ParseVersion(%q) = %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"", ".", "3.", ".3", "65536.1", "1.281474976710656", "1.2.3", "18446744073709551616", "-1", "x"} {
		if v, err := ParseVersion(s); err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", s, v)
		}
	}
	for _, p := range Profiles {
		if got, err := ParseProfile(p.String()); err != nil || got != p {
			t.Errorf("ParseProfile(%v) = %v, %v", p, got, err)
		}
		if got, err := ProfileOfValue(p.ValueBytes()); err != nil || got != p {
			t.Errorf("ProfileOfValue(%d) = %v, %v", p.ValueBytes(), got, err)
		}
	}
	if _, err := ParseProfile("256"); err == nil {
		t.Error("ParseProfile(256): want an error")
	}
}

func TestOpsKnowTheirReplies(t *testing.T) {
	replies := map[Op]bool{}
	for o := Op(0); o < 20; o++ {
		r, ok := o.Reply()
		if ok != (o.Valid() && !o.IsReply() && o != Ack) {
			t.Errorf("%v.Reply() = %v, %v", o, r, ok)
		}
		if ok {
			if !r.IsReply() || replies[r] || !strings.HasPrefix(r.String(), o.String()) {
				t.Errorf("%v.Reply() = %v", o, r)
			}
			replies[r] = true
		}
	}
}

func TestFrame(t *testing.T) {
	f := Frame{
		EthernetDst: [6]byte{2, 0, 0, 0, 0, 1}, EthernetSrc: [6]byte{2, 0, 0, 0, 0, 2},
		Src: netip.MustParseAddrPort("10.0.0.1:40000"), Dst: netip.MustParseAddrPort("10.0.0.100:20035"),
	}
	b, err := f.AppendTo(nil, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	const checksum = 0x6666 // computed by hand: ~(4500 + 0023 + 4011 + 0a00 + 0001 + 0a00 + 0064)
	if b[24] != checksum>>8 || b[25] != checksum&0xFF {
		t.Errorf("IPv4 checksum %x, want %x", b[24:26], checksum)
	}
	got, payload, err := ParseFrame(append(b, 0, 0, 0)) // Ethernet adds padding to short frames
	if err != nil || string(payload) != "payload" || got != f {
		t.Errorf("ParseFrame = %+v, %q, %v", got, payload, err)
	}
	for name, spoil := range map[string]func(b []byte) []byte{
		"truncated":             func(b []byte) []byte { return b[:FrameOverhead-1] },
		"cut in the payload":    func(b []byte) []byte { return b[:len(b)-1] },
		"not IPv4":              func(b []byte) []byte { b[12] = 0x86; return b },
		"IPv4 with options":     func(b []byte) []byte { b[14] = 0x46; return b },
		"a fragment":            func(b []byte) []byte { b[20] |= 0x20; return b },
		"not UDP":               func(b []byte) []byte { b[23] = 6; return b },
		"wrong header checksum": func(b []byte) []byte { b[25] ^= 1; return b },
		"UDP length too long":   func(b []byte) []byte { b[39]++; return b },
		"total length too long": func(b []byte) []byte { b[16] = 0xFF; return b },
	} {
		if _, _, err := ParseFrame(spoil(bytes.Clone(b))); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, want %v", name, err, ErrFrame)
		}
	}
	if _, err := (&Frame{Src: netip.MustParseAddrPort("[::1]:1"), Dst: f.Dst}).AppendTo(nil, nil); !errors.Is(err, ErrFrame) {
		t.Errorf("IPv6: %v", err)
	}
	if _, err := f.AppendTo(nil, make([]byte, 65536)); !errors.Is(err, ErrFrame) {
		t.Errorf("oversize: %v", err)
	}
}

// FuzzUnmarshal checks that Marshal returns the same bytes that Unmarshal accepted. The bytes after
// the value may differ.
func FuzzUnmarshal(f *testing.F) {
	for _, v := range readVectors(f).Packets {
		p := v.packet(f)
		b, err := p.Marshal(Profile(v.ValueBits))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, v.ValueBits)
		f.Add(b[:len(b)-1], v.ValueBits)
	}
	f.Fuzz(func(t *testing.T, b []byte, bits int) {
		profile := Profile(bits)
		var p Packet
		if p.Unmarshal(b, profile) != nil {
			return
		}
		again, err := p.Marshal(profile)
		if err != nil {
			t.Fatalf("Marshal of what was unmarshalled: %v", err)
		}
		used := HeaderBytes + len(p.Value)
		if !bytes.Equal(again[:used], b[:used]) || len(again) != len(b) {
			t.Fatalf("Marshal\n got %x\nwant %x", again, b)
		}
		if p.String() == "" {
			t.Fatal("no string")
		}
	})
}

// FuzzParseFrame checks that no input causes a panic. A frame that ParseFrame accepts must be
// written back unchanged, except for the UDP checksum, the TTL and the identification.
func FuzzParseFrame(f *testing.F) {
	frame := Frame{Src: netip.MustParseAddrPort("10.0.0.1:40000"), Dst: netip.MustParseAddrPort("10.0.0.100:20035")}
	b, err := frame.AppendTo(nil, make([]byte, 40))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, payload, err := ParseFrame(b)
		if err != nil {
			return
		}
		again, err := got.AppendTo(nil, payload)
		if err != nil {
			t.Fatal(err)
		}
		got2, payload2, err := ParseFrame(again)
		if err != nil || got2 != got || !bytes.Equal(payload, payload2) {
			t.Fatalf("again: %+v, %x, %v; want %+v, %x", got2, payload2, err, got, payload)
		}
	})
}

func TestRandomPackets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		profile := Profiles[r.IntN(len(Profiles))]
		p := Packet{
			Op: Op(1 + r.IntN(int(SyncReply))), Epoch: uint16(r.Uint32()), Session: uint16(r.Uint32()),
			Request: r.Uint32(), Key: Key(r.Uint32()), Version: Version(r.Uint64()),
		}
		if p.Op.IsReply() {
			p.Status = Status(r.Uint32())
		} else {
			p.Flags = Flags(r.Uint32())
		}
		if p.Tombstone = r.IntN(4) == 0; !p.Tombstone {
			p.Value = make([]byte, r.IntN(profile.ValueBytes()+1))
			for i := range p.Value {
				p.Value[i] = byte(r.Uint32())
			}
		}
		b, err := p.AppendTo([]byte("x"), profile)
		if err != nil {
			t.Fatal(err)
		}
		var got Packet
		if err := got.Unmarshal(b[1:], profile); err != nil {
			t.Fatal(err)
		}
		if p.Tombstone {
			p.Value = nil
		}
		if !reflect.DeepEqual(p, got) {
			t.Fatalf("%+v, want %+v", got, p)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	p := Packet{Op: Write, Session: 1, Request: 2, Key: 3, Value: make([]byte, 16)}
	buf := make([]byte, 0, Profile128.PacketBytes())
	for b.Loop() {
		if _, err := p.AppendTo(buf, Profile128); err != nil {
			b.Fatal(err)
		}
	}
}
