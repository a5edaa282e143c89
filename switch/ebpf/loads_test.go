package ebpf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// refusedByTheVerifier lists programs of p4c, p4-learning and p4-guide that are too complex for the
// kernel's verifier, with the reason. A key is the end of a file's name.
var refusedByTheVerifier = map[string]string{
	"axon.json":                  "more than a million instructions",
	"parser_dc_full.json":        "more than a million instructions",
	"issue561-bmv2.json":         "more than a million instructions",
	"tcp-options-parser.json":    "more than a million instructions",
	"source_routing.json":        "more than a million instructions",
	"invalid-hdr-warnings1.json": "a parser that goes round and takes nothing",
	"parser-unroll-test9.json":   "a parser that goes round and takes nothing",
}

// known reports whether a program is in refusedByTheVerifier.
func known(file string) bool {
	for name := range refusedByTheVerifier {
		if strings.HasSuffix(filepath.Base(file), name) {
			return true
		}
	}
	return false
}

// TestLoads compiles every program that the interpreter accepts and loads it into the kernel. It
// does this as a switch with interfaces does, with and without a CPU port, at both hooks. If this
// engine does not support a construct of a program, the test skips the program and names the
// construct. Errors of the translator and refusals by the verifier are failures.
func TestLoads(t *testing.T) {
	needKernel(t)
	kinds := []Options{{Hook: HookTC}, {Hook: HookTC, CPUPort: 510}, {Hook: HookXDP},
		{Hook: HookXDP, CPUPort: 510}}
	var devices []*device
	for _, o := range kinds {
		d, err := newDevice(o)
		check(t, err)
		t.Cleanup(func() { d.Close() })
		devices = append(devices, d)
	}
	programs, loaded := 0, make([]int, len(kinds))
	for _, file := range programFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			var prog *bmv2json.Program
			t.Run("interp", func(t *testing.T) {
				read, err := bmv2json.ReadFile(file)
				if err == nil {
					_, err = interp.New(read, interp.Options{})
				}
				if err != nil {
					t.Skip(err)
				}
				prog = read
			})
			if prog == nil {
				return
			}
			programs++
			for i, d := range devices {
				t.Run(fmt.Sprintf("%v-%d", kinds[i].Hook, kinds[i].CPUPort), func(t *testing.T) {
					err := d.Verify(prog)
					switch {
					case err == nil:
						loaded[i]++
					case errors.Is(err, target.ErrUnsupported) &&
						(!strings.Contains(err.Error(), "verifier") || known(file)):
						t.Skip(err)
					default:
						t.Error(err)
					}
				})
			}
		})
	}
	for i, o := range kinds {
		t.Logf("%v, CPU port %d: %d of %d programs load", o.Hook, o.CPUPort, loaded[i], programs)
	}
}
