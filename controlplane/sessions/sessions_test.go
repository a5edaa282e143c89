package sessions

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

const ttl = 10 * time.Second

func open(t *testing.T, tab *Table, now Time, lease string, n int, want ...uint16) {
	t.Helper()
	l, err := tab.Open(now, lease, "", "", n)
	if err != nil || !slices.Equal(l.IDs, want) {
		t.Fatalf("lease %s: %v %v, want %v", lease, l, err, want)
	}
}

func TestLeases(t *testing.T) {
	tab := New(10, 14, ttl, nil)
	open(t, tab, 0, "a", 2, 10, 11)
	open(t, tab, 0, "b", 2, 12, 13)
	if _, err := tab.Open(0, "c", "", "", 2); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	// a is given back, b runs out; b's ids rest as long again, in which b must have noticed.
	if err := tab.Close(1*time.Second, "a"); err != nil {
		t.Error(err)
	}
	open(t, tab, 2*time.Second, "c", 2, 14, 10) // the longest free first
	if _, err := tab.Keep(9*time.Second, "c"); err != nil {
		t.Error(err)
	}
	if _, err := tab.Keep(10*time.Second, "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a lease that ran out was kept: %v", err)
	}
	if n := tab.Free(19 * time.Second); n != 1 {
		t.Errorf("%d free at 19 s, want 11 alone: c runs out now, and what b had rests until 20 s", n)
	}
	if n := tab.Free(20 * time.Second); n != 3 {
		t.Errorf("%d free at 20 s, want 11, 12 and 13", n)
	}
	if n := tab.Free(29 * time.Second); n != 5 {
		t.Errorf("%d free at 29 s, want all", n)
	}
	if err := tab.Close(30*time.Second, "a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// TestRestart: a restarted controller honours the leases that were saved, and without a record
// waits for those it does not know.
func TestRestart(t *testing.T) {
	tab := New(1, 3, ttl, nil)
	open(t, tab, 0, "a", 2, 1, 2)
	b, err := json.Marshal(tab.Leases())
	if err != nil {
		t.Fatal(err)
	}
	var saved []Lease
	if err := json.Unmarshal(b, &saved); err != nil {
		t.Fatal(err)
	}
	tab = New(1, 3, ttl, saved)
	open(t, tab, 0, "b", 1, 3)
	if _, err := tab.Keep(9*time.Second, "a"); err != nil {
		t.Error(err)
	}
	tab = New(1, 3, ttl, nil)
	tab.Rest(0)
	if _, err := tab.Open(0, "c", "", "", 1); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "more in 20s") {
		t.Error(err)
	}
	open(t, tab, 2*ttl, "d", 1, 1)
}
