package ebpf

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
)

// TestQueues: a packet waits in no queue, whatever ingress has said, and enters it between ingress
// and egress; on both engines.
func TestQueues(t *testing.T) {
	prog := readProgram(t, "testdata/queues.json")
	look := func(engine string, frame []byte) {
		if len(frame) != 14+28+6 {
			t.Fatalf("%s sends %d bytes", engine, len(frame))
		}
		came, left := binary.BigEndian.Uint64(frame[12:])&(1<<48-1),
			binary.BigEndian.Uint64(frame[22:])&(1<<48-1)
		entered := binary.BigEndian.Uint32(frame[20:])
		if uint32(left)-entered > 1e6 || entered-uint32(came) > 1e6 || left < came || left == 0 {
			t.Errorf("%s: came at %d us, entered the queue at %d, left it at %d", engine, came,
				entered, left)
		}
		for i, name := range []string{"deq_timedelta", "enq_qdepth", "deq_qdepth"} {
			if v := binary.BigEndian.Uint32(frame[30+4*i:]); v != 0 {
				t.Errorf("%s: %s is %d", engine, name, v)
			}
		}
	}
	frame := make([]byte, 20)
	in, err := interp.New(prog, interp.Options{})
	check(t, err)
	for _, o := range in.Process(time.Second, 3, frame) {
		look("interp", o.Frame)
	}
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		c, err := newCaptured(t, prog, h)
		check(t, err)
		out, err := c.process(3, frame, 1)
		check(t, err)
		for _, o := range out {
			look("kernel", o.Frame)
		}
	})
}
