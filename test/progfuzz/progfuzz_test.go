package progfuzz

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

var (
	programs = flag.Int("programs", 3, "random programs that TestPrograms makes")
	from     = flag.Uint64("from", 1, "the first program's seed")
	frames   = flag.Int("frames", 120, "frames that each program is given")
	reduce   = flag.Int("reduce", 60,
		"how often a program that fails is compiled and run again, to cut it down")
	keepIn = flag.String("keep", "",
		"a folder for the sources, JSON and P4Info of programs that fail, as testdata has them")
	keepAll = flag.Bool("keep-all", false, "keep those that do not fail, too")
)

const compiler = "p4c-bm2-ss"

// compiled is a compiled program in the form that the engines load.
type compiled struct {
	name  string
	seed  uint64
	json  []byte
	prog  *bmv2json.Program
	info  *configv1.P4Info
	text  []byte // the P4Info as text
	loose bool   // the program reads undefined values, so BMv2 cannot run it
	cpu   bool   // the program needs a switch with a CPU port
}

func newCompiled(name string, seed uint64, loose bool, program, info []byte) (*compiled, error) {
	c := &compiled{name: name, seed: seed, loose: loose, json: program, text: info,
		info: &configv1.P4Info{}}
	if err := prototext.Unmarshal(info, c.info); err != nil {
		return nil, fmt.Errorf("the P4Info of %s: %w", name, err)
	}
	var err error
	if c.prog, err = bmv2json.Parse(program); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.cpu = c.prog.Header("packet_in") != nil || seed%2 == 0
	return c, nil
}

// keep writes the compiled program to a folder, without the positions in its source.
func (c *compiled) keep(dir string, p *Program) error {
	var doc any
	if err := json.Unmarshal(c.json, &doc); err != nil {
		return err
	}
	bare, err := json.Marshal(withoutSourceInfo(doc))
	if err != nil {
		return err
	}
	name := fmt.Sprint(c.seed)
	if c.loose {
		name += looseSuffix
	}
	for ext, b := range map[string][]byte{".p4": []byte(p.Source()), ".json": append(bare, '\n'),
		infoSuffix: c.text} {
		if err := os.WriteFile(filepath.Join(dir, name+ext), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	looseSuffix = "-loose"
	infoSuffix  = ".p4info.txtpb"
)

func withoutSourceInfo(x any) any {
	switch x := x.(type) {
	case map[string]any:
		delete(x, "source_info")
		for k, v := range x {
			x[k] = withoutSourceInfo(v)
		}
	case []any:
		for i, v := range x {
			x[i] = withoutSourceInfo(v)
		}
	}
	return x
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCorpus runs the compiled programs in testdata on the interpreter and in the kernel. Some of
// these programs once failed; the others have all features.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	check(t, err)
	if len(files) == 0 {
		t.Fatal("no programs in testdata")
	}
	all := newEngines(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			number, loose := strings.CutSuffix(name, looseSuffix)
			seed, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				t.Fatalf("%s: a program's file is named for its seed: %v", file, err)
			}
			json, err := os.ReadFile(file)
			check(t, err)
			info, err := os.ReadFile(strings.TrimSuffix(file, ".json") + infoSuffix)
			check(t, err)
			c, err := newCompiled("program "+name, seed, loose, json, info)
			check(t, err)
			res, bad := run(c, slices.DeleteFunc(slices.Clone(all.with(c.cpu)),
				func(e engine) bool { _, is := e.(*behavioralModel); return is }), *frames)
			if bad != nil {
				t.Fatal(bad)
			}
			if len(res.refused) > 0 {
				t.Fatalf("the kernel took it, and does not any more: %v", res.refused)
			}
		})
	}
}

// errCompiler means that p4c rejects a program or crashes.
var errCompiler = errors.New(compiler)

func compile(dir string, p *Program) (*compiled, error) {
	source, json, info := filepath.Join(dir, "program.p4"), filepath.Join(dir, "program.json"),
		filepath.Join(dir, "program.p4info.txtpb")
	if err := os.WriteFile(source, []byte(p.Source()), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(compiler, "--Wdisable", "--p4runtime-files", info, "-o", json,
		filepath.Base(source))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w\n%s", errCompiler, err, out)
	}
	j, err := os.ReadFile(json)
	if err != nil {
		return nil, err
	}
	i, err := os.ReadFile(info)
	if err != nil {
		return nil, err
	}
	return newCompiled(fmt.Sprintf("program %d", p.Seed), p.Seed, p.Features.Loose, j, i)
}

