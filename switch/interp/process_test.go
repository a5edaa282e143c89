package interp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp/internal/testutil"
	"github.com/netcraq/netcraq/switch/target"
)

// TestSideEffects checks effects of a program other than frames: digests, messages, random numbers
// and assertions.
func TestSideEffects(t *testing.T) {
	var digests []target.Digest
	var messages []string
	var p *Pipeline
	p = load(t, "stateful", Options{
		Seed: 42,
		OnDigest: func(d target.Digest) {
			digests = append(digests, d)
			// OnDigest may call the pipeline.
			if _, err := p.ReadRegister("I.narrow", 0); err != nil {
				t.Error(err)
			}
		},
		Log: func(s string) { messages = append(messages, s) },
	})
	single(t, p, "08 1234 01020304050607fa 00000000000000000000000000000000")
	want := target.Digest{Name: "seen_t", Fields: [][]byte{{0x12, 0x34}, {0x1a},
		{1, 2, 3, 4, 5, 6, 7, 0xfa}}}
	if len(digests) != 1 || fmt.Sprint(digests[0]) != fmt.Sprint(want) {
		t.Errorf("digests: %v", digests)
	}
	single(t, p, "09 1234 0000000000000007 00000000000000000000000000000000")
	if !slices.Equal(messages, []string{"index 4660 value 7", "done"}) {
		t.Errorf("messages: %q", messages)
	}
	messages = nil
	if outs := p.Process(0, 0, frame(t,
		"0b dead 0000000000000007 00000000000000000000000000000000")); len(outs) != 0 ||
		len(messages) != 1 ||
		!strings.Contains(messages[0], "assert failed") {
		t.Errorf("an assertion that does not hold: %v, %q", outs, messages)
	}
	single(t, p, "0b beef 0000000000000007 00000000000000000000000000000000")
}

// TestTimestamps checks the clock that the program sees. It has 48 bits and counts microseconds.
func TestTimestamps(t *testing.T) {
	prog := testutil.FieldsProgram(t, []int{8})
	p, err := New(prog, Options{})
	must(t, err)
	if outs := p.Process(time.Hour, 3, []byte{1, 2, 3}); len(outs) != 1 || outs[0].Port != 0 ||
		!bytes.Equal(outs[0].Frame, []byte{1, 2, 3}) {
		t.Errorf("an empty program gave %v", outs)
	}
}

// TestPassesAreBounded sends a packet that the program would recirculate for ever.
func TestPassesAreBounded(t *testing.T) {
	var said []string
	p := load(t, "copies", Options{MaxPasses: 50, Log: func(s string) { said = append(said, s) }})
	must(t, p.SetCloneSession(0,
		&target.CloneSession{Replicas: []target.Replica{{Port: 1}, {Port: 2}}}))
	must(t, p.SetMulticastGroup(9, slices.Repeat([]target.Replica{{Port: 1, Instance: 1}}, 100)))
	if outs := p.Process(0, 0, frame(t, "01 00 0009 00")); len(outs) != 49 || len(said) != 1 {
		t.Errorf("%d frames left, and %q was said", len(outs), said)
	}
	// The earlier packet has left no copies behind.
	if outs := p.Process(0, 0, frame(t, "00 00 0000 00")); len(outs) != 1 {
		t.Errorf("after that %d frames left", len(outs))
	}
}

// TestCloneSession checks that the copies of a clone session are truncated.
func TestCloneSession(t *testing.T) {
	p := load(t, "copies", Options{})
	must(t, p.SetCloneSession(5,
		&target.CloneSession{Replicas: []target.Replica{{Port: 4, Instance: 77}}, TruncateTo: 10}))
	outs := p.Process(0, 0, frame(t, "02 00 0005 00 aabbccddeeff"))
	if len(outs) != 2 || outs[0].Port != 4 || len(outs[0].Frame) != 10 || outs[0].Frame[6] != 77 ||
		len(outs[1].Frame) != 24 {
		t.Errorf("%+v", outs)
	}
	if s := p.CloneSessions()[5]; s.TruncateTo != 10 || len(s.Replicas) != 1 {
		t.Errorf("the session is %+v", s)
	}
	must(t, p.SetCloneSession(5, nil))
	if outs := p.Process(0, 0, frame(t, "02 00 0005 00")); len(outs) != 1 {
		t.Errorf("without the session %+v", outs)
	}
}

