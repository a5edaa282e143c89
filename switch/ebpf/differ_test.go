package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

var (
	corpus = flag.String("corpus", "",
		"a folder with JSON files of p4c, to give random frames to besides the project's own")
	corpusFrames = flag.Int("corpus-frames", 300,
		"random frames for each program of TestLikeInterp")
)

// captured is a switch that does not send frames. Its method process returns them instead.
type captured struct {
	*device
	out chan stf.Packet
}

func newCaptured(t testing.TB, prog *bmv2json.Program, h Hook) (*captured, error) {
	t.Helper()
	needKernel(t)
	d, err := newDevice(Options{captured: true, Hook: h, general: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	c := &captured{d, make(chan stf.Packet, 4096)}
	d.OnPacketIn(func(b []byte) {
		if len(b)-4 >= 14 { // An interface does not send a shorter frame.
			c.out <- stf.Packet{Port: binary.NativeEndian.Uint32(b), Frame: b[4:]}
		}
	})
	return c, d.Commit(prog)
}

// process runs the program on a frame, and waits for the expected number of output frames.
func (c *captured) process(port uint32, frame []byte, expect int) ([]stf.Packet, error) {
	c.PortMap.SetPort(1, port)
	program := c.pipeline.TC
	if c.opts.Hook == HookXDP {
		program = c.pipeline.XDP
	}
	if _, err := program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
		return nil, err
	}
	var out []stf.Packet
	for len(out) < expect {
		select {
		case p := <-c.out:
			out = append(out, p)
		case <-time.After(2 * time.Second):
			return out, nil
		}
	}
	// Collect surplus frames that have already arrived. Later frames show up with the next frame.
	for {
		select {
		case p := <-c.out:
			out = append(out, p)
		default:
			if !c.PacketIn.Pending() {
				return out, nil
			}
			runtime.Gosched()
		}
	}
}

// eachHook runs a test once at tc and once at XDP.
func eachHook(t *testing.T, name string, f func(t *testing.T, h Hook)) {
	for _, h := range []Hook{HookTC, HookXDP} {
		t.Run(name+"-"+h.String(), func(t *testing.T) { f(t, h) })
	}
}

func programFiles(t *testing.T) []string {
	files, err := filepath.Glob("../stf/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	if *corpus != "" {
		more, err := filepath.Glob(filepath.Join(*corpus, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	return append(files, "testdata/tally.json", "testdata/hashes.json", "testdata/valuesets.json",
		"testdata/stackindex.json",
		"testdata/manyheaders.json", "testdata/unreached.json")
}

// TestLikeInterp sends random frames through random tables of every program that this engine
// supports, and compares the results with the interpreter's.
func TestLikeInterp(t *testing.T) {
	needKernel(t)
	for i, file := range programFiles(t) {
		eachHook(t, filepath.Base(file), func(t *testing.T, h Hook) {
			prog, err := bmv2json.ReadFile(file)
			if err != nil {
				t.Skip(err)
			}
			in, err := interp.New(prog, interp.Options{})
			if err != nil {
				t.Skip(err)
			}
			c, err := newCaptured(t, prog, h)
			if errors.Is(err, target.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			// our own programs put the random numbers that they draw into frames
			if filepath.Dir(file) != "testdata" && drawsNumbers(prog) {
				t.Skip("the program draws random numbers")
			}
			if c.pipeline.Requests.Reinjects() {
				t.Skip("packets come back, which needs real interfaces: TestRecirculate")
			}
			likeInterp(t, prog, in, c, rand.New(rand.NewPCG(1, uint64(i))))
		})
	}
}

// drawsNumbers reports whether a program's results depend on random numbers.
func drawsNumbers(prog *bmv2json.Program) bool {
	for _, a := range prog.Actions {
		for _, p := range a.Primitives {
			if p.Op == "modify_field_rng_uniform" {
				return true
			}
		}
	}
	return false
}

// changeTables changes every other table that has an entry, in both engines. It removes an entry or
// changes the parameters of the entry's action.
func changeTables(t *testing.T, prog *bmv2json.Program, in *interp.Pipeline, c *captured,
	r *rand.Rand, value func(width int) []byte) {
	for _, table := range prog.Tables() {
		if len(table.Keys) == 0 || table.Const || r.IntN(2) == 0 {
			continue
		}
		entries, err := in.Entries(table.Name)
		check(t, err)
		if len(entries) == 0 {
			continue
		}
		e := entries[r.IntN(len(entries))]
		var want, got error
		if r.IntN(3) == 0 {
			want, got = in.DeleteEntry(table.Name, &e), c.pipeline.DeleteEntry(table.Name, &e)
		} else {
			a := table.Actions[r.IntN(len(table.Actions))]
			e.Action = &target.ActionCall{Action: a.Name}
			for _, p := range a.Params {
				e.Action.Params = append(e.Action.Params, value(p.Width))
			}
			want, got = in.ModifyEntry(table.Name, &e), c.pipeline.ModifyEntry(table.Name, &e)
		}
		if want != nil || got != nil {
			t.Fatalf("changing %s: interp %v, kernel %v", table.Name, want, got)
		}
	}
}

func likeInterp(t *testing.T, prog *bmv2json.Program, in *interp.Pipeline, c *captured,
	r *rand.Rand) {
	value := func(width int) []byte {
		b := make([]byte, (width+7)/8)
		if r.IntN(2) == 0 { // Small numbers match more often.
			b[len(b)-1] = byte(r.IntN(3))
		} else {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
		}
		if width%8 != 0 {
			b[0] &= 1<<(width%8) - 1
		}
		return b
	}
	for _, table := range prog.Tables() {
		if len(table.Keys) == 0 || table.Const {
			continue
		}
		for n := range 12 {
			a := table.Actions[r.IntN(len(table.Actions))]
			e := &target.TableEntry{Action: &target.ActionCall{Action: a.Name}, Priority: 1 + n}
			for _, p := range a.Params {
				e.Action.Params = append(e.Action.Params, value(p.Width))
			}
			for _, k := range table.Keys {
				m := target.FieldMatch{Value: value(k.Width), PrefixLen: r.IntN(k.Width + 1)}
				switch k.Kind {
				case bmv2json.MatchValid:
					m.Value = []byte{byte(r.IntN(2))}
				case bmv2json.MatchTernary, bmv2json.MatchOptional:
					m.Mask = value(k.Width)
				case bmv2json.MatchRange:
					m.Mask = value(k.Width)
					if bytes.Compare(m.Value, m.Mask) > 0 {
						m.Value, m.Mask = m.Mask, m.Value
					}
				}
				e.Match = append(e.Match, m)
			}
			want, got := in.InsertEntry(table.Name, e), c.pipeline.InsertEntry(table.Name, e)
			if (want == nil) != (got == nil) {
				t.Fatalf("inserting %+v into %s: interp %v, kernel %v", e, table.Name, want, got)
			}
			if n == 6 && want == nil {
				want, got = in.DeleteEntry(table.Name, e), c.pipeline.DeleteEntry(table.Name, e)
				if want != nil || got != nil {
					t.Fatalf("deleting from %s: interp %v, kernel %v", table.Name, want, got)
				}
			}
		}
	}
	for g := uint32(1); g < 4; g++ {
		replicas := []target.Replica{{Port: g, Instance: 1}, {Port: g, Instance: 2},
			{Port: 7, Instance: 3}}
		_ = in.SetMulticastGroup(g, replicas)
		_ = c.pipeline.SetMulticastGroup(g, replicas)
	}
	for _, s := range prog.ValueSets {
		var members [][]target.FieldMatch
		for range r.IntN(s.MaxSize + 1) {
			var m []target.FieldMatch
			for _, w := range s.Widths {
				f := target.FieldMatch{Value: value(w)}
				if r.IntN(4) == 0 {
					f.Mask = value(w)
				}
				m = append(m, f)
			}
			members = append(members, m)
		}
		for range 2 { // The pipeline has two copies of a value set, and each call changes one copy.
			check(t, in.SetValueSet(s.Name, members))
			check(t, c.pipeline.SetValueSet(s.Name, members))
		}
	}
	clocked := usesClock(t, prog)
	came := 0
	for n := range *corpusFrames {
		switch n % 40 {
		case 0: // recompile the program for its tables' present content
			check(t, c.specialise(true))
		case 20: // change tables, so that the recompiled program no longer fits them
			changeTables(t, prog, in, c, r, value)
		}
		frame := make([]byte, 16+r.IntN(120))
		for i := range frame {
			if r.IntN(3) > 0 {
				frame[i] = byte(r.IntN(4))
			} else {
				frame[i] = byte(r.Uint32())
			}
		}
		// The kernel does not run a program on an IP packet that is shorter than its header.
		if binary.BigEndian.Uint16(frame[12:]) == 0x800 ||
			binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
			frame[12] = 0
		}
		if len(frame) >= 54 {
			switch r.IntN(3) {
			case 0:
				copy(frame[12:], []byte{8, 0, 0x45})
			case 1:
				copy(frame[12:], []byte{0x86, 0xdd, 0x60})
			}
		}
		port := uint32(r.IntN(8))
		var want []stf.Packet
		for _, o := range in.Process(time.Second, port, bytes.Clone(frame)) {
			want = append(want, stf.Packet{Port: o.Port, Frame: bytes.Clone(o.Frame)})
		}
		expect, runt := len(want), false
		for _, o := range want {
			// A frame has no room for an Ethernet header. This engine drops such a frame, because
			// no interface would send it.
			if len(o.Frame) < 14 {
				expect, runt = expect-1, true
			}
		}
		got, err := c.process(port, frame, expect)
		if err != nil {
			t.Fatal(err)
		}
		came += len(want)
		for _, l := range [][]stf.Packet{want, got} {
			sort.Slice(l, func(i, j int) bool {
				return l[i].Port < l[j].Port || l[i].Port == l[j].Port &&
					bytes.Compare(l[i].Frame, l[j].Frame) < 0
			})
		}
		if clocked || runt {
			continue
		}
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Fatalf("frame %d by port %d: %x\ninterp: %s\nkernel: %s", n, port, frame, show(want),
				show(got))
		}
	}
	if clocked {
		t.Logf("the program reads the clock: what comes out is not compared")
		return
	}
	for _, reg := range prog.Registers {
		want, _ := in.ReadRegisters(reg.Name, 0, min(reg.Size, 1000))
		got, err := c.pipeline.ReadRegisters(reg.Name, 0, min(reg.Size, 1000))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("register %s: interp %x, kernel %x", reg.Name, want, got)
		}
	}
	for _, k := range prog.Counters {
		for i := range min(k.Size, 200) {
			if k.Direct {
				continue
			}
			want, _ := in.ReadCounter(k.Name, i)
			got, err := c.pipeline.ReadCounter(k.Name, i)
			if err != nil || want != got {
				t.Errorf("counter %s[%d]: interp %v, kernel %v (%v)", k.Name, i, want, got, err)
			}
		}
	}
	for _, table := range prog.Tables() {
		if !table.WithCounters || len(table.Keys) == 0 {
			continue
		}
		entries, _ := in.Entries(table.Name)
		for _, e := range entries {
			want, err1 := in.DirectCounter(table.Name, &e)
			got, err2 := c.pipeline.DirectCounter(table.Name, &e)
			if want != got || (err1 == nil) != (err2 == nil) {
				t.Errorf("counter of %s %v: interp %v (%v), kernel %v (%v)", table.Name, e.Match,
					want, err1, got, err2)
			}
		}
	}
	t.Logf("%d frames came out", came)
}

// usesClock reports whether a program's output may depend on the time of processing or on queues.
func usesClock(t *testing.T, prog *bmv2json.Program) bool {
	p, err := memory.NewPlan(prog)
	check(t, err)
	for _, f := range []string{"ingress_global_timestamp", "egress_global_timestamp",
		"enq_timestamp", "deq_timedelta", "enq_qdepth", "deq_qdepth"} {
		for _, h := range []string{"standard_metadata", "intrinsic_metadata", "queueing_metadata"} {
			if r := prog.FieldNamed(h, f); !r.IsZero() && p.Reads(r) {
				return true
			}
		}
	}
	return false
}

func show(l []stf.Packet) string {
	s := fmt.Sprintf("%d frames", len(l))
	for _, p := range l {
		s += fmt.Sprintf("\n  port %d: %x", p.Port, p.Frame)
	}
	return s
}