// failure describes how a program failed. kind says in which way, so that Reduce does not mistake
// another failure for this one.
type failure struct {
	kind, text string
}

func (f *failure) Error() string { return f.kind + ": " + f.text }

// result is the result of running a program on the engines.
type result struct {
	sent, came int
	refused    map[string]string // the reason why an engine does not support the program, by engine
	bmv2       bool              // the program ran on BMv2
	union      bool              // the program did not run on BMv2 because of [assignsUnionMembers]
}

// run runs a program on all engines.
func run(c *compiled, list []engine, frames int) (res result, failed *failure) {
	res.refused = map[string]string{}
	fail := func(kind, format string, args ...any) (result, *failure) {
		return res, &failure{kind, fmt.Sprintf(format, args...)}
	}
	ref, err := newReference(c)
	if err != nil {
		return fail("interp load", "%v", err)
	}
	pipelines := []target.Pipeline{ref}
	res.union = assignsUnionMembers(c.prog)
	var running []engine
	defer func() {
		for _, e := range list {
			e.unload()
		}
	}()
	for _, e := range list {
		_, isBMv2 := e.(*behavioralModel)
		if isBMv2 && (c.loose || len(c.prog.ValueSets) > 0 || res.union) {
			continue
		}
		if err := e.load(c); err != nil {
			if isBMv2 {
				// BMv2 exited, or its P4Runtime server does not support something in the program.
				res.refused[e.name()] = err.Error()
				continue
			}
			if !errors.Is(err, target.ErrUnsupported) {
				return fail(e.name()+" load", "%v", err)
			}
			res.refused[e.name()] = err.Error()
			continue
		}
		res.bmv2 = res.bmv2 || isBMv2
		running, pipelines = append(running, e), append(pipelines, e.pipeline())
	}
	r := rand.New(rand.NewPCG(c.seed, 0x66696c6c))
	if err := Fill(c.prog, c.info, r, c.cpu, !res.bmv2, pipelines); err != nil {
		return fail("entries", "%v", err)
	}
	if !res.bmv2 {
		for _, reg := range c.prog.Registers {
			for i := range min(reg.Size, 64) {
				v := number(r, reg.Width)
				for _, p := range pipelines {
					if err := p.WriteRegister(reg.Name, i, v); err != nil {
						return fail("entries", "register %s[%d] of %T: %v", reg.Name, i, p, err)
					}
				}
			}
		}
	}
	ports := []uint32{1, 2, 3, 4}
	if c.cpu {
		ports = append(ports, CPUPort)
	}
	packetOut, anyOrder := c.prog.Header("packet_out") != nil, comesBack(c.prog)
	source := NewFrameSource(c.prog, r)
	for n := range frames {
		port, frame := ports[r.IntN(Ports)], source.Next()
		if packetOut && n%7 == 6 {
			// the header gives a port between 0 and 5
			header := []byte{byte(r.IntN(3)), byte(r.IntN(2)) << 7}
			port, frame = CPUPort, append(header, frame...)
		}
		res.sent++
		want := ref.process(port, frame, ports)
		res.came += len(want)
		for _, w := range want {
			source.Learn(w.Frame)
		}
		for _, e := range running {
			got, err := e.exchange(port, frame, len(want))
			if err != nil {
				return fail(e.name()+" exchange", "%v", err)
			}
			kind := differ(want, got)
			_, inKernel := e.(*kernel)
			if kind == "order" && (!e.ordered() || anyOrder) || kind == "frames" && inKernel &&
				shortCopiesLost(len(frame), want, got) {
				kind = ""
			}
			if kind != "" {
				return fail(e.name()+" "+kind, "frame %d by port %d: %x\ninterp: %s\n%s: %s", n,
					port, frame, show(want), e.name(), show(got))
			}
		}
	}
	for _, e := range running {
		kind, text := state(c, ref, e)
		for deadline := time.Now().Add(time.Second); kind != "" &&
			time.Now().Before(deadline); kind, text = state(c, ref, e) {
			// The last frame may still be under way.
			time.Sleep(10 * time.Millisecond)
		}
		if kind != "" {
			return fail(e.name()+" "+kind, "%s", text)
		}
	}
	return res, nil
}

