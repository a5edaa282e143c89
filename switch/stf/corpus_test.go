package stf_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/internal/knownfailures"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

// corpusVariable is the environment variable with the location of p4c's tests: a checkout of p4c,
// or its testdata folder.
const corpusVariable = "NETCRAQ_P4C_CORPUS"

// p4c's back ends for BMv2's simple_switch and psa_switch.
const (
	compilerName    = "p4c-bm2-ss"
	psaCompilerName = "p4c-bm2-psa"
)

// TestP4CCorpus compiles every v1model and PSA program of p4c's own tests that has an STF file, and
// runs the STF file. The tests should come from the same version as the installed p4c.
// testdata/p4c-known-failures.txt must list exactly the programs that fail.
func TestP4CCorpus(t *testing.T) {
	root := os.Getenv(corpusVariable)
	if root == "" {
		t.Skipf("%s is not set: it names a checkout of p4c, whose tests are then run",
			corpusVariable)
	}
	if _, err := os.Stat(filepath.Join(root, "testdata")); err == nil {
		root = filepath.Join(root, "testdata")
	}
	failures := knownfailures.Read(t, filepath.Join("testdata", "p4c-known-failures.txt"))
	for _, c := range []struct {
		compiler, dir string
		// The file that programs of this architecture include. "" means that all programs belong to
		// the architecture.
		include string
		args    []string
	}{
		{compilerName, "p4_16_samples", "v1model.p4", nil},
		{compilerName, "p4_14_samples", "", []string{"--std", "p4-14"}},
		{psaCompilerName, "p4_16_samples", "psa.p4", nil},
	} {
		compiler, err := exec.LookPath(c.compiler)
		if err != nil {
			t.Skipf("no %s on PATH to compile p4c's tests with: %v", c.compiler, err)
		}
		files, err := filepath.Glob(filepath.Join(root, c.dir, "*.stf"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no STF files in %s", root, c.dir)
		}
		for _, f := range files {
			name := c.dir + "/" + strings.TrimSuffix(filepath.Base(f), ".stf")
			program := strings.TrimSuffix(f, ".stf") + ".p4"
			if !includes(t, program, c.include) {
				continue
			}
			verdict := failures.Verdict(name)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var differences []string
				if err := runCorpusProgram(t, compiler, c.args, program, f); err != nil {
					differences = append(differences, err.Error())
				}
				verdict(t, differences)
			})
		}
	}
	failures.Left(t)
}

// includes reports whether a program contains the name of the file that an architecture's programs
// include.
func includes(t *testing.T, program, architecture string) bool {
	t.Helper()
	text, err := os.ReadFile(program)
	if os.IsNotExist(err) { // some STF files are for programs in other folders
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(text, []byte(architecture))
}

func runCorpusProgram(t *testing.T, compiler string, args []string, program, file string) error {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program.json")
	cmd := exec.Command(compiler, append(args, "-o", out, filepath.Base(program))...)
	cmd.Dir = filepath.Dir(program)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not compile: %w\n%s", program, err, msg)
	}
	diffs, err := runFile(out, file)
	if err != nil {
		return err
	}
	if len(diffs) > 0 {
		return fmt.Errorf("%s", strings.Join(diffs, "\n"))
	}
	return nil
}

// runFile runs an STF file against a compiled program on the interp engine.
func runFile(program, file string) ([]string, error) {
	prog, err := bmv2json.ReadFile(program)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f, err := stf.Parse(filepath.Base(file), text)
	if err != nil {
		return nil, err
	}
	p, err := interp.New(prog, interp.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	return stf.Run(f, stf.Interp(p))
}
