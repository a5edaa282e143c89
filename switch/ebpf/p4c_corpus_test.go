package ebpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/internal/knownfailures"
	"github.com/netcraq/netcraq/switch/stf"
)

// TestP4CCorpus runs the STF files of p4c's own v1model programs in the kernel, at tc. It skips
// programs that the compiler or the kernel refuses, and names the reason. It also skips frames that
// are shorter than an Ethernet header, because no interface carries them.
// testdata/p4c-known-failures.txt must list exactly the programs that fail.
func TestP4CCorpus(t *testing.T) {
	root := os.Getenv("NETCRAQ_P4C_CORPUS")
	if root == "" {
		t.Skip("NETCRAQ_P4C_CORPUS is not set: it names a checkout of p4c, whose tests are then run")
	}
	needKernel(t)
	compiler, err := exec.LookPath("p4c-bm2-ss")
	if err != nil {
		t.Skipf("no p4c-bm2-ss on PATH to compile p4c's tests with: %v", err)
	}
	failures := knownfailures.Read(t, filepath.Join("testdata", "p4c-known-failures.txt"))
	for _, c := range []struct {
		folder, include string
		args            []string
	}{
		{"p4_16_samples", "v1model.p4", nil},
		{"p4_14_samples", "", []string{"--std", "p4-14"}},
	} {
		files, err := filepath.Glob(filepath.Join(root, "testdata", c.folder, "*.stf"))
		check(t, err)
		if len(files) == 0 {
			t.Fatalf("%s has no STF files in testdata/%s", root, c.folder)
		}
		for _, f := range files {
			program := strings.TrimSuffix(f, ".stf") + ".p4"
			source, err := os.ReadFile(program)
			if os.IsNotExist(err) || !bytes.Contains(source, []byte(c.include)) {
				continue // the file's program is in another folder, or is for another architecture
			}
			check(t, err)
			name := c.folder + "/" + strings.TrimSuffix(filepath.Base(f), ".stf")
			verdict := failures.Verdict(name)
			t.Run(name, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "program.json")
				cmd := exec.Command(compiler, append(c.args, "-o", out, filepath.Base(program))...)
				cmd.Dir = filepath.Dir(program)
				if said, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("%s does not compile: %v\n%s", program, err, said)
				}
				text, err := os.ReadFile(f)
				check(t, err)
				parsed, err := stf.Parse(f, text)
				check(t, err)
				for _, c := range parsed.Commands {
					if c.Verb == "packet" && len(c.Frame) < 14 {
						t.Skipf("a frame of %d bytes, which no interface carries", len(c.Frame))
					}
				}
				verdict(t, runSTF(t, HookTC, out, text, false))
			})
		}
	}
	failures.Left(t)
}
