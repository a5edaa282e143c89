package ebpf

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/p4src"
	"github.com/netcraq/netcraq/switch/bmv2json"
)

// needKernel skips a test where the engine cannot run.
func needKernel(t testing.TB) {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
}

func netcraq(t testing.TB, profile int) *bmv2json.Program {
	t.Helper()
	json, _, err := p4src.Compiled(profile)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := bmv2json.Parse(json)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

func newTestDevice(t testing.TB) *device {
	t.Helper()
	needKernel(t)
	d, err := newDevice(Options{CPUPort: 510, general: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestLoad loads every profile of the NetCRAQ program.
func TestLoad(t *testing.T) {
	d := newTestDevice(t)
	for _, profile := range []int{128, 1024, 4096, 8192} {
		t.Run(fmt.Sprint(profile), func(t *testing.T) {
			if err := d.Commit(netcraq(t, profile)); err != nil {
				var v *ebpf.VerifierError
				if errors.As(err, &v) {
					n := len(v.Log)
					for _, l := range v.Log[max(0, n-60):] {
						t.Log(l)
					}
					os.WriteFile("/tmp/verifier.log", []byte(fmt.Sprintf("%+v", v)), 0o644)
				}
				t.Fatal(err)
			}
		})
	}
}

// TestLoadManyHeaders loads a program whose headers may have more lengths in all than the verifier
// would follow.
func TestLoadManyHeaders(t *testing.T) {
	d := newTestDevice(t)
	check(t, d.Commit(readProgram(t, "testdata/manyheaders.json")))
}
