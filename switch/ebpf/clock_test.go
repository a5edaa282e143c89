package ebpf

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"
)

// TestClock reads the time in every place where a P4 statement can, and compares it with limits.
// Each packet must see a single time that lies between the limits.
func TestClock(t *testing.T) {
	prog := readProgram(t, "testdata/clock.json")
	u48 := func(b []byte) uint64 {
		return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
	}
	const mask = 1<<48 - 1
	// the expected value of the byte `late` after the limit has passed, and before
	late := map[byte][2]byte{2: {1, 0}, 3: {1, 0}, 7: {1, 0}, 9: {1, 2}}
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		c, err := newCaptured(t, prog, h)
		check(t, err)
		if !c.pipeline.ReadsClockLate() {
			t.Fatal("the clock is read for every packet")
		}
		now := func() uint64 { return uint64(c.Now() / time.Microsecond) }
		for round := range 2 {
			for how := range byte(10) {
				for future, limit := range []uint64{0, now() + 1e9} {
					name := fmt.Sprintf("round %d, %d, limit %d", round, how, limit)
					frame := make([]byte, 40)
					frame[0] = how
					binary.BigEndian.PutUint64(frame, binary.BigEndian.Uint64(frame)|limit)
					frame[0], frame[1] = how, 0
					before := now()
					out, err := c.process(3, frame, 1)
					after := now()
					check(t, err)
					if len(out) != 1 {
						t.Fatalf("%s: %d frames came out", name, len(out))
					}
					f := out[0].Frame
					first, second, rest := u48(f[8:]), u48(f[14:]), u48(f[20:])
					if f[1] != late[how][future] {
						t.Errorf("%s: late is %d", name, f[1])
					}
					if how == 0 {
						if second != 0 {
							t.Errorf("%s: the time is %d, and was not asked for", name, second)
						}
						continue
					}
					if second < before || second > after {
						t.Errorf("%s: the time is %d, not between %d and %d", name, second,
							before, after)
					}
					switch how {
					case 1, 5, 7:
						if first != second {
							t.Errorf("%s: two times, %d and %d", name, first, second)
						}
					}
					want := uint64(0)
					switch how {
					case 7:
						want = (limit - second) & mask
					case 8:
						want = (max(limit, second) - (second - (limit ^ second))) & mask
					}
					if rest != want {
						t.Errorf("%s: computed %d instead of %d", name, rest, want)
					}
				}
			}
			check(t, c.specialise(true))
		}
	})
}
