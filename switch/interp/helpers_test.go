package interp

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// programFile returns the path of one of the project's own test programs, without its extension.
// The P4 source is in the same folder.
func programFile(name string) string { return filepath.Join("..", "stf", "testdata", name+".json") }

func load(t testing.TB, name string, opts Options) *Pipeline {
	t.Helper()
	prog, err := bmv2json.ReadFile(programFile(name))
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(prog, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// frame parses a frame in hexadecimal digits.
func frame(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// single processes a frame that arrives at port 0, and expects that exactly one frame leaves.
func single(t testing.TB, p *Pipeline, digits string) Out {
	t.Helper()
	outs := p.Process(time.Second, 0, frame(t, digits))
	if len(outs) != 1 {
		t.Fatalf("%d frames left after %s", len(outs), digits)
	}
	return outs[0]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func act(name string, params ...[]byte) *target.ActionCall {
	return &target.ActionCall{Action: name, Params: params}
}
