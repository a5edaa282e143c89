package slotcodec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/racedetector"
)

func codec(t testing.TB, dictionaries ...[]byte) *Codec {
	t.Helper()
	c, err := NewCodec(dictionaries...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every kind of cell is encoded as doc.go says, and is decoded to the same cell.
func TestEncoding(t *testing.T) {
	c := codec(t)
	for _, test := range []struct {
		cell Cell
		want string
	}{
		{Cell{Kind: Clear}, "01"},
		{Cell{Kind: Value, Create: 3, Mod: 300, Version: 2, Value: []byte("v")}, "02" + "ac02" + "a902" + "02" + "76"},
		{Cell{Kind: Value, Create: 1, Mod: 1, Version: 1, Value: []byte{}}, "02" + "01" + "00" + "01"},
		{Cell{Kind: Absent, Revision: 128}, "04" + "8001"},
		{Cell{Kind: Guard, Lease: math.MaxInt64, Number: MaxNumber}, "05" + "ffffffffffffffff7f" + "ffffffffff7f"},
		{Cell{Kind: Guard, Lease: 1}, "05" + "01" + "00"},
		{Cell{Kind: Unfit}, "06"},
	} {
		b, err := c.Encode(test.cell, 16)
		if err != nil || hex.EncodeToString(b) != test.want {
			t.Errorf("%+v: %x, %v; want %s", test.cell, b, err, test.want)
			continue
		}
		if got, err := c.Decode(b); err != nil || !cmp.Equal(got, test.cell) {
			t.Errorf("%x: %+v, %v; want %+v", b, got, err, test.cell)
		}
	}
}

// A value is compressed if that makes it smaller. Encode returns ErrTooLarge for a value that does
// not fit.
func TestSizes(t *testing.T) {
	c := codec(t)
	long := []byte(strings.Repeat("the same again ", 100))
	for _, test := range []struct {
		value []byte
		size  int
		kind  byte // first byte of the cell; 0 if the value does not fit
	}{
		{[]byte("0123456789ab"), 16, 2},
		{[]byte("0123456789abc"), 16, 0},
		{[]byte("0123456789abc"), 17, 2},
		{long, 1024, compressed}, {long, 20, 0},
		{bytes.Repeat([]byte{7}, MaxValue), 64, compressed}, {bytes.Repeat([]byte{7}, MaxValue+1), 64, 0},
	} {
		cell := Cell{Kind: Value, Create: 1, Mod: 1, Version: 1, Value: test.value}
		b, err := c.Encode(cell, test.size)
		if test.kind == 0 {
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d bytes in %d: %x, %v; want that it does not fit", len(test.value), test.size, b, err)
			}
			continue
		}
		if err != nil || len(b) > test.size || b[0] != test.kind {
			t.Errorf("%d bytes in %d: %x, %v", len(test.value), test.size, b, err)
			continue
		}
		if got, err := c.Decode(b); err != nil || !cmp.Equal(got, cell) {
			t.Errorf("%d bytes in %d: came back as %+v, %v", len(test.value), test.size, got, err)
		}
	}
	guard := Cell{Kind: Guard, Lease: math.MaxInt64, Number: MaxNumber}
	if _, err := c.Encode(guard, GuardSize-1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a guard in too few bytes: %v", err)
	}
	if b, err := c.Encode(guard, GuardSize); err != nil || len(b) != GuardSize {
		t.Errorf("the largest guard: %x, %v", b, err)
	}
	if _, err := c.Encode(Cell{Kind: Clear}, 0); !errors.Is(err, ErrTooLarge) {
		t.Errorf("in a slot that is not known: %v", err)
	}
}

func TestMalformed(t *testing.T) {
	c := codec(t)
	for text, why := range map[string]string{
		"":                       "nothing",
		"00":                     "an unknown kind",
		"07":                     "an unknown kind",
		"0100":                   "bytes after a clear cell",
		"0600":                   "bytes after an unfit cell",
		"04":                     "no revision",
		"0400":                   "revision 0",
		"048000":                 "a varint that is too long",
		"04ffffffffffffffffff01": "a number above an int64",
		"040101":                 "bytes after an absence",
		"0501":                   "no number",
		"050001":                 "lease 0",
		"0501ffffffffffff7f":     "a number that is too large",
		"020501":                 "no version",
		"02050602":               "created after it was changed, at -1",
		"02050502":               "created at 0",
		"02050006":               "more changes than revisions",
		"02050000":               "version 0",
		"03050001":               "an empty frame",
		"0305000124":             "half a frame",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if cell, err := c.Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s (%s): %+v, %v", text, why, cell, err)
		}
	}
	for _, cell := range []Cell{
		{}, {Kind: 3}, {Kind: Clear, Mod: 1}, {Kind: Value, Create: 1, Mod: 1, Version: 1, Lease: 1},
		{Kind: Value, Mod: 1, Version: 1}, {Kind: Absent}, {Kind: Absent, Revision: -1},
		{Kind: Guard, Lease: 1, Number: MaxNumber + 1}, {Kind: Unfit, Value: []byte{}}, {Kind: Value,
			Create: 2, Mod: 3, Version: 3},
	} {
		if b, err := c.Encode(cell, 64); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: encoded as %x, %v", cell, b, err)
		}
	}
	// The first cell has two zstd frames. The second has a frame whose content would be larger than
	// MaxValue.
	frame := func(value []byte) []byte { return append([]byte{compressed, 5, 0, 1}, c.compress(value, 1<<20)...) }
	two := append(frame(make([]byte, 100)), append([]byte(magic), frame(make([]byte, 100))[4:]...)...)
	big, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	bomb := append([]byte{compressed, 5, 0, 1}, big.EncodeAll(make([]byte, 100<<20), nil)[4:]...)
	for name, b := range map[string][]byte{"two frames": two, "a bomb": bomb} {
		if cell, err := c.Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %d bytes, %v", name, len(cell.Value), err)
		}
	}
}

