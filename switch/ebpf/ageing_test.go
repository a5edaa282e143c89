package ebpf

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/target"
)

// TestIdleTimeouts lets table entries become idle while frames hit some of them. It tests a program
// that looks entries up in a map, and a program that was compiled for the tables' content. Packets
// use the kernel's clock. The test chooses how far before this time it sets a timeout, and how far
// after it the test calls Idle.
func TestIdleTimeouts(t *testing.T) {
	for _, made := range []string{"general", "made for its tables"} {
		t.Run(made, func(t *testing.T) {
			eachHook(t, "kernel", func(t *testing.T, h Hook) {
				c, err := newCaptured(t, readProgram(t, "../p4rtserver/testdata/ageing.json"), h)
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
			if e.Table != learned || e.Timeout != time.Hour {
				t.Errorf("at %v: %s with a timeout of %v is idle", at, e.Table, e.Timeout)
			}
			got += string(rune(e.Entry.Match[0].Value[5]))
			if e.Again {
				got += " again"
			}
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
	// sinceHit checks that the last packet hit the entry between the times from and to.
	sinceHit := func(mac byte, at, from, to time.Duration, what string) {
		t.Helper()
		_, since, err := ages.IdleTimeout(learned, entry(mac), at)
		if err != nil || since < at-to || since > at-from {
			t.Errorf("%s was hit %v ago (%v), want %v to %v", what, since, err, at-to, at-from)
		}
	}
	const minute = time.Minute
	start := c.Now()
	expect(start+time.Hour, "", false) // no entry has a timeout yet
	hit(2)                             // a packet hits the entry before it has a timeout
	check(t, ages.SetIdleTimeout(learned, entry(1), time.Hour, start-59*minute))
	check(t, ages.SetIdleTimeout(learned, entry(2), time.Hour, start-59*minute))
	check(t, ages.SetIdleTimeout(learned, entry(3), 0, start-59*minute))
	sinceHit(3, start, start-59*minute, start-59*minute, "an entry without packet and timeout")
	hit(1)
	hit(3)
	end := c.Now()
	sinceHit(1, end+minute, start, end, "an entry with a timeout")
	sinceHit(3, end+minute, start, end, "an entry without a timeout")
	expect(start, "", true)
	hit(2)
	expect(start+2*minute, "", true)
	check(t, ages.SetIdleTimeout(learned, entry(2), time.Hour, c.Now()+minute))
	expect(end+60*minute, "\x01", true)
	expect(end+90*minute, "\x02", true)
	expect(end+120*minute, "\x01 again", true)
	sinceHit(1, end+120*minute, start, end, "an entry that was reported twice")
	check(t, p.ModifyEntry(learned, entry(1))) // changing the entry does not count as a hit
	sinceHit(1, end+120*minute, start, end, "an entry that has been modified")
	expect(end+150*minute, "\x02 again", true)
	check(t, ages.SetIdleTimeout(learned, entry(1), 0, end))
	check(t, p.DeleteEntry(learned, entry(2)))
	expect(end+10*time.Hour, "", false)

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
