package coordination

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// Comparison is a condition of a transaction on a key. It compares Version, Value or Absent.
type Comparison struct {
	Name    string
	Version *wire.Version
	Value   *string // the bytes of the value
	Absent  bool    // the key must not have a value
}

func (c *Comparison) holds(v *Value) bool {
	switch {
	case c.Version != nil:
		return v.Version == *c.Version
	case c.Value != nil:
		return v.Found && string(v.Item.Value) == *c.Value
	}
	return !v.Found
}

// Write is the change of one key in a transaction. It sets a value, bound to Lease unless Lease is
// "", or deletes the key.
type Write struct {
	Name   string
	Value  []byte
	Lease  string
	Delete bool
}

// Transacted is the result of a transaction.
type Transacted struct {
	Done     bool
	Versions []wire.Version // versions of the written keys, in the order of the writes
	// Failed lists the keys whose comparisons did not hold, if the transaction was not executed.
	// When the values exceed nodeapi.MaxFailedBytes in total, the remaining values are nil.
	Failed []Value
}

// Transact writes keys of programs atomically, if all comparisons hold. The store can compare only
// versions. For a comparison with a value or with absence, the Service first reads the key and
// checks the comparison. Then it lets the store compare the version that it has read. If the store
// finds another version, the Service reads the key again.
func (s *Service) Transact(ctx context.Context, ns string, compare []Comparison, writes []Write) (out Transacted,
	err error) {
	t := store.Transaction{Namespace: ns, Compare: make([]store.Comparison, len(compare))}
	for _, w := range writes {
		at := store.Write{Name: w.Name, Delete: w.Delete}
		if !w.Delete {
			b, done, err := s.encode(ctx, store.Key{Namespace: ns, Name: w.Name}, w.Value, w.Lease)
			if err != nil {
				return out, err
			}
			defer done()
			at.Value = b
		}
		t.Write = append(t.Write, at)
	}
	byVersion := !slices.ContainsFunc(compare, func(c Comparison) bool { return c.Version == nil })
	for attempt, pause := 0, time.Millisecond; ; attempt, pause = attempt+1, min(2*pause, 50*time.Millisecond) {
		// After two failed attempts, other writers must be competing. A random pause lets one of
		// the writers succeed.
		if attempt > 1 && !s.sleep(ctx, rand.N(pause)) {
			return Transacted{}, ended(ctx, "a transaction that others overtook")
		}
		if byVersion && attempt == 0 { // the store itself can make all comparisons
			for i, c := range compare {
				t.Compare[i] = store.Comparison{Name: c.Name, Version: *c.Version}
			}
		} else if out.Failed, err = s.compare(ctx, &t, compare); err != nil {
			return Transacted{}, err
		}
		if len(out.Failed) > 0 {
			if attempt == 0 { // the Service has not read the keys yet
				t.CheckOnly = true
				_, err = s.store.Transact(ctx, t)
			}
			return out, err
		}
		done, err := s.store.Transact(ctx, t)
		if err != nil || done.Done {
			return Transacted{Done: done.Done, Versions: done.Versions}, err
		}
	}
}

// compare reads the keys that a transaction compares, and puts their versions into t. It returns
// the keys whose comparisons do not hold.
func (s *Service) compare(ctx context.Context, t *store.Transaction, all []Comparison) (failed []Value, err error) {
	bytes := 0
	for i, c := range all {
		v, err := s.Get(ctx, store.Key{Namespace: t.Namespace, Name: c.Name}, false)
		if err != nil {
			return nil, err
		}
		t.Compare[i] = store.Comparison{Name: c.Name, Version: v.Version}
		if c.holds(&v) {
			continue
		}
		if bytes += len(v.Value); bytes > nodeapi.MaxFailedBytes {
			v.Value = nil
		}
		failed = append(failed, v)
	}
	return failed, nil
}
