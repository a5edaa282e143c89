package interp

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestIdleTimeouts lets table entries become idle. The test sets the clock.
func TestIdleTimeouts(t *testing.T) {
	prog, err := bmv2json.ReadFile("../p4rtserver/testdata/ageing.json")
	must(t, err)
	p, err := New(prog, Options{})
	must(t, err)
	const learned = "MyIngress.learned"
	entry := func(last byte) *target.TableEntry {
		return &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 0, 0, 0, 0, last}}},
			Action: act("MyIngress.forward", []byte{0, 2})}
	}
	idle := func(at time.Duration) (macs string, any bool) {
		t.Helper()
		entries, any := p.Idle(at)
		for _, e := range entries {
			if e.Table != learned || e.Timeout != 10*time.Second {
				t.Errorf("at %v: %s with a timeout of %v is idle", at, e.Table, e.Timeout)
			}
			macs += string(rune(e.Entry.Match[0].Value[5]))
			if e.Again {
				macs += " again"
			}
		}
		return macs, any
	}
	expect := func(at time.Duration, want string, wantAny bool) {
		t.Helper()
		if got, any := idle(at); got != want || any != wantAny {
			t.Errorf("at %v: idle are %q, and %v; want %q, and %v", at, got, any, want, wantAny)
		}
	}
	hit := func(at time.Duration, mac byte) {
		p.Process(at, 1, []byte{0, 0, 0, 0, 0, mac, 0, 0, 0, 0, 0, 9, 8, 0})
	}
	for mac := byte(1); mac <= 3; mac++ {
		must(t, p.InsertEntry(learned, entry(mac)))
	}
	expect(time.Hour, "", false) // no entry has a timeout yet
	must(t, p.SetIdleTimeout(learned, entry(1), 10*time.Second, time.Hour))
	must(t, p.SetIdleTimeout(learned, entry(2), 10*time.Second, time.Hour))
	expect(time.Hour+9*time.Second, "", true)
	hit(time.Hour+9*time.Second, 1)
	timeout, since, err := p.IdleTimeout(learned, entry(1), time.Hour+11*time.Second)
	if err != nil || timeout != 10*time.Second || since != 2*time.Second {
		t.Errorf("an entry has a timeout of %v and was hit %v ago (%v)", timeout, since, err)
	}
	_, since, err = p.IdleTimeout(learned, entry(3), time.Hour+11*time.Second)
	if err != nil || since != time.Hour+11*time.Second {
		t.Errorf("an entry without a timeout was hit %v ago (%v)", since, err)
	}
	hit(time.Hour+11*time.Second, 3)
	_, since, err = p.IdleTimeout(learned, entry(3), time.Hour+14*time.Second)
	if err != nil || since != 3*time.Second {
		t.Errorf("an entry without a timeout was hit %v ago (%v), want 3s", since, err)
	}
	expect(time.Hour+10*time.Second, "\x02", true)
	expect(time.Hour+18*time.Second, "", true) // the other entry's timeout has not expired yet
	expect(time.Hour+20*time.Second, "\x01\x02 again", true)
	hit(time.Hour+21*time.Second, 2)
	expect(time.Hour+30*time.Second, "\x01 again", true)
	// reported for the first time since the last packet
	expect(time.Hour+31*time.Second, "\x02", true)
	_, since, err = p.IdleTimeout(learned, entry(2), time.Hour+32*time.Second)
	// a report of the idle entry does not count as a packet
	if err != nil || since != 11*time.Second {
		t.Errorf("an entry was hit %v ago (%v), want 11s", since, err)
	}
	must(t, p.SetIdleTimeout(learned, entry(1), 0, time.Hour))
	must(t, p.DeleteEntry(learned, entry(2)))
	expect(2*time.Hour, "", false)

	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no such entry": {p.SetIdleTimeout(learned, entry(9), 1, 0), target.ErrNotFound},
		"negative":      {p.SetIdleTimeout(learned, entry(1), -1, 0), target.ErrInvalid},
		"a table without": {p.SetIdleTimeout("MyIngress.kept", entry(1), 1, 0),
			target.ErrUnsupported},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}
