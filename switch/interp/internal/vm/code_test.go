package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/interp/internal/calculation"
	"github.com/netcraq/netcraq/switch/interp/internal/packetevents"
	"github.com/netcraq/netcraq/switch/target"
)

// nobody is a listener that wants no events. A pipeline that may have a listener runs on package
// reference, which executes each primitive and condition as it is written.
type nobody struct{}

func (nobody) Wanted() bool             { return false }
func (nobody) Event(packetevents.Event) {}

// TestCode checks that a program's byte code has the same effect as executing its primitives and
// conditions one after the other. Outgoing frames and registers must be the same. Entries and
// frames are random, and the same for both.
func TestCode(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "*", "testdata", "*.json"))
	must(t, err)
	more, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "*", "compiled", "*-128.json.gz"))
	must(t, err)
	drawn, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "test", "progfuzz", "testdata", "*.json"))
	must(t, err)
	run := 0
	for _, file := range slices.Concat(files, more, drawn) {
		prog, err := bmv2json.ReadFile(file)
		if err != nil {
			continue // other tests cover these programs
		}
		plain, err := interp.New(prog, interp.Options{Seed: 1, Events: nobody{}})
		if errors.Is(err, target.ErrUnsupported) {
			continue
		}
		must(t, err)
		run++
		t.Run(filepath.Base(file), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			p, err := interp.New(prog, interp.Options{Seed: 1})
			must(t, err)
			both := []*interp.Pipeline{p, plain}
			for round := range 40 {
				for range 5 {
					randomEntry(r, prog, both)
				}
				for _, q := range both {
					_ = q.SetMulticastGroup(1, []target.Replica{{Port: 1, Instance: 1}, {Port: 2}})
				}
				for i := range 50 {
					port, f := uint32(r.IntN(4)), randomFrame(r)
					now := time.Duration(round*1000+i) * time.Millisecond
					got, want := p.Process(now, port, f), plain.Process(now, port, f)
					if !slices.EqualFunc(got, want, func(a, b interp.Out) bool {
						return a.Port == b.Port && bytes.Equal(a.Frame, b.Frame)
					}) {
						t.Fatalf("%x by port %d became %x, and not %x", f, port, got, want)
					}
				}
			}
			sameArrays(t, p, plain)
		})
	}
	if run < 45 {
		t.Errorf("%d programs were run: where are the others?", run)
	}
}

// sameArrays compares the registers and counters of two pipelines.
func sameArrays(t *testing.T, p, plain *interp.Pipeline) {
	t.Helper()
	for _, r := range p.Program().Registers {
		got, err := p.AppendRegisters(nil, r.Name, 0, r.Size)
		must(t, err)
		want, err := plain.AppendRegisters(nil, r.Name, 0, r.Size)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("register %s differs", r.Name)
		}
	}
	for _, c := range p.Program().Counters {
		if c.Direct {
			continue
		}
		for i := range c.Size {
			got, err := p.ReadCounter(c.Name, i)
			must(t, err)
			want, err := plain.ReadCounter(c.Name, i)
			must(t, err)
			if got != want {
				t.Errorf("counter %s differs at %d", c.Name, i)
				break
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomEntry adds an entry to a table, or sets the table's default entry. If one pipeline refuses
// the entry, all pipelines must refuse it.
func randomEntry(r *rand.Rand, prog *bmv2json.Program, both []*interp.Pipeline) {
	tables := prog.Tables()
	if len(tables) == 0 {
		return
	}
	t := tables[r.IntN(len(tables))]
	if len(t.Actions) == 0 {
		return
	}
	a := t.Actions[r.IntN(len(t.Actions))]
	e := &target.TableEntry{Action: &target.ActionCall{Action: a.Name}}
	for _, p := range a.Params {
		e.Action.Params = append(e.Action.Params, randomNumber(r, p.Width))
	}
	if t.NeedsPriority() {
		e.Priority = 1 + r.IntN(3)
	}
	for _, k := range t.Keys {
		m := target.FieldMatch{Value: randomNumber(r, k.Width)}
		switch k.Kind {
		case bmv2json.MatchLPM:
			m.PrefixLen = r.IntN(k.Width + 1)
		case bmv2json.MatchTernary:
			m.Mask = randomNumber(r, k.Width)
		case bmv2json.MatchRange:
			m.Mask = bytes.Repeat([]byte{0xff}, (k.Width+7)/8)
			m.Mask[0] >>= len(m.Mask)*8 - k.Width
		}
		e.Match = append(e.Match, m)
	}
	var said []string
	for _, q := range both {
		err := q.InsertEntry(t.Name, e)
		if err != nil {
			d := *e
			d.Match = nil
			err = q.SetDefault(t.Name, &d)
		}
		said = append(said, fmt.Sprint(err))
	}
	if said[0] != said[len(said)-1] {
		panic(fmt.Sprint(said))
	}
}

// randomNumber returns a number that is usually small, so that comparisons are often equal.
func randomNumber(r *rand.Rand, width int) []byte {
	b := make([]byte, (width+7)/8)
	if r.IntN(4) == 0 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	b[len(b)-1] = byte(r.IntN(8))
	b[0] &= 0xff >> (len(b)*8 - width)
	return b
}

// randomFrame returns a frame with mostly small bytes. Every second frame is UDP over IPv4, to a
// port that our programs know.
func randomFrame(r *rand.Rand) []byte {
	f := make([]byte, 20+r.IntN(120))
	for i := range f {
		f[i] = byte(r.Uint32() & []uint32{0, 1, 3, 7, 7, 255}[r.IntN(6)])
	}
	if r.IntN(2) == 0 && len(f) >= 64 {
		f[12], f[13], f[14], f[16], f[17], f[20], f[21], f[23] = 8, 0, 0x45, 0, byte(len(f)-14), 0, 0, 17
		port := [][]byte{{0x4e, 0x43}, {0x22, 0xb8}, {1, 2}}[r.IntN(3)]
		copy(f[36:38], port)
		f[38], f[39] = 0, byte(len(f)-34)
		f[24], f[25] = 0, 0
		sum := calculation.InternetChecksum(f[14:34])
		f[24], f[25] = byte(sum>>8), byte(sum)
		if r.IntN(2) == 0 && len(f) >= 82 {
			f = f[:82]
			f[17], f[39] = 68, 48
			f[24], f[25] = 0, 0
			sum := calculation.InternetChecksum(f[14:34])
			f[24], f[25] = byte(sum>>8), byte(sum)
		}
	}
	return f
}