// comesBack returns whether the program resubmits or recirculates packets. The order in which these
// leave, relative to their copies, depends on the target's threads.
func comesBack(prog *bmv2json.Program) bool {
	for _, a := range prog.Actions {
		for _, p := range a.Primitives {
			if p.Op == "resubmit" || p.Op == "recirculate" {
				return true
			}
		}
	}
	return false
}

// assignsUnionMembers returns whether the program assigns one member of a header union to another
// member of it. In such a program, BMv2 sends the written member, although isValid returns false
// for it (switch/stf/testdata/unions.p4).
func assignsUnionMembers(prog *bmv2json.Program) bool {
	for _, a := range prog.Actions {
		for _, p := range a.Primitives {
			if p.Op != "assign_header" {
				continue
			}
			to, from := p.Args[0].Header, p.Args[1].Header
			if to != nil && from != nil && to != from && to.Union != nil && to.Union == from.Union {
				return true
			}
		}
	}
	return false
}

// differ describes how the output frames of two engines differ. It ignores the order of frames at
// different ports.
func differ(want, got []stf.Packet) string {
	byPort := func(l []stf.Packet) []stf.Packet {
		l = slices.Clone(l)
		sort.SliceStable(l, func(i, j int) bool { return l[i].Port < l[j].Port })
		return l
	}
	want, got = byPort(want), byPort(got)
	if equal(want, got) {
		return ""
	}
	for _, l := range [][]stf.Packet{want, got} {
		sort.SliceStable(l, func(i, j int) bool {
			return l[i].Port < l[j].Port || l[i].Port == l[j].Port &&
				bytes.Compare(l[i].Frame, l[j].Frame) < 0
		})
	}
	if equal(want, got) {
		return "order"
	}
	return "frames"
}

// shortCopiesLost returns whether the only missing frames are copies that tc cannot truncate so
// far. After tc has added headers to other copies, it cannot send a frame shorter than 14 bytes
// plus these headers, as docs/switch.md says.
func shortCopiesLost(frame int, want, got []stf.Packet) bool {
	added := 0
	for _, w := range want {
		added = max(added, len(w.Frame)-frame)
	}
	left := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(left, func(g stf.Packet) bool {
			return g.Port == w.Port &&
				bytes.Equal(g.Frame, w.Frame)
		})
		if i >= 0 {
			left = slices.Delete(left, i, i+1)
		} else if len(w.Frame) >= shortest+added {
			return false
		}
	}
	return len(left) == 0
}

func equal(a, b []stf.Packet) bool {
	return slices.EqualFunc(a, b, func(x,
		y stf.Packet) bool {
		return x.Port == y.Port && bytes.Equal(x.Frame, y.Frame)
	})
}

func show(l []stf.Packet) string {
	s := fmt.Sprintf("%d frames", len(l))
	for _, p := range l {
		s += fmt.Sprintf("\n  port %d: %x", p.Port, p.Frame)
	}
	return s
}

