package stf_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

var update = flag.Bool("update", false,
	"write the expectations of testdata/*.stf anew, from what the interp engine does")

// psaProgram is the path of the project's PSA program, without extension.
const psaProgram = "testdata/psa/psa"

// programs returns the project's own v1model programs under testdata.
func programs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.p4")
	if err != nil || len(files) == 0 {
		t.Fatalf("no programs under testdata: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".p4")
	}
	return files
}

// TestPrograms runs the project's own STF files. The flag -update rewrites their expectations.
// TestAgainstBMv2 checks that they are right.
func TestPrograms(t *testing.T) {
	for _, p := range append(programs(t), psaProgram) {
		file := p + ".stf"
		if _, err := os.Stat(file); os.IsNotExist(err) {
			continue // a Go test runs this program
		}
		t.Run(filepath.Base(p), func(t *testing.T) {
			if *update {
				writeExpectations(t, p+".json", file)
			}
			diffs, err := runFile(p+".json", file)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range diffs {
				t.Error(d)
			}
		})
	}
}

// writeExpectations replaces the expectations in an STF file by the actual outgoing frames, after
// each packet.
func writeExpectations(t *testing.T, program, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if !strings.HasPrefix(line, "expect") {
			kept = append(kept, line)
		}
	}
	f, err := stf.Parse(file, []byte(strings.Join(kept, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	prog, err := bmv2json.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	p, err := interp.New(prog, interp.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	sw := stf.Interp(p)
	var left [][]stf.Packet
	process := sw.Process
	sw.Process = func(now time.Duration, port uint32, frame []byte) []stf.Packet {
		out := process(now, port, frame)
		left = append(left, out)
		return out
	}
	if _, err := stf.Run(f, sw); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, line := range kept {
		fmt.Fprintln(&out, line)
		if !strings.HasPrefix(line, "packet") {
			continue
		}
		for _, o := range left[0] {
			fmt.Fprintf(&out, "expect %d %x$\n", o.Port, o.Frame)
		}
		left = left[1:]
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCompiledPrograms compiles the programs again if p4c is installed, and compares the output
// with the committed files.
func TestCompiledPrograms(t *testing.T) {
	for _, p := range append(programs(t), psaProgram) {
		t.Run(filepath.Base(p), func(t *testing.T) {
			name, arch := compilerName, "v1model"
			if p == psaProgram {
				name, arch = psaCompilerName, "psa"
			}
			compiler, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("no %s on PATH to compile %s.p4 with: %v", name, p, err)
			}
			out := filepath.Join(t.TempDir(), "program.json")
			info := filepath.Join(t.TempDir(), "program.p4info.txtpb")
			cmd := exec.Command(compiler, "--arch", arch, "--p4runtime-files", info, "-o", out,
				filepath.Base(p)+".p4")
			cmd.Dir = filepath.Dir(p)
			if msg, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, msg)
			}
			if *update {
				copyFile(t, out, p+".json")
				copyFile(t, info, p+".p4info.txtpb")
			}
			if got, want := normalised(t, out), normalised(t, p+".json"); got != want {
				t.Errorf("%s.json is not what %s makes of %s.p4: run this test with -update", p,
					name, p)
			}
			if got, want := read(t, info), read(t, p+".p4info.txtpb"); !bytes.Equal(got, want) {
				t.Errorf(
					"%s.p4info.txtpb is not what %s makes of %s.p4: run this test with -update", p,
					name, p)
			}
		})
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.WriteFile(to, read(t, from), 0o644); err != nil {
		t.Fatal(err)
	}
}

// normalised returns a compiled program without the parts that depend on the compiler's version.
func normalised(t *testing.T, file string) string {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(read(t, file), &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	delete(doc, "__meta__")
	b, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