// If bytes can be decoded, the result can be encoded and decoded again, and does not change.
func FuzzDecode(f *testing.F) {
	c := codec(f)
	for _, cell := range []Cell{
		{Kind: Clear}, {Kind: Unfit}, {Kind: Absent, Revision: 77}, {Kind: Guard, Lease: 1 << 60, Number: 9},
		{Kind: Value, Create: 2, Mod: 1 << 40, Version: 3, Value: []byte("value")},
		{Kind: Value, Create: 2, Mod: 1 << 40, Version: 3, Value: bytes.Repeat([]byte("value"), 50)},
	} {
		b, err := c.Encode(cell, 1024)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		cell, err := c.Decode(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrDictionary) {
				t.Fatalf("%x: %v", b, err)
			}
			return
		}
		again, err := c.Encode(cell, len(b)+len(cell.Value)+16)
		if err != nil {
			t.Fatalf("%+v: %v", cell, err)
		}
		if back, err := c.Decode(again); err != nil || !cmp.Equal(back, cell) {
			t.Fatalf("%+v came back as %+v, %v", cell, back, err)
		}
		if b[0] != byte(Value) && b[0] != compressed && !bytes.Equal(again, b) {
			t.Fatalf("%+v is encoded as %x and %x", cell, b, again)
		}
	})
}

func export(t testing.TB) (values [][]byte) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "experiments", "data", "etcd-export.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kvs, err := ReadExport(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		values = append(values, kv.Value)
	}
	return values
}

// This test checks how many values of a real cluster fit into slots. The dictionary is trained on
// one half of the values, and the other half is tested.
func TestDictionaryOnExport(t *testing.T) {
	if racedetector.Enabled {
		t.Skip("with the race detector this takes a minute; make test runs it without")
	}
	var train, held [][]byte
	for i, v := range export(t) {
		if i%2 == 0 {
			train = append(train, v)
		} else {
			held = append(held, v)
		}
	}
	d, err := Train(train, 1, DictionarySize)
	if err != nil {
		t.Fatal(err)
	}
	share := func(c *Codec, size int) int {
		fit := 0
		for _, v := range held {
			cell := Cell{Kind: Value, Create: 1e6, Mod: 1e6 + 1e3, Version: 300, Value: v}
			b, err := c.Encode(cell, size)
			if errors.Is(err, ErrTooLarge) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			fit++
			if got, err := c.Decode(b); err != nil || !cmp.Equal(got, cell) {
				t.Fatalf("a value of %d bytes came back otherwise: %v", len(v), err)
			}
		}
		return 100 * fit / len(held)
	}
	without, with := codec(t), codec(t, d)
	t.Logf("%d values to train on, %d others; the dictionary has %d bytes", len(train), len(held), len(d))
	for _, test := range []struct{ size, atLeast int }{{128, 30}, {512, 93}, {1024, 96}} {
		room := test.size - SealOverhead // the seal takes part of the slot
		a, b := share(without, room), share(with, room)
		t.Logf("in a slot of %5d bytes fit, sealed: compressed without a dictionary %3d %%, with it %3d %%", test.size, a, b)
		if b < test.atLeast || b < a {
			t.Errorf("in %d bytes fit %d %%; want at least %d %%", test.size, b, test.atLeast)
		}
	}
}

