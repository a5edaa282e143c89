package ebpf

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// needKernel skips a test if the engine cannot run here.
func needKernel(t testing.TB) {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
}

// compiled is the common prefix of the paths of compiled NetCRAQ programs.
const compiled = "../../p4src/compiled/netcraq-"

func netcraq(t testing.TB, profile int) *bmv2json.Program {
	t.Helper()
	return readProgram(t, fmt.Sprint(compiled, profile, ".json.gz"))
}

// eventually waits until wrong returns "". Otherwise wrong must describe the difference from the
// expected state. After limit, eventually fails the test.
func eventually(t testing.TB, limit time.Duration, wrong func() string) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", limit, why)
		}
	}
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

// TestLoad loads every profile of the NetCRAQ program into the kernel.
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

// TestLoadManyHeaders loads a program with so many possible total header lengths that the verifier
// could not follow them all.
func TestLoadManyHeaders(t *testing.T) {
	d := newTestDevice(t)
	check(t, d.Commit(readProgram(t, "testdata/manyheaders.json")))
}
