package seal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

func ring(t testing.TB) *Ring {
	t.Helper()
	r, err := NewRing()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	// a value with revision 300
	value  = append([]byte{byte(slotcodec.Value), 0xac, 0x02}, "the rest of it"...)
	absent = []byte{byte(slotcodec.Absent), 0x80, 0x01}
	guard  = []byte{byte(slotcodec.Guard), 1, 2}
	here   = Place{Name: "/registry/pods/default/p", ID: 0x01000007, Version: wire.MakeVersion(3, 77)}
)

// Each cell can be opened again and is Overhead bytes longer. Placement can see its kind and
// revision, and nothing else.
func TestSeal(t *testing.T) {
	r := ring(t)
	for _, cell := range [][]byte{value, absent, guard, {byte(slotcodec.Clear)}, {byte(slotcodec.Unfit)},
		append([]byte{3, 5}, "zstd"...)} {
		b, err := r.Seal(cell, here)
		if err != nil {
			t.Fatal(err)
		}
		kind, revision, _, err := slotcodec.ReadSlot(b)
		wantKind, wantRevision, size, _ := slotcodec.ReadSlot(cell)
		if err != nil || len(b) != len(cell)+Overhead || kind != wantKind || revision != wantRevision ||
			b[0] != cell[0]|slotcodec.Sealed {
			t.Errorf("%x: %x, %v of revision %d, %v", cell, b, kind, revision, err)
		}
		if rest := cell[size:]; len(rest) > 1 && bytes.Contains(b, rest) {
			t.Errorf("%x shows %x", b, rest)
		}
		got, err := r.Open(b, here)
		if err != nil || !bytes.Equal(got, cell) {
			t.Errorf("%x: came back as %x, %v", cell, got, err)
		}
		again, err := r.Seal(cell, here)
		if err != nil || bytes.Equal(again, b) {
			t.Errorf("%x: twice the same, %v", cell, err)
		}
		// A chain's epoch may have changed between the CAS and its execution.
		if _, err := r.Open(b, Place{here.Name, here.ID, wire.MakeVersion(9, 77)}); err != nil {
			t.Errorf("%x in another epoch: %v", cell, err)
		}
	}
	for _, bad := range [][]byte{nil, {0}, {7}, {byte(slotcodec.Value)}} {
		if b, err := r.Seal(bad, here); err == nil {
			t.Errorf("%x was sealed: %x", bad, b)
		}
	}
}

// A cell cannot be opened for another key, another placement or another version. A cell that was
// sealed with unknown keys cannot be opened either.
func TestElsewhere(t *testing.T) {
	r := ring(t)
	b, err := r.Seal(value, here)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []Place{
		{"/registry/pods/default/q", here.ID, here.Version}, {"", here.ID, here.Version}, {here.Name + "p", here.ID, here.Version},
		{here.Name, here.ID + 1, here.Version}, {here.Name, here.ID ^ 0x02000000, here.Version},
		{here.Name, here.ID, here.Version + 1}, {here.Name, here.ID, here.Version - 1}, {here.Name, here.ID, 0},
	} {
		if got, err := r.Open(b, at); !errors.Is(err, ErrForged) {
			t.Errorf("at %+v: %x, %v", at, got, err)
		}
	}
	var unknown *UnknownKeyError
	if got, err := ring(t).Open(b, here); !errors.As(err, &unknown) || unknown.ID != Key(b) ||
		errors.Is(err, ErrForged) {
		t.Errorf("with another ring: %x, %v", got, err)
	}
	// Bytes of the head cannot be mistaken for bytes of the key's name.
	odd := Place{Name: "\x01" + here.Name, ID: here.ID, Version: here.Version}
	short, err := r.Seal([]byte{byte(slotcodec.Absent), 0x80, 0x01}, here)
	if err != nil {
		t.Fatal(err)
	}
	short[1] = 0x05
	if got, err := r.Open(append(short[:2:2], short[3:]...), odd); !errors.Is(err, ErrForged) {
		t.Errorf("a head that is shorter, and a name that is longer: %x, %v", got, err)
	}
}

