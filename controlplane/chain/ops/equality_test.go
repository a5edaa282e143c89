package ops_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/controlplane/chain/ops"
)

// TestEqualise: two chains that share a switch get their first keys at the same time. Their members
// are made equal one chain after the other. The second chain chooses its members only after the
// first chain is equal, and knows that the first is equal.
func TestEqualise(t *testing.T) { synctest.Test(t, equalsOneByOne) }

func equalsOneByOne(t *testing.T) {
	var e ops.Equality
	a, b := equalising(&e, 1), equalising(&e, 2)
	entered, leave, done := make(chan bool), make(chan bool), make(chan error, 2)
	go func() {
		done <- a.Equalise(t.Context(), none, func() map[uint16]uint32 {
			entered <- true
			<-leave
			return nil
		})
	}()
	<-entered
	asked := make(chan bool, 1)
	go func() {
		done <- b.Equalise(t.Context(), func() (_, _ []string) { asked <- e.Equal(1); return nil, nil }, nobody)
	}()
	select {
	case <-asked:
		t.Error("both are made equal at once")
	case <-time.After(20 * time.Millisecond):
		leave <- true
		if equal := <-asked; !equal {
			t.Error("the second does not know that the first is equal")
		}
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := b.Equalise(t.Context(), func() (_, _ []string) { t.Error("it is made equal twice"); return nil, nil }, nobody); err != nil {
		t.Error(err)
	}
}

// TestEmptiedMeanwhile: a chain does not count as equal if it loses its last key while its members'
// records are being made equal, or if that work fails.
func TestEmptiedMeanwhile(t *testing.T) { synctest.Test(t, emptiedMeanwhile) }

func emptiedMeanwhile(t *testing.T) {
	var e ops.Equality
	c := equalising(&e, 1)
	err := c.Equalise(t.Context(), none, func() map[uint16]uint32 { e.Emptied(1); return nil })
	if err != nil || e.Equal(1) {
		t.Errorf("emptied meanwhile: %v, equal %v", err, e.Equal(1))
	}
	gone := func() (_, _ []string) { return []string{"s9"}, nil }
	if err := c.Equalise(t.Context(), gone, nobody); err == nil || e.Equal(1) {
		t.Errorf("with a switch that is not there: %v, equal %v", err, e.Equal(1))
	}
	if err := c.Equalise(t.Context(), none, nobody); err != nil || !e.Equal(1) {
		t.Errorf("%v, equal %v", err, e.Equal(1))
	}
	e.Emptied(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e.Equal(1) {
		t.Error("a chain without keys is equal")
	}
	if err := c.Equalise(ctx, gone, nobody); err == nil {
		t.Error("it was not made equal again")
	}
}

func none() (_, _ []string) { return nil, nil }

func nobody() map[uint16]uint32 { return nil }

func equalising(e *ops.Equality, id uint8) *ops.Chain {
	return &ops.Chain{Runtime: running{slowly{new(time.Duration)}}, ID: id, Equality: e,
		Switch: func(string) (*ops.Switch, error) { return nil, errors.New("there is no such switch") }}
}

// running is a runtime that sleeps in the test's time.
type running struct{ slowly }

func (running) Sleep(ctx context.Context, d time.Duration) error {
	time.Sleep(d)
	return ctx.Err()
}
