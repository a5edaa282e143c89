package durable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// transaction executes a store.Transaction as one transaction in etcd. For each written key, it has
// the condition that the key has an entry, or the condition that it has none. Only etcd knows which
// of the two is true. Therefore the first attempt assumes that each key has an entry. If the
// attempt fails, etcd answers with the entries, and the next attempt uses them.
type transaction struct {
	store.Transaction
	s     *Store
	names []string
	// expected has the mod revision that each comparison requires, by name. The value 0 means that
	// the key must have no entry.
	expected map[string]int64
	// missing has the keys that are assumed to have no entry.
	missing map[string]bool
	// counted reports whether made and keys are known. made is the mod revision of the namespace's
	// MadeName, and keys is the number of keys in the namespace.
	counted    bool
	made, keys int64
}

// Transacts implements [store.Store].
func (s *Store) Transacts(_ string, v wire.Version) bool { return IsVersion(v) }

// Transact implements [store.Store].
func (s *Store) Transact(ctx context.Context, t store.Transaction) (out store.Transacted, err error) {
	if t.CheckOnly {
		return out, nil
	}
	defer s.count.took(callTransact, time.Now(), &err)
	for _, w := range t.Write {
		if w.Delete {
			continue
		}
		if err := fits(store.Key{Namespace: t.Namespace, Name: w.Name}, w.Value); err != nil {
			return out, err
		}
	}
	x := transaction{Transaction: t, s: s, names: t.Names(), expected: map[string]int64{}, missing: map[string]bool{}}
	for _, c := range t.Compare {
		at, ok := revision(c.Version)
		switch {
		case c.Version == 0:
			x.missing[c.Name] = true
		case !ok: // no durable key can have this version
			return out, nil
		}
		x.expected[c.Name] = max(at, 0)
	}
	return x.do(ctx)
}

// do attempts the transaction until etcd has executed it, or until a comparison does not hold.
func (x *transaction) do(ctx context.Context) (out store.Transacted, err error) {
	var turn func() // ends this transaction's turn to create keys; nil if it has no turn yet
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if x.creates() > 0 && !x.counted {
			if turn == nil {
				if turn, err = x.s.makingTurn(ctx, x.Namespace); err != nil {
					return out, x.failure(ctx, err, false)
				}
				defer turn()
			}
			if holds, err := x.count(ctx); err != nil || !holds {
				return out, err
			}
		}
		done, at, err := x.attempt(ctx)
		switch {
		case errors.Is(err, errLeaseGone):
			continue // nothing was written, so try again with another lease
		case err != nil:
			return out, err
		case done:
			out.Done = true
			for _, w := range x.Write {
				v := version(at)
				if x.missing[w.Name] && w.Delete {
					v = 0
				}
				out.Versions = append(out.Versions, v)
			}
			return out, nil
		case !x.holds():
			return out, nil
		}
		// Wait, because other writers have created or removed keys meanwhile.
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return out, x.failure(ctx, ctx.Err(), false)
		}
	}
}

// creates returns the number of keys that the transaction creates.
func (x *transaction) creates() (n int) {
	for _, w := range x.Write {
		if !w.Delete && x.missing[w.Name] {
			n++
		}
	}
	return n
}

func (x *transaction) entry(name string) string {
	return nameOf(store.Key{Namespace: x.Namespace, Name: name})
}

func (x *transaction) failure(ctx context.Context, err error, writes bool) error {
	return failure(ctx, fmt.Sprintf("a transaction on %d keys of the namespace %s", len(x.names), x.Namespace), err, writes)
}

// reads returns the operations that read the data for learn.
func (x *transaction) reads(count bool) (ops []clientv3.Op) {
	for _, name := range x.names {
		ops = append(ops, clientv3.OpGet(x.entry(name), clientv3.WithKeysOnly()))
	}
	if count {
		ops = append(ops, clientv3.OpGet(MadeName(x.Namespace)),
			clientv3.OpGet(NamesOf(x.Namespace), clientv3.WithPrefix(), clientv3.WithCountOnly()))
	}
	return ops
}

