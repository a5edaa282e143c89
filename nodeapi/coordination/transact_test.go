package coordination

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// busyStore is a store in which another writer changes a key between any two calls.
type busyStore struct {
	*store.Memory
	key   store.Key
	value []byte
	tries int
}

func (s *busyStore) Transact(ctx context.Context, t store.Transaction) (store.Transacted, error) {
	if s.tries++; s.tries > 1000 {
		return store.Transacted{}, errors.New("too many attempts")
	}
	if _, err := s.Put(context.WithoutCancel(ctx), s.key, s.value); err != nil {
		return store.Transacted{}, err
	}
	return s.Memory.Transact(ctx, t)
}

// TestTransactIsOvertaken checks a transaction that other writers always overtake. It must pause
// between its attempts, and each attempt must read all compared keys. When its time is over, it
// must report that nothing was written.
func TestTransactIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &busyStore{Memory: store.NewMemory(100), key: store.Key{Namespace: "ns", Name: "k"}}
		c := New(s, Options{Sweep: -1})
		defer c.Close(context.Background())
		same := "same"
		var err error
		if s.value, _, err = c.encode(t.Context(), s.key, []byte(same), ""); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), s.key, s.value); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got, err := c.Transact(ctx, "ns", []Comparison{{Name: "k", Value: &same}}, []Write{{Name: "k", Value: []byte("other")}})
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeTimeout}) || got.Done {
			t.Errorf("after %d attempts: %+v, %v; want that the time was over and nothing was done", s.tries, got, err)
		}
		if s.tries < 10 || s.tries > 200 {
			t.Errorf("%d attempts in a second", s.tries)
		}
		now, err := c.Get(t.Context(), s.key, false)
		if err != nil || string(now.Item.Value) != same {
			t.Errorf("%+v, %v", now, err)
		}
	})
}
