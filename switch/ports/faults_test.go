package ports

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseFaults(t *testing.T) {
	f, err := ParseFaults(
		"# a plan\nseed=0x10\n*: loss=0.5\n2/tx: delay=2ms, jitter=1ms # slow\n3: loss=0")
	if err != nil {
		t.Fatal(err)
	}
	if f.Seed != 16 {
		t.Errorf("seed %d", f.Seed)
	}
	if l := f.line(1, Rx); l == nil || l.Loss != 0.5 {
		t.Errorf("port 1: %+v", l)
	}
	if l := f.line(2, Tx); l == nil || l.Delay != 2*time.Millisecond ||
		l.Jitter != time.Millisecond || l.Loss != 0 {
		t.Errorf("port 2 tx: %+v", l)
	}
	if l := f.line(2, Rx); l == nil || l.Loss != 0.5 {
		t.Errorf("port 2 rx: %+v", l)
	}
	if l := f.line(3, Tx); l != nil {
		t.Errorf("port 3 is exempt, not %+v", l)
	}
	var none *Faults
	if none.line(1, Rx) != nil {
		t.Error("no plan, yet faults")
	}
	for text, want := range map[string]string{
		"1 loss=1":          "expected PORT",
		"x: loss=1":         "the port is a number",
		"1/up: loss=1":      "rx or tx",
		"1: loss=2":         "from 0 to 1",
		"1: loss=NaN":       "from 0 to 1",
		"1: delay=5":        "a unit",
		"1: delay=-5ms":     "a unit",
		"1: speed=5":        "unknown",
		"1: loss":           "NAME=VALUE",
		"seed=abc;1: dup=1": "64 bits",
	} {
		if _, err := ParseFaults(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := LoadFaults("/does/not/exist"); err == nil {
		t.Error("a missing file was taken for a plan")
	}
}

// play sends frames 0 to n-1, one microsecond apart, through a faultLine. It returns the frames in
// the order in which the faultLine delivers them.
func play(t *testing.T, spec string, n int) []int {
	t.Helper()
	f, err := ParseFaults(spec)
	if err != nil {
		t.Fatal(err)
	}
	l := f.line(1, Rx)
	var q delayQueue
	var out []int
	now := time.Unix(0, 0)
	for i := range n {
		q.release(now)
		l.pass(frame(i, 60), now, &q, func(f []byte) { out = append(out, number(f)) })
		now = now.Add(time.Microsecond)
	}
	q.release(now.Add(time.Hour))
	return out
}

func TestFaultsRepeatWithTheirSeed(t *testing.T) {
	const spec = "seed=7; 1: loss=0.1, dup=0.1, reorder=0.1, delay=5us, jitter=20us"
	a, b := play(t, spec, 2000), play(t, spec, 2000)
	if !slices.Equal(a, b) {
		t.Error("the same seed gives different runs")
	}
	if c := play(t, strings.Replace(spec, "7", "8", 1), 2000); slices.Equal(a, c) {
		t.Error("another seed gives the same run")
	}
	// The other probabilities must not influence which frames are lost.
	lost := func(out []int) []int {
		var missing []int
		for i := range 2000 {
			if !slices.Contains(out, i) {
				missing = append(missing, i)
			}
		}
		return missing
	}
	if !slices.Equal(lost(a), lost(play(t, "seed=7; 1: loss=0.1", 2000))) {
		t.Error("the frames that are lost depend on other faults")
	}
}

// TestReorderIsBounded checks that a held frame is delivered after one to four later frames or, if
// no frame follows, after a while.
func TestReorderIsBounded(t *testing.T) {
	out := play(t, "seed=1; 1: reorder=0.3", 1000)
	if len(out) != 1000 {
		t.Fatalf("%d of 1000 frames", len(out))
	}
	worst := 0
	for i, n := range out {
		worst = max(worst, i-n)
	}
	if worst < 1 || worst > 8 {
		t.Errorf("a frame came %d places late", worst)
	}
}

func TestChecksum(t *testing.T) {
	for length := range 70 {
		b := make([]byte, length)
		for i := range b {
			b[i] = byte(i*73 + 255)
		}
		var want uint32
		for i, v := range b {
			if i%2 == 0 {
				want += uint32(v) << 8
			} else {
				want += uint32(v)
			}
		}
		for want>>16 != 0 {
			want = want>>16 + want&0xffff
		}
		if got := onesSum(b); uint32(got) != want && (uint32(got)+want)%0xffff != 0 {
			t.Errorf("%d bytes: %#x, want %#x", length, got, want)
		}
	}
	// Offsets in a broken header must be ignored.
	f := make([]byte, 20)
	completeChecksum(f, 18, 2)
	completeChecksum(f, 60000, 0)
}
