package durable

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// write executes a transaction. If all conditions hold, it executes the operations in `then`, and
// otherwise it reads the entry of the key. It returns the entry that was read, or nil, and the
// revision.
func (s *Store) write(ctx context.Context, key store.Key, when []clientv3.Cmp, then ...clientv3.Op) (done bool,
	kv *mvccpb.KeyValue, revision int64, err error) {
	etcd, err := s.client(ctx)
	if err != nil {
		return false, nil, 0, err
	}
	answer, err := etcd.Txn(ctx).If(when...).Then(then...).Else(clientv3.OpGet(nameOf(key))).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return false, nil, 0, errLeaseGone
	case err != nil:
		return false, nil, 0, failure(ctx, about("writing", key), err, true)
	}
	if !answer.Succeeded {
		kv = only(answer.Responses[0].GetResponseRange().Kvs)
	}
	return answer.Succeeded, kv, answer.Header.Revision, nil
}

func exists(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(name), ">", 0)
}

func isAt(name string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(name), "=", revision)
}

// hasValue returns a condition that holds if an entry exists and is not a tombstone.
func hasValue(name string) clientv3.Cmp { return clientv3.Compare(clientv3.Value(name), "!=", "") }

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key store.Key, value []byte) (v wire.Version, err error) {
	defer s.count.took(callPut, time.Now(), &err)
	if err := fits(key, value); err != nil {
		return 0, err
	}
	name := nameOf(key)
	for {
		done, _, at, err := s.write(ctx, key, []clientv3.Cmp{exists(name)}, clientv3.OpPut(name, string(value)))
		if err != nil {
			return 0, err
		}
		if done {
			return version(at), nil
		}
		if got, made, err := s.make(ctx, key, value); err != nil {
			return 0, err
		} else if made {
			return got.Version, nil
		} // if the key was not created, another caller has created it, so try again
	}
}

// CompareAndSwap implements [store.Store].
func (s *Store) CompareAndSwap(ctx context.Context, key store.Key, expected wire.Version, value []byte) (
	got store.Item, swapped bool, err error) {
	defer s.count.took(callCAS, time.Now(), &err)
	if err := fits(key, value); err != nil {
		return store.Item{}, false, err
	}
	if expected == 0 {
		return s.make(ctx, key, value)
	}
	at, ok := revision(expected)
	if !ok { // no durable key can have this version
		got, err := s.get(ctx, key)
		return got, false, err
	}
	name := nameOf(key)
	done, kv, now, err := s.write(ctx, key, []clientv3.Cmp{isAt(name, at)}, clientv3.OpPut(name, string(value)))
	switch {
	case err != nil:
		return store.Item{}, false, err
	case done:
		return store.Item{Key: key, Found: true, Value: value, Version: version(now)}, true, nil
	}
	return item(key, kv), false, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, key store.Key) (v wire.Version, err error) {
	defer s.count.took(callDelete, time.Now(), &err)
	got, _, err := s.bury(ctx, key, hasValue(nameOf(key)))
	return got.Version, err
}

// CompareAndDelete implements [store.Store].
func (s *Store) CompareAndDelete(ctx context.Context, key store.Key, expected wire.Version) (
	got store.Item, deleted bool, err error) {
	defer s.count.took(callDelete, time.Now(), &err)
	at, ok := revision(expected)
	if !ok {
		got, err := s.get(ctx, key)
		return got, err == nil && got.Version == expected, err
	}
	name := nameOf(key)
	got, buried, err := s.bury(ctx, key, isAt(name, at), hasValue(name))
	return got, err == nil && (buried || !got.Found && got.Version == expected), err
}

// bury replaces the value of a key by a tombstone, if the conditions hold. Otherwise it returns the
// present state of the key.
func (s *Store) bury(ctx context.Context, key store.Key, when ...clientv3.Cmp) (store.Item, bool, error) {
	for {
		etcd, err := s.client(ctx)
		if err != nil {
			return store.Item{}, false, err
		}
		lease, err := s.graves.lease(ctx, etcd)
		if err != nil {
			return store.Item{}, false, failure(ctx, about("deleting", key), err, false)
		}
		done, kv, at, err := s.write(ctx, key, when, clientv3.OpPut(nameOf(key), "", clientv3.WithLease(lease)))
		switch {
		case errors.Is(err, errLeaseGone):
			s.graves.gone(lease)
			continue // nothing was written, so try again with another lease
		case err != nil:
			return store.Item{}, false, err
		case done:
			return store.Item{Key: key, Version: version(at)}, true, nil
		}
		return item(key, kv), false, nil
	}
}

// make creates a key, if the key does not exist and the namespace may have another key. If the key
// already exists, make returns its state.
func (s *Store) make(ctx context.Context, key store.Key, value []byte) (store.Item, bool, error) {
	fail := func(err error) (store.Item, bool, error) { return store.Item{}, false, err }
	turn, err := s.makingTurn(ctx, key.Namespace)
	if err != nil {
		return fail(failure(ctx, about("making", key), err, false))
	}
	defer turn()
	name, made := nameOf(key), MadeName(key.Namespace)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		etcd, err := s.client(ctx)
		if err != nil {
			return fail(err)
		}
		found, err := etcd.Txn(ctx).Then(clientv3.OpGet(name), clientv3.OpGet(made),
			clientv3.OpGet(NamesOf(key.Namespace), clientv3.WithPrefix(), clientv3.WithCountOnly())).Commit()
		if err != nil {
			return fail(failure(ctx, about("looking for", key), err, false))
		}
		if kv := only(found.Responses[0].GetResponseRange().Kvs); kv != nil {
			return item(key, kv), false, nil
		}
		keys := found.Responses[2].GetResponseRange().Count
		s.count.has(key.Namespace, keys)
		if err := s.mayMake(ctx, key.Namespace, keys, 1, ""); err != nil {
			return fail(err)
		}
		counted := int64(0)
		if kv := only(found.Responses[1].GetResponseRange().Kvs); kv != nil {
			counted = kv.ModRevision
		}
		done, kv, at, err := s.write(ctx, key, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(name), "=", 0),
			isAt(made, counted)}, clientv3.OpPut(name, string(value)), clientv3.OpPut(made, ""))
		switch {
		case err != nil:
			return fail(err)
		case done:
			s.count.has(key.Namespace, keys+1)
			return store.Item{Key: key, Found: true, Value: value, Version: version(at)}, true, nil
		case kv != nil:
			return item(key, kv), false, nil
		}
		// Wait, because another node has created a key in the namespace.
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return fail(failure(ctx, about("making", key), ctx.Err(), false))
		}
	}
}

// mayMake returns an error if a namespace with the given number of keys may not have n more keys.
// The text in more is appended to the error.
func (s *Store) mayMake(ctx context.Context, namespace string, keys, n int64, more string) error {
	if err := store.MayCreate(ctx); err != nil {
		return err
	}
	if most := s.quota(namespace); keys+n > int64(most) {
		return nodeapi.Errorf(nodeapi.CodeQuotaExceeded,
			"delete keys that are not needed: they go after a while; or have the namespace's quota raised",
			"the namespace %s has %d durable keys, deleted ones that are still known included, of %d that it may have%s",
			namespace, keys, most, more)
	}
	return nil
}

// makingTurn waits until the caller may create keys in a namespace. Calls of the same node that
// create keys in the same namespace take turns, because only one of several concurrent calls would
// succeed.
func (s *Store) makingTurn(ctx context.Context, namespace string) (done func(), err error) {
	return s.making.Wait(ctx, store.Key{Namespace: namespace})
}