// TestMemory checks the ownership of memory. Process hands its frames over, and ProcessInto lends
// them. Neither retains the received frame. ProcessInto does not allocate memory.
func TestMemory(t *testing.T) {
	p := load(t, "tables", Options{})
	in := frame(t, "08 0001 00000000 00 000000000000000000 11223344")
	first := p.Process(0, 0, in)[0].Frame
	kept := bytes.Clone(first)
	clear(in)
	p.Process(0, 0, frame(t, "08 ffff ffffffff ff ffffffffffffffffff"))
	if !bytes.Equal(first, kept) {
		t.Error("a frame changed after it was given away")
	}
	for _, name := range []string{"tables", "stateful", "arithmetic", "parsing"} {
		p := load(t, name, Options{})
		var b Buffer
		in := make([]byte, 80)
		for i := range in {
			in[i] = byte(i)
		}
		for op := range byte(13) {
			in[0] = op
			if name == "stateful" && op == 8 || name == "arithmetic" && op > 11 {
				continue
			}
			if n := testing.AllocsPerRun(20, func() { p.ProcessInto(&b, 0, 0, in) }); n != 0 {
				t.Errorf("%s, operation %d: %v allocations a packet", name, op, n)
			}
		}
	}
}

// TestDeterminism sends the same packets through two pipelines with the same seed. Both must return
// the same frames.
func TestDeterminism(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	a, b := load(t, "stateful", Options{Seed: 3}), load(t, "stateful", Options{Seed: 3})
	var buf Buffer
	for range 2000 {
		f := make([]byte, r.IntN(60))
		for i := range f {
			f[i] = byte(r.Uint32())
		}
		if len(f) > 0 {
			f[0] &= 15
		}
		x := a.Process(time.Second, 1, f)
		b.ProcessInto(&buf, time.Second, 1, f)
		if fmt.Sprint(x) != fmt.Sprint(buf.Outs) {
			t.Fatalf("%x gives %v and %v", f, x, buf.Outs)
		}
	}
}

