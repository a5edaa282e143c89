package sessions

import (
	"encoding/json"
	"errors"
	"fmt"
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
	// Lease a is closed, and lease b runs out. The ids of b are not given again for another TTL, in
	// which b's holder must notice the loss.
	if err := tab.Close(1*time.Second, "a"); err != nil {
		t.Error(err)
	}
	open(t, tab, 2*time.Second, "c", 2, 14, 10) // the ids that were free the longest are given first
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

// TestOneHost: one host leases all the ids that it can get, and lets its leases run out. Other
// hosts still get sessions.
func TestOneHost(t *testing.T) {
	tab := New(1, 100, ttl, nil)
	take := func(now Time, host string) (n int) {
		for {
			_, err := tab.Open(now, fmt.Sprint(host, now, n), "", host, 1)
			if err != nil {
				if !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
	}
	if n := take(0, "worker1"); n != 50 {
		t.Errorf("one host has %d of 100", n)
	}
	if n := take(ttl+1, "worker1"); n != 0 { // the host's leases have run out, but their ids are not free yet
		t.Errorf("it has %d more", n)
	}
	if n := take(ttl+1, "worker2"); n != 25 {
		t.Errorf("another host has %d of 50", n)
	}
	if _, err := tab.Open(ttl+1, "x", "", "worker1", 1); err == nil || !strings.Contains(err.Error(), "worker1 has 50 and asks for 1 of the 25") {
		t.Error(err)
	}
	// 75 ids are free, so the host may get half of them.
	if n := take(2*ttl, "worker1"); n != 37 {
		t.Errorf("later it has %d", n)
	}
	if n := take(2*ttl, ""); n != 38 {
		t.Errorf("hosts without principals have %d", n)
	}
}

// TestLastOne: a host without a session gets the last free one.
func TestLastOne(t *testing.T) {
	tab := New(1, 2, ttl, nil)
	for _, host := range []string{"worker1", "worker2"} {
		if _, err := tab.Open(0, host, "", host, 1); err != nil {
			t.Error(err)
		}
	}
}

// TestRestart: a restarted controller honours saved leases. Without a saved state it waits until
// leases that it does not know have run out.
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