// A cell does not open if a bit is changed, or a byte is removed or added.
func TestChanged(t *testing.T) {
	r := ring(t)
	for _, cell := range [][]byte{value, absent, guard, {byte(slotcodec.Clear)}} {
		b, err := r.Seal(cell, here)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, b []byte) {
			t.Helper()
			var unknown *UnknownKeyError
			if got, err := r.Open(b, here); !errors.Is(err, ErrForged) && !errors.As(err, &unknown) {
				t.Errorf("%s: %x, %v", what, got, err)
			}
		}
		for i := range 8 * len(b) {
			c := bytes.Clone(b)
			c[i/8] ^= 1 << (i % 8)
			check(fmt.Sprintf("%v with bit %d changed", slotcodec.Kind(cell[0]), i), c)
		}
		for n := range len(b) {
			check(fmt.Sprintf("%v cut to %d bytes", slotcodec.Kind(cell[0]), n), b[:n])
		}
		check("with a byte more", append(bytes.Clone(b), 0))
		check("without its seal", cell)
		check("twice", append(bytes.Clone(b), b...))
	}
}

// After a rotation, old cells can be opened, and new cells are sealed with the new key. When the
// old key is deleted, old cells cannot be opened.
func TestRotated(t *testing.T) {
	first := ring(t)
	old, err := first.Seal(value, here)
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.Rotated()
	if err != nil {
		t.Fatal(err)
	}
	b, err := second.Seal(value, here)
	if err != nil {
		t.Fatal(err)
	}
	id, made := second.Primary()
	if Key(b) != id || Key(old) == id || !second.Knows(Key(old)) || time.Since(made) > time.Minute ||
		len(second.Keys()) != 2 {
		t.Errorf("sealed with %d and %d; the newest is %d of %v, of %v", Key(old), Key(b), id, made, second.Keys())
	}
	for _, x := range [][]byte{old, b} {
		if got, err := second.Open(x, here); err != nil || !bytes.Equal(got, value) {
			t.Errorf("%x, %v", got, err)
		}
	}
	var unknown *UnknownKeyError
	if _, err := first.Open(b, here); !errors.As(err, &unknown) || unknown.ID != id {
		t.Errorf("with the old ring: %v", err)
	}
	text, err := second.marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if now, at := back.Primary(); now != id || !at.Equal(made) || len(back.Keys()) != 2 {
		t.Errorf("came back with %d of %v", now, at)
	}
	if got, err := back.Open(old, here); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%x, %v", got, err)
	}
	third, err := back.Without(Key(old), id, 12345)
	if err != nil || third.Knows(Key(old)) || !third.Knows(id) {
		t.Errorf("%v, %v", third.Keys(), err)
	}
	if _, err := third.Open(old, here); !errors.As(err, &unknown) {
		t.Errorf("a key that was dropped: %v", err)
	}
	for _, bad := range []string{"", "{}", `{"made":{}}`, `{"keyset":{}}`, `{"keyset":{"primaryKeyId":1,"key":[]}}`} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q is taken for keys", bad)
		}
	}
}

// No input that the fuzzer makes can be opened, and none causes a panic.
func FuzzOpen(f *testing.F) {
	r := ring(f)
	b, err := r.Seal(value, here)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[1:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, x []byte) {
		if got, err := r.Open(x, here); err == nil && !bytes.Equal(got, value) {
			t.Fatalf("%x opens: %x", x, got)
		}
	})
}

var templates = map[string]func() *tinkpb.KeyTemplate{
	"AES-256-GCM": aead.AES256GCMKeyTemplate, "AES-256-GCM-SIV": aead.AES256GCMSIVKeyTemplate,
	"XAES-256-GCM": aead.XAES256GCM192BitNonceKeyTemplate, "XChaCha20-Poly1305": aead.XChaCha20Poly1305KeyTemplate,
}

// BenchmarkOpen and BenchmarkSeal measure the cost of opening and sealing a cell that fills a slot,
// for each chain profile. Run them with: go test ./client/etcd/seal -bench .
func BenchmarkOpen(b *testing.B) { bench(b, false) }
func BenchmarkSeal(b *testing.B) { bench(b, true) }

func bench(b *testing.B, seals bool) {
	for name, template := range templates {
		h, err := keyset.NewHandle(template())
		if err != nil {
			b.Fatal(err)
		}
		r, err := newRing(h, map[uint32]time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		for _, bytes := range []int{128, 512, 1024} {
			cell := append(value[:3:3], make([]byte, bytes-3-Overhead)...)
			sealed, err := r.Seal(cell, here)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", name, bytes), func(b *testing.B) {
				b.ReportAllocs()
				b.ReportMetric(float64(len(sealed)-len(cell)), "overhead-B")
				for b.Loop() {
					if seals {
						_, err = r.Seal(cell, here)
					} else {
						_, err = r.Open(sealed, here)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