// state compares the registers and counters of an engine with those of the interpreter after all
// packets.
func state(c *compiled, ref *reference, e engine) (kind, text string) {
	_, isBMv2 := e.(*behavioralModel)
	p := e.pipeline()
	for _, k := range c.prog.Counters {
		if k.Direct {
			continue
		}
		for i := range k.Size {
			want, _ := ref.ReadCounter(k.Name, i)
			got, err := p.ReadCounter(k.Name, i)
			if err != nil || want != got {
				return "counters", fmt.Sprintf("counter %s[%d]: interp %v, %s %v (%v)", k.Name, i,
					want, e.name(), got, err)
			}
		}
	}
	if isBMv2 {
		return "", ""
	}
	for _, r := range c.prog.Registers {
		want, _ := ref.ReadRegisters(r.Name, 0, r.Size)
		got, err := p.ReadRegisters(r.Name, 0, r.Size)
		if err != nil || fmt.Sprint(want) != fmt.Sprint(got) {
			return "registers", fmt.Sprintf("register %s: interp %x, %s %x (%v)", r.Name, want,
				e.name(), got, err)
		}
	}
	for _, t := range c.prog.Tables() {
		if t.DirectCounter == nil {
			continue
		}
		entries, _ := ref.Entries(t.Name)
		for _, x := range entries {
			want, err1 := ref.DirectCounter(t.Name, &x)
			got, err2 := p.DirectCounter(t.Name, &x)
			if want != got || (err1 == nil) != (err2 == nil) {
				return "counters", fmt.Sprintf("counter of %s %v: interp %v (%v), %s %v (%v)",
					t.Name, x.Match, want, err1, e.name(), got, err2)
			}
		}
	}
	var got []target.Digest
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if got = e.digests(); len(got) >= len(ref.learned) || time.Now().After(deadline) {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(ref.learned) {
		return "digests", fmt.Sprintf("digests: interp %v\n%s %v", ref.learned, e.name(), got)
	}
	return "", ""
}

// normalised returns the text of a refusal without the parts that differ between programs.
func normalised(why string) string {
	return numbers.ReplaceAllString(why[strings.Index(why, ": ")+1:], "#")
}

var numbers = regexp.MustCompile(`\[\d+\]|\d+|"[^"]*"`)

// TestPrograms generates random programs, compiles them, and runs them on every engine that this
// machine has. The target fuzz-programs of make runs many programs.
func TestPrograms(t *testing.T) {
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no compiler for the programs, TestCorpus runs some that were compiled before: %v",
			err)
	}
	all := newEngines(t)
	refused, rejected, failed := map[string][]uint64{}, 0, 0
	sent, came, compared, unions := 0, 0, 0, 0
	for seed := *from; seed < *from+uint64(*programs); seed++ {
		p := Generate(seed)
		dir := t.TempDir()
		c, err := compile(dir, p)
		if errors.Is(err, errCompiler) {
			rejected++
			t.Logf("program %d: %.2000s", seed, err)
			continue
		}
		if err != nil { // Package bmv2json rejects the program.
			why := "the reader refuses " + normalised(err.Error())
			refused[why] = append(refused[why], seed)
			continue
		}
		res, bad := run(c, all.with(c.cpu), *frames)
		sent, came = sent+res.sent, came+res.came
		if res.bmv2 {
			compared++
		}
		if res.union {
			unions++
		}
		for engine, why := range res.refused {
			engine, _, _ = strings.Cut(engine, "-")
			why = engine + " refuses " + normalised(why)
			if !slices.Contains(refused[why], seed) {
				refused[why] = append(refused[why], seed)
			}
		}
		if bad == nil {
			if *keepAll && *keepIn != "" {
				check(t, c.keep(*keepIn, p))
			}
			continue
		}
		failed++
		only := slices.DeleteFunc(slices.Clone(all.with(c.cpu)),
			func(e engine) bool { return !strings.HasPrefix(bad.kind, e.name()+" ") })
		p.Reduce(*reduce, func() bool {
			smaller, err := compile(t.TempDir(), p)
			if err != nil {
				return false
			}
			_, now := run(smaller, only, *frames)
			if now == nil || now.kind != bad.kind {
				return false
			}
			bad, c = now, smaller
			return true
		})
		if *keepIn != "" {
			check(t, c.keep(*keepIn, p))
		}
		t.Errorf("program %d (make fuzz-programs FROM=%d PROGRAMS=1; %s): %v\n%s", seed, seed,
			p.Features, bad, p.Source())
	}
	t.Logf("%d programs from %d on: %d failed, %d compared with BMv2, %d not with BMv2 as they "+
		"assign a union's member to another, %d refused by the compiler; %d frames, %d came out",
		*programs, *from, failed, compared, unions, rejected, sent, came)
	var reasons []string
	for why, seeds := range refused {
		reasons = append(reasons, fmt.Sprintf("%d: %s %v", len(seeds), why,
			seeds[:min(5, len(seeds))]))
	}
	sort.Strings(reasons)
	for _, l := range reasons {
		t.Log(l)
	}
}