// TestRefusals changes programs so that they use things that do not exist. New must refuse each
// program with an error that names the problem and its place.
func TestRefusals(t *testing.T) {
	type object = map[string]any
	tests := []struct {
		name, program string
		change        func(doc object)
		want          string
	}{
		{"unknown primitive", "tables", func(d object) {
			d["actions"].([]any)[7].(object)["primitives"].([]any)[0].(object)["op"] = "teleport"
		}, `actions[7].primitives[0]: the primitive "teleport"`},
		{"primitive with an argument too many", "tables", func(d object) {
			p := d["actions"].([]any)[7].(object)["primitives"].([]any)[0].(object)
			p["parameters"] = append(p["parameters"].([]any),
				object{"type": "hexstr", "value": "0x1"})
		}, "actions[7].primitives[0]: assign with 3 arguments instead of 2"},
		{"primitive with an argument of another kind", "tables", func(d object) {
			d["actions"].([]any)[7].(object)["primitives"].([]any)[0].(object)["parameters"].([]any)[0] = object{"type": "hexstr", "value": "0x1"}
		}, `actions[7].primitives[0].parameters[0]: assign with a "hexstr" as argument 0`},
		{"unknown hash", "stateful",
			func(d object) { d["calculations"].([]any)[0].(object)["algo"] = "md5" },
			`calculations[0]: the hash algorithm "md5"`},
		{"extern instance", "tables", func(d object) {
			d["extern_instances"] = []any{object{"name": "x", "id": 0, "type": "wormhole",
				"attribute_values": []any{}}}
		}, `extern_instances[0]: extern instance "x" of type "wormhole"`},
		{"meter of three rates", "stateful",
			func(d object) { d["meter_arrays"].([]any)[0].(object)["rate_count"] = 3 },
			"meter_arrays[0]: a meter of 3 rates"},
		{"register of many gigabytes", "stateful", func(d object) {
			r := d["register_arrays"].([]any)[0].(object)
			r["size"], r["bitwidth"] = 1<<27, 65536
		}, `register_arrays[0]: registers, counters and meters of 1048576 MB in all`},
		{"no egress", "tables", func(d object) { d["pipelines"] = d["pipelines"].([]any)[:1] },
			`without a pipeline named "egress"`},
		{"no parser", "tables", func(d object) { d["parsers"] = []any{} },
			"0 parsers and 1 deparsers"},
		{"no standard metadata", "tables", func(d object) {
			for _, h := range d["header_types"].([]any) {
				if h := h.(object); h["name"] == "standard_metadata" {
					h["fields"].([]any)[0].([]any)[0] = "elsewhere"
				}
			}
			delete(d, "field_aliases")
		}, "without standard_metadata.ingress_port"},
		{"unknown field list", "copies", func(d object) { d["field_lists"] = []any{} },
			"field list"},
		{"unknown learn list", "stateful", func(d object) { d["learn_lists"] = []any{} },
			"learn list"},
		{"value without bound", "arithmetic", func(d object) {
			c := d["pipelines"].([]any)[0].(object)["conditionals"].([]any)[0].(object)
			shift := func(e any) any {
				return object{"type": "expression",
					"value": object{"op": "<<", "left": e,
						"right": object{"type": "field", "value": []any{"i", "x"}}}}
			}
			c["expression"] = object{"type": "expression", "value": object{"op": "==",
				"left":  shift(object{"type": "field", "value": []any{"i", "x"}}),
				"right": object{"type": "hexstr", "value": "0x0"}}}
		}, "has no bound that can be told"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := os.ReadFile(programFile(tt.program))
			must(t, err)
			var doc object
			must(t, json.Unmarshal(text, &doc))
			tt.change(doc)
			text, err = json.Marshal(doc)
			must(t, err)
			prog, err := bmv2json.Parse(text)
			must(t, err)
			_, err = New(prog, Options{})
			if !errors.Is(err, target.ErrUnsupported) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
			if verr := Verify(prog, Options{}); verr == nil || verr.Error() != err.Error() {
				t.Errorf("Verify: %v", verr)
			}
		})
	}
}

// TestConcurrency makes the control plane change everything while packets are processed. The race
// detector checks the accesses. The test checks that a packet sees a register either before or
// after a write.
func TestConcurrency(t *testing.T) {
	p := load(t, "stateful", Options{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	background := func(do func(i int)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					do(i)
				}
			}
		}()
	}
	key := func(i int) []target.FieldMatch {
		return []target.FieldMatch{{Value: []byte{0,
			byte(i)}}}
	}
	background(func(i int) {
		_ = p.InsertEntry("I.metered", &target.TableEntry{Match: key(i % 8),
			Action: act("I.measured", []byte{1, 1})})
		_ = p.ModifyEntry("I.metered", &target.TableEntry{Match: key(i % 5),
			Action: act("I.measured", []byte{2, 2})})
		_ = p.DeleteEntry("I.metered", &target.TableEntry{Match: key(i % 7)})
		if _, err := p.Entries("I.metered"); err != nil {
			t.Error(err)
		}
		_ = p.SetDirectMeter("I.metered", &target.TableEntry{Match: key(i % 8)},
			&target.MeterConfig{})
	})
	background(func(i int) {
		v := bytes.Repeat([]byte{byte(i)}, 16)
		if err := p.FillRegister("I.wide", v); err != nil {
			t.Error(err)
		}
		cells, err := p.ReadRegisters("I.wide", 0, 4)
		if err != nil {
			t.Error(err)
		}
		for _, c := range cells {
			if slices.Min(c) != slices.Max(c) && !bytes.Equal(c[:15], bytes.Repeat(c[:1], 15)) {
				t.Errorf("half of a write: %x", c)
			}
		}
		_ = p.WriteMeter("I.limit", 1, &target.MeterConfig{})
		_ = p.WriteCounter("I.packets", 1, target.CounterData{})
	})
	for i := range 20000 {
		op := []byte{1, 3, 4, 5}[i%4]
		f := make([]byte, 27)
		f[0], f[2] = op, byte(i%4)
		outs := p.Process(time.Duration(i), 0, f)
		if len(outs) != 1 {
			t.Fatalf("%d frames left", len(outs))
		}
		if w := outs[0].Frame[4:20]; op == 1 && slices.Min(w[:15]) != slices.Max(w[:15]) {
			t.Fatalf("a packet saw half of a write: %x", w)
		}
	}
	close(stop)
	wg.Wait()
}

