package ebpf

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/target"
)

// TestEmptyValueSet runs a program whose value set has no members, so no key may match.
func TestEmptyValueSet(t *testing.T) {
	text, err := os.ReadFile("testdata/valuesets.json")
	check(t, err)
	const size = `"max_size" : 4`
	if bytes.Count(text, []byte(size)) != 1 {
		t.Fatal("the program does not have one value set of 4 members")
	}
	prog, err := bmv2json.Parse(bytes.Replace(text, []byte(size), []byte(`"max_size" : 0`), 1))
	check(t, err)
	one := [][]target.FieldMatch{{{Value: []byte{1}}}}
	full := func(engine string, p target.Pipeline) {
		if err := p.SetValueSet("P.bytes", one); !errors.Is(err, target.ErrFull) {
			t.Errorf("%s takes a member of a set of none: %v", engine, err)
		}
		check(t, p.SetValueSet("P.bytes", nil))
	}
	p, err := interp.New(prog, interp.Options{})
	check(t, err)
	full("interp", p)
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		c, err := newCaptured(t, prog, h)
		check(t, err)
		full("the kernel", c.Pipeline())
		frame := make([]byte, 60)
		frame[5] = 1 // the key that is looked up in the value set
		out, err := c.process(1, frame, 1)
		check(t, err)
		if len(out) != 1 || out[0].Frame[12] != 0x88 || out[0].Frame[13] != 0 {
			t.Errorf("a frame comes out as %x", out)
		}
	})
}
