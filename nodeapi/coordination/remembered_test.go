package coordination

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// counting is a store that counts its calls.
type counting struct {
	store.Store
	reads, writes atomic.Int32
	transacts     bool
	// lose is the number of following deletions that are executed but not answered.
	lose atomic.Int32
}

func (c *counting) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, key, eventual)
}

func (c *counting) CompareAndSwap(ctx context.Context, key store.Key, at wire.Version, value []byte) (store.Item, bool,
	error) {
	c.writes.Add(1)
	return c.Store.CompareAndSwap(ctx, key, at, value)
}

func (c *counting) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	c.writes.Add(1)
	return c.Store.Transact(ctx, t)
}

func (c *counting) Transacts(string, wire.Version) bool { return c.transacts }

func (c *counting) CompareAndDelete(ctx context.Context, key store.Key, at wire.Version) (store.Item, bool, error) {
	c.writes.Add(1)
	item, deleted, err := c.Store.CompareAndDelete(ctx, key, at)
	if c.lose.Add(-1) >= 0 {
		return store.Item{}, false, nodeapi.Errorf(nodeapi.CodeOutcomeUnknown, "", "the answer is lost")
	}
	return item, deleted, err
}

// TestLocksByWhatIsRemembered checks a lock that was acquired and released here before. Another
// acquisition and release must take one write each. If another program writes the lock in between,
// the versions must reveal it. If the store has no transactions, there is also a read of the lease
// in parallel with the first write.
func TestLocksByWhatIsRemembered(t *testing.T) {
	for transacts, want := range map[bool]string{false: "10 20", true: "0 20"} {
		t.Run(fmt.Sprint("transacts ", transacts), func(t *testing.T) {
			locksByWhatIsRemembered(t, &counting{Store: store.NewMemory(1024), transacts: transacts}, want)
		})
	}
}

func locksByWhatIsRemembered(t *testing.T, st *counting, want string) {
	ctx := t.Context()
	service := func() *Service {
		s := New(st, Options{Sweep: -1})
		t.Cleanup(func() { s.Close(context.Background()) })
		return s
	}
	here, there := service(), service()
	lease, err := here.Grant(ctx, "n", nodeapi.GrantData{TTLMillis: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	other, err := there.Grant(ctx, "n", nodeapi.GrantData{TTLMillis: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	try, last := 0, ""
	lock := func(s *Service, l nodeapi.LeaseAnswer, held bool) string {
		t.Helper()
		a, err := s.Lock(ctx, "n", nil, nodeapi.LockData{Name: "x", Lease: l.Lease, WaitMillis: &try})
		if err != nil || a.Held != held {
			t.Fatal(a, err)
		}
		if held && (len(a.Token) < len(last) || len(a.Token) == len(last) && a.Token <= last) {
			t.Fatalf("token %s after %s", a.Token, last)
		} else if held {
			last = a.Token
		}
		return a.Token
	}
	unlock := func(s *Service, token string, want nodeapi.Code) {
		t.Helper()
		err := s.Unlock(ctx, "n", nodeapi.UnlockData{Name: "x", Token: token})
		if want == "" && err != nil || want != "" && !errors.Is(err, &nodeapi.Error{Code: want}) {
			t.Fatalf("unlock: %v, want %q", err, want)
		}
	}
	first := lock(here, lease, true)
	unlock(here, first, "")
	st.reads.Store(0)
	st.writes.Store(0)
	for range 10 {
		unlock(here, lock(here, lease, true), "")
	}
	if got := fmt.Sprint(st.reads.Load(), st.writes.Load()); got != want {
		t.Errorf("ten times lock and unlock: %s reads and writes, want %s", got, want)
	}
	// Another Service has renewed the lease, so it has another version.
	if _, err := there.KeepAlive(ctx, "n", nodeapi.LeaseData{Lease: lease.Lease}); err != nil {
		t.Fatal(err)
	}
	unlock(here, lock(here, lease, true), "")
	unlock(here, first, nodeapi.CodeNotHeld) // this token is old
	theirs := lock(there, other, true)       // makes the cache of the first Service obsolete
	lock(here, lease, false)
	unlock(here, theirs, "") // any caller with the token may release the lock
	unlock(there, theirs, nodeapi.CodeNotHeld)
	mine := lock(here, lease, true)
	unlock(there, mine, "")
	unlock(here, mine, nodeapi.CodeNotHeld)
	// The answer to the deletion is lost, so it is unknown whether the lock was held until then.
	mine = lock(here, lease, true)
	st.lose.Store(1)
	unlock(here, mine, nodeapi.CodeOutcomeUnknown)
	lock(there, other, true)
	lock(here, lease, false)
	// A lock cannot be acquired with an ended lease, even if the lease existed when it was last
	// seen.
	unlock(there, last, "")
	if err := there.Revoke(ctx, "n", nodeapi.LeaseData{Lease: lease.Lease}); err != nil {
		t.Fatal(err)
	}
	_, err = here.Lock(ctx, "n", nil, nodeapi.LockData{Name: "x", Lease: lease.Lease, WaitMillis: &try})
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeLeaseGone}) {
		t.Fatal(err)
	}
	lock(there, other, true)
}
