package interp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/switch/target"
)

// The benchmarks send one frame after another through small programs, each with a table of the
// named size, and report the cost of a frame.

// bench processes frames that arrive at port 0, one after the other.
func bench(b *testing.B, p *Pipeline, frames [][]byte) {
	b.Helper()
	var buf Buffer
	out := 0
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		p.ProcessInto(&buf, 0, 0, frames[i%len(frames)])
		out += len(buf.Outs)
	}
	if out == 0 {
		b.Fatal("nothing left")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

// keyFrames returns frames for tables.p4. A frame has a byte named `which`, the fields a (16 bits),
// b (32), c (7), d (1) and wide (72), and a payload.
func keyFrames(which byte, r *rand.Rand, n int, b func(i int) uint32) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		f := make([]byte, 64)
		f[0] = which
		binary.BigEndian.PutUint16(f[1:], uint16(r.Uint32()))
		binary.BigEndian.PutUint32(f[3:], b(i))
		out[i] = f
	}
	return out
}

func word(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func BenchmarkExact(b *testing.B) {
	p := load(b, "tables", Options{})
	p.src.Table("I.wide_t").MaxSize = 1 << 20
	r := rand.New(rand.NewPCG(1, 1))
	const entries = 65536
	for i := range uint32(entries) {
		must(b, p.InsertEntry("I.wide_t",
			&target.TableEntry{Match: []target.FieldMatch{{Value: make([]byte, 9)},
				{Value: word(i * 7)}}, Action: act("I.set", []byte{1})}))
	}
	bench(b, p, keyFrames(1, r, 4096, func(int) uint32 { return r.Uint32N(entries) * 7 }))
}

func BenchmarkLPM(b *testing.B) {
	p := load(b, "tables", Options{})
	p.src.Table("I.lpm_t").MaxSize = 1 << 20
	r := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		_ = p.InsertEntry("I.lpm_t", &target.TableEntry{
			Match: []target.FieldMatch{{Value: word(r.Uint32()), PrefixLen: 8 + r.IntN(25)},
				{Value: []byte{0}}}, Action: act("I.set", []byte{1}),
		})
	}
	bench(b, p, keyFrames(2, r, 4096, func(int) uint32 { return r.Uint32() }))
}

func BenchmarkTernary(b *testing.B) {
	p := load(b, "tables", Options{})
	r := rand.New(rand.NewPCG(1, 1))
	masks := make([][]byte, 16)
	for i := range masks {
		masks[i] = word(r.Uint32() | r.Uint32())
	}
	for range 1000 {
		_ = p.InsertEntry("I.ternary_t",
			&target.TableEntry{Match: []target.FieldMatch{{Value: word(r.Uint32N(1 << 12)),
				Mask: masks[r.IntN(16)]},
				{Value: make([]byte, 9), Mask: make([]byte, 9)}}, Priority: 1 + r.IntN(4),
				Action: act("I.set", []byte{1})})
	}
	bench(b, p, keyFrames(3, r, 4096, func(int) uint32 { return r.Uint32N(1 << 12) }))
}

func BenchmarkRange(b *testing.B) {
	p := load(b, "tables", Options{})
	r := rand.New(rand.NewPCG(1, 1))
	for i := range uint16(100) {
		must(b, p.InsertEntry("I.range_t", &target.TableEntry{Match: []target.FieldMatch{
			{Value: binary.BigEndian.AppendUint16(nil, i*600),
				Mask: binary.BigEndian.AppendUint16(nil, i*600+500)},
			{Value: make([]byte, 4), Mask: make([]byte, 4)}}, Priority: 1,
			Action: act("I.set", []byte{1})}))
	}
	bench(b, p, keyFrames(5, r, 4096, func(int) uint32 { return 0 }))
}

func BenchmarkMulticast(b *testing.B) {
	p := load(b, "copies", Options{})
	must(b, p.SetMulticastGroup(7,
		[]target.Replica{{Port: 1, Instance: 1}, {Port: 2, Instance: 2}, {Port: 3, Instance: 3}}))
	bench(b, p, [][]byte{append(frame(b, "01 00 0007 00"), make([]byte, 59)...)})
}

func BenchmarkRecirculate(b *testing.B) {
	bench(b, load(b, "copies", Options{}), [][]byte{append(frame(b, "00 02 0000 00"),
		make([]byte, 59)...)})
}

func BenchmarkWideRegister(b *testing.B) {
	bench(b, load(b, "stateful", Options{}), [][]byte{frame(b,
		"01 0002 0000000000000000 0123456789abcdef0123456789abcdef")})
}

func BenchmarkChecksum(b *testing.B) {
	bench(b, load(b, "stateful", Options{}), [][]byte{append(frame(b,
		"80 0000 0000000000000000 00000000000000000000000000000000 1 234 56789abc 0000"),
		make([]byte, 1000)...)})
}

// BenchmarkArithmetic2048 measures a few operations on 2,048 bits.
func BenchmarkArithmetic2048(b *testing.B) {
	f := make([]byte, 45)
	f[0], f[4], f[20] = 11, 9, 1
	bench(b, load(b, "arithmetic", Options{}), [][]byte{f})
}
