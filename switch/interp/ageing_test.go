package interp

import (
	"errors"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestIdleTimeouts lets entries go idle by a clock that the test turns.
func TestIdleTimeouts(t *testing.T) {
	prog, err := bmv2json.ReadFile("../p4rt/testdata/ageing.json")
	must(t, err)
	p, err := New(prog, Options{})
	must(t, err)
	const learned = "MyIngress.learned"
	entry := func(last byte) *target.TableEntry {
		return &target.TableEntry{Match: []target.FieldMatch{{Value: []byte{0, 0, 0, 0, 0, last}}},
			Action: act("MyIngress.forward", []byte{0, 2})}
	}
	idle := func(at time.Duration) (macs []byte, any bool) {
		t.Helper()
		entries, any := p.Idle(at)
		for _, e := range entries {
			if e.Table != learned || e.Timeout != 10*time.Second {
				t.Errorf("at %v: %s with a timeout of %v is idle", at, e.Table, e.Timeout)
			}
			macs = append(macs, e.Entry.Match[0].Value[5])
		}
		return macs, any
	}
	expect := func(at time.Duration, want string, wantAny bool) {
		t.Helper()
		if got, any := idle(at); string(got) != want || any != wantAny {
			t.Errorf("at %v: idle are %v, and %v; want %v, and %v", at, got, any, []byte(want),
				wantAny)
		}
	}
	hit := func(at time.Duration, mac byte) {
		p.Process(at, 1, []byte{0, 0, 0, 0, 0, mac, 0, 0, 0, 0, 0, 9, 8, 0})
	}
	for mac := byte(1); mac <= 3; mac++ {
		must(t, p.InsertEntry(learned, entry(mac)))
	}
	expect(time.Hour, "", false) // no entry has a timeout
	must(t, p.SetIdleTimeout(learned, entry(1), 10*time.Second, time.Hour))
	must(t, p.SetIdleTimeout(learned, entry(2), 10*time.Second, time.Hour))
	expect(time.Hour+9*time.Second, "", true)
	hit(time.Hour+9*time.Second, 1)
	timeout, since, err := p.IdleTimeout(learned, entry(1), time.Hour+11*time.Second)
	if err != nil || timeout != 10*time.Second || since != 2*time.Second {
		t.Errorf("an entry has a timeout of %v and was hit %v ago (%v)", timeout, since, err)
	}
	expect(time.Hour+10*time.Second, "\x02", true)
	expect(time.Hour+18*time.Second, "", true) // told once
	expect(time.Hour+30*time.Second, "\x01", true)
	hit(time.Hour+31*time.Second, 2)
	expect(time.Hour+40*time.Second, "", true)
	expect(time.Hour+41*time.Second, "\x02", true) // again, after the packet
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