// FuzzProcess sends frames through every program. The state is such that frames reach as much of
// the program as possible.
func FuzzProcess(f *testing.F) {
	var pipelines []*Pipeline
	for _, name := range []string{"arithmetic", "copies", "parsing", "selector", "stateful",
		"tables"} {
		p := load(f, name, Options{MaxPasses: 64, Log: func(string) {},
			OnDigest: func(target.Digest) {}})
		for s := range uint32(16) {
			must(f, p.SetCloneSession(s,
				&target.CloneSession{Replicas: []target.Replica{{Port: s, Instance: 1}, {Port: 1}},
					TruncateTo: int(s)}))
			must(f, p.SetMulticastGroup(s+1, []target.Replica{{Port: s}, {Port: 2, Instance: 9}}))
		}
		pipelines = append(pipelines, p)
	}
	for op := range byte(16) {
		b := bytes.Repeat([]byte{0x80, 0xff, 0x01, 0x00, 0x7f}, 12)
		b[0] = op
		f.Add(b)
		f.Add(b[:5+op])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		before := bytes.Clone(in)
		for _, p := range pipelines {
			for _, o := range p.Process(time.Duration(len(in))*time.Second, uint32(len(in)), in) {
				if len(o.Frame) > len(in)+512 {
					t.Errorf("a frame of %d bytes grew to %d", len(in), len(o.Frame))
				}
			}
			if len(p.queue) != 0 || len(p.input) != 0 {
				t.Error("packets are left under way")
			}
		}
		if !bytes.Equal(in, before) {
			t.Error("the frame was written to")
		}
	})
}

// TestManyFrames runs the body of the fuzz test with random frames, for test runs without fuzzing.
func TestManyFrames(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, name := range []string{"arithmetic", "copies", "parsing", "selector", "stateful",
		"tables"} {
		p := load(t, name, Options{MaxPasses: 64})
		for s := range uint32(16) {
			must(t, p.SetCloneSession(s,
				&target.CloneSession{Replicas: []target.Replica{{Port: s, Instance: 1},
					{Port: 1}}}))
			must(t, p.SetMulticastGroup(s+1, []target.Replica{{Port: s}, {Port: 2, Instance: 9}}))
		}
		n := 0
		for range 20000 {
			f := make([]byte, r.IntN(70))
			for i := range f {
				f[i] = byte(r.Uint32())
				if r.IntN(3) > 0 {
					f[i] &= 15
				}
			}
			n += len(p.Process(time.Duration(r.Int64N(1e12)), 1, f))
		}
		if n == 0 {
			t.Errorf("%s: nothing left", name)
		}
		if len(p.free) > 64 {
			t.Errorf("%s: %d states are kept", name, len(p.free))
		}
	}
}