// learn processes etcd's answers to the operations of reads. It stores the revision of each key in
// expected, or -1 if a comparison does not hold.
func (x *transaction) learn(answers []*pb.ResponseOp) {
	revision := func(i int) int64 {
		if kv := only(answers[i].GetResponseRange().GetKvs()); kv != nil {
			return kv.ModRevision
		}
		return 0
	}
	for i, name := range x.names {
		at := revision(i)
		x.missing[name] = at == 0
		if want, compared := x.expected[name]; compared && want != at {
			x.expected[name] = -1
		}
	}
	if x.counted = len(answers) > len(x.names); x.counted {
		x.made, x.keys = revision(len(x.names)), answers[len(x.names)+1].GetResponseRange().GetCount()
		x.s.count.has(x.Namespace, x.keys)
	}
}

// holds reports whether all comparisons held according to etcd's last answer.
func (x *transaction) holds() bool {
	for _, at := range x.expected {
		if at < 0 {
			return false
		}
	}
	return true
}

// count reads the entries, and the number of keys in the namespace. It reports whether all
// comparisons hold.
func (x *transaction) count(ctx context.Context) (bool, error) {
	etcd, err := x.s.client(ctx)
	if err != nil {
		return false, err
	}
	found, err := etcd.Txn(ctx).Then(x.reads(true)...).Commit()
	if err != nil {
		return false, x.failure(ctx, err, false)
	}
	x.learn(found.Responses)
	return x.holds(), nil
}

// attempt sends the transaction to etcd. It assumes that the keys in missing have no entry. The
// result `at` is the revision of the write.
func (x *transaction) attempt(ctx context.Context) (done bool, at int64, err error) {
	etcd, err := x.s.client(ctx)
	if err != nil {
		return false, 0, err
	}
	var when []clientv3.Cmp
	var then []clientv3.Op
	var grave clientv3.LeaseID
	for _, c := range x.Compare {
		when = append(when, isAt(x.entry(c.Name), x.expected[c.Name]))
	}
	for _, w := range x.Write {
		name := x.entry(w.Name)
		missing := x.missing[w.Name]
		// this condition is needed even if a comparison implies it, because package door accepts
		// only this form
		if missing {
			when = append(when, clientv3.Compare(clientv3.CreateRevision(name), "=", 0))
		} else if _, compared := x.expected[w.Name]; !compared {
			when = append(when, exists(name))
		}
		switch {
		case !w.Delete:
			then = append(then, clientv3.OpPut(name, string(w.Value)))
		case !missing:
			if grave == 0 {
				if grave, err = x.s.graves.lease(ctx, etcd); err != nil {
					return false, 0, x.failure(ctx, err, false)
				}
			}
			then = append(then, clientv3.OpPut(name, "", clientv3.WithLease(grave)))
		}
	}
	creates := x.creates()
	if creates > 0 {
		err := x.s.mayMake(ctx, x.Namespace, x.keys, int64(creates), fmt.Sprintf("; the transaction makes %d more", creates))
		if err != nil {
			return false, 0, err
		}
		when = append(when, isAt(MadeName(x.Namespace), x.made))
		then = append(then, clientv3.OpPut(MadeName(x.Namespace), ""))
	}
	answer, err := etcd.Txn(ctx).If(when...).Then(then...).Else(x.reads(creates > 0)...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.s.graves.gone(grave)
		return false, 0, errLeaseGone
	case err != nil:
		return false, 0, x.failure(ctx, err, len(then) > 0)
	case !answer.Succeeded:
		x.learn(answer.Responses)
		return false, 0, nil
	}
	if creates > 0 {
		x.s.count.has(x.Namespace, x.keys+int64(creates))
	}
	return true, answer.Header.Revision, nil
}
