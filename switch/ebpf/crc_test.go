package ebpf

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// TestCustomCRC repeatedly changes the parameters of a program's custom CRCs and then sends frames.
// The kernel must give the same results as the interpreter, which other tests compare with BMv2.
func TestCustomCRC(t *testing.T) {
	eachHook(t, "crc", func(t *testing.T, h Hook) {
		prog := readProgram(t, "testdata/hashes.json")
		in, err := interp.New(prog, interp.Options{})
		check(t, err)
		c, err := newCaptured(t, prog, h)
		check(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		changed := 0
		for round := range 40 {
			for _, k := range prog.Calculations {
				crc := target.CRC{Polynomial: r.Uint32(), Init: r.Uint32(), XorOut: r.Uint32(),
					ReflectIn: r.IntN(2) == 0, ReflectOut: r.IntN(2) == 0}
				custom := k.Algo == "crc16_custom" || k.Algo == "crc32_custom"
				if custom && round > 0 { // The first round uses the program's initial parameters.
					check(t, in.SetCRC(k.Name, crc))
					check(t, c.pipeline.SetCRC(k.Name, crc))
					changed++
				}
				if custom {
					continue
				}
				if err := c.pipeline.SetCRC(k.Name, crc); !errors.Is(err, target.ErrInvalid) {
					t.Errorf("parameters of %s: %v", k.Algo, err)
				}
			}
			for range 5 {
				frame := make([]byte, 200)
				for i := range frame {
					frame[i] = byte(r.Uint32())
				}
				frame[5] |= 3 // the frame contains all headers
				var want []stf.Packet
				for _, o := range in.Process(time.Second, 1, frame) {
					want = append(want, stf.Packet{Port: o.Port, Frame: o.Frame})
				}
				got, err := c.process(1, frame, len(want))
				check(t, err)
				if show(got) != show(want) {
					t.Fatalf("round %d: the kernel sends\n    %s\nnot %s", round, show(got), show(want))
				}
			}
		}
		if changed == 0 {
			t.Error("the program has no custom CRC")
		}
		if err := c.pipeline.SetCRC("nothing", target.CRC{}); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("parameters of a calculation that is not there: %v", err)
		}
	})
}
