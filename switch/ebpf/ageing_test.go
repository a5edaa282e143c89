package ebpf

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// TestIdleTimeouts lets entries go idle by a clock that the test turns, while frames hit some of
// them: as they are found by a map, and as comparisons of a program that was made for them.
func TestIdleTimeouts(t *testing.T) {
	for _, made := range []string{"general", "made for its tables"} {
		t.Run(made, func(t *testing.T) {
			eachHook(t, "kernel", func(t *testing.T, h Hook) {
				c, err := newCaptured(t, readProgram(t, "../p4rt/testdata/ageing.json"), h)
				check(t, err)
				idleTimeouts(t, c, made != "general")
			})
		})
	}
}

func idleTimeouts(t *testing.T, c *captured, specialised bool) {
	const learned = "MyIngress.learned"
	p := c.Pipeline()
	ages := p.(target.Ager)
	entry := func(mac byte) *target.TableEntry {
		return &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 0, 0, 0, 0, mac}}},
			Action: &target.ActionCall{Action: "MyIngress.forward", Params: [][]byte{{0, 2}}}}
	}
	expect := func(at time.Duration, want string, wantAny bool) {
		t.Helper()
		entries, any := ages.Idle(at)
		got := ""
		for _, e := range entries {
			if e.Table != learned || e.Timeout != 10*time.Second {
				t.Errorf("at %v: %s with a timeout of %v is idle", at, e.Table, e.Timeout)
			}
			got += string(rune(e.Entry.Match[0].Value[5]))
		}
		if got != want || any != wantAny {
			t.Errorf("at %v: idle are %q, and %v; want %q, and %v", at, got, any, want, wantAny)
		}
	}
	hit := func(mac byte) {
		t.Helper()
		frame := append([]byte{0, 0, 0, 0, 0, mac, 0, 0, 0, 0, 0, 9, 8, 0}, make([]byte, 46)...)
		out, err := c.process(1, frame, 1)
		check(t, err)
		if len(out) != 1 || out[0].Port != 2 {
			t.Fatalf("a frame for %d comes out as %v", mac, out)
		}
	}
	for mac := byte(1); mac <= 3; mac++ {
		check(t, p.InsertEntry(learned, entry(mac)))
	}
	if specialised {
		check(t, c.specialise(true))
	}
	expect(time.Hour, "", false) // no entry has a timeout
	hit(2)                       // which is before it has one
	check(t, ages.SetIdleTimeout(learned, entry(1), 10*time.Second, time.Hour))
	check(t, ages.SetIdleTimeout(learned, entry(2), 10*time.Second, time.Hour))
	hit(1)
	expect(time.Hour+9*time.Second, "", true)
	timeout, since, err := ages.IdleTimeout(learned, entry(1), time.Hour+11*time.Second)
	if err != nil || timeout != 10*time.Second || since != 2*time.Second {
		t.Errorf("an entry has a timeout of %v and was hit %v ago (%v)", timeout, since, err)
	}
	expect(time.Hour+10*time.Second, "\x02", true)
	expect(time.Hour+18*time.Second, "", true) // told once
	expect(time.Hour+30*time.Second, "\x01", true)
	hit(2)
	expect(time.Hour+31*time.Second, "", true)
	check(t, p.ModifyEntry(learned, entry(2))) // which is no packet
	expect(time.Hour+40*time.Second, "", true)
	expect(time.Hour+41*time.Second, "\x02", true) // again, after the packet
	check(t, ages.SetIdleTimeout(learned, entry(1), 0, time.Hour))
	check(t, p.DeleteEntry(learned, entry(2)))
	expect(2*time.Hour, "", false)

	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no such entry": {ages.SetIdleTimeout(learned, entry(9), 1, 0), target.ErrNotFound},
		"negative":      {ages.SetIdleTimeout(learned, entry(1), -1, 0), target.ErrInvalid},
		"a table without": {ages.SetIdleTimeout("MyIngress.kept", entry(1), 1, 0),
			target.ErrUnsupported},
		"a counter that the program does not have": {func() error {
			_, err := p.DirectCounter(learned, entry(1))
			return err
		}(), target.ErrNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}