// The same samples give the same dictionary.
func TestTrainRepeats(t *testing.T) {
	samples := export(t)[:50]
	a, err := Train(samples, 7, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Train(samples, 7, 2048); err != nil || !bytes.Equal(a, b) {
		t.Errorf("another dictionary the second time: %v", err)
	}
	if v, err := Version(a); err != nil || v != 7 {
		t.Errorf("version %d, %v; want 7", v, err)
	}
}

func TestTrainRefuses(t *testing.T) {
	same := make([][]byte, 20)
	for i := range same {
		same[i] = []byte{byte(i), 1, 2, 3, 4, 5, 6, 7, 8}
	}
	for name, test := range map[string]struct {
		samples [][]byte
		version uint32
	}{"version 0": {same, 0}, "too few": {same[:10], 1}, "too short": {make([][]byte, 100), 1}} {
		if _, err := Train(test.samples, test.version, DictionarySize); err == nil {
			t.Errorf("%s: trained", name)
		}
	}
	for _, text := range []string{"", "{}", `{"kvs":[]}`, `{"kvs":[{"key":1}]}`} {
		if kvs, err := ReadExport(strings.NewReader(text)); err == nil {
			t.Errorf("%q: read as %v", text, kvs)
		}
	}
}

// If a codec does not know a dictionary, its error names the dictionary. A library then reads this
// dictionary from etcd when Want is called.
func TestLibrary(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(),
		LogOutput: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	kv, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kv.Close() })
	const prefix = "/test/"
	samples := export(t)[:60]
	writer, reader := NewLibrary(kv, prefix), NewLibrary(kv, prefix)
	for want := uint32(1); want <= 2; want++ {
		version, size, err := writer.Publish(t.Context(), samples, 4096)
		if err != nil || version != want || size < 1000 {
			t.Fatalf("version %d of %d bytes, %v; want version %d", version, size, err, want)
		}
		if err := writer.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if writer.Codec().Newest() != want {
			t.Fatalf("compresses with %d; want %d", writer.Codec().Newest(), want)
		}
		cell := Cell{Kind: Value, Create: 1, Mod: 1, Version: 1, Value: samples[3]}
		b, err := writer.Codec().Encode(cell, 1024)
		if err != nil {
			t.Fatal(err)
		}
		var unknown *DictionaryError
		if _, err := reader.Codec().Decode(b); !errors.As(err, &unknown) || unknown.Version != want ||
			!errors.Is(err, ErrDictionary) {
			t.Fatalf("decoded without the dictionary: %v", err)
		}
		if ok, err := reader.Want(t.Context(), unknown.Version); !ok || err != nil {
			t.Fatalf("asked for dictionary %d: %v, %v", want, ok, err)
		}
		if got, err := reader.Codec().Decode(b); err != nil || !cmp.Equal(got, cell) {
			t.Fatalf("with the dictionary: %v", err)
		}
	}
	if ok, err := reader.Want(t.Context(), 7); ok || err != nil {
		t.Errorf("a dictionary that nobody has: %v, %v", ok, err)
	}
	// If the value of one key is not a dictionary, the other dictionaries are used nevertheless.
	if _, err := kv.Put(t.Context(), prefix+"dictionaries/3", "none"); err != nil {
		t.Fatal(err)
	}
	if version, _, err := writer.Publish(t.Context(), samples, 4096); err != nil || version != 4 {
		t.Fatalf("version %d, %v; want 4", version, err)
	}
	if err := reader.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "dictionaries/3") ||
		reader.Codec().Newest() != 4 {
		t.Errorf("with a broken one: %v, newest %d", err, reader.Codec().Newest())
	}
}

func BenchmarkEncode(b *testing.B) { benchmark(b, true) }
func BenchmarkDecode(b *testing.B) { benchmark(b, false) }

// benchmark measures the encoding, or the decoding, of the value of a pod.
func benchmark(b *testing.B, encode bool) {
	values := export(b)
	d, err := Train(values, 1, DictionarySize)
	if err != nil {
		b.Fatal(err)
	}
	c := codec(b, d)
	var cell Cell
	for _, v := range values {
		if len(v) > len(cell.Value) && len(v) < 3000 {
			cell = Cell{Kind: Value, Create: 1, Mod: 1, Version: 1, Value: v}
		}
	}
	bytes, err := c.Encode(cell, 1024)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(bytes)), "bytes")
	for b.Loop() {
		if encode {
			_, err = c.Encode(cell, 1024)
		} else {
			_, err = c.Decode(bytes)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// ReadSlot reads the same kind and revision from the beginning of a cell as Decode from the whole
// cell.
func TestSameKinds(t *testing.T) {
	c := codec(t)
	long := bytes.Repeat([]byte("long "), 50)
	for _, cell := range []Cell{
		{Kind: Clear}, {Kind: Unfit}, {Kind: Absent, Revision: 300}, {Kind: Guard, Lease: 1, Number: 2},
		{Kind: Value, Create: 2, Mod: 300, Version: 3, Value: []byte("v")}, {Kind: Value, Create: 2,
			Mod: 300, Version: 3, Value: long},
	} {
		b, err := c.Encode(cell, 64)
		if err != nil {
			t.Fatal(err)
		}
		kind, revision, _, err := ReadSlot(b)
		if err != nil || kind.String() != cell.Kind.String() || byte(kind) != byte(cell.Kind) ||
			revision != cell.Mod+cell.Revision {
			t.Errorf("%x: %v, revision %d, %v; want %v", b, kind, revision, err, cell.Kind)
		}
	}
}
