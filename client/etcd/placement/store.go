package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrChanged means that nothing was written, because the directory differs from what the caller
// saw, or because one of the caller's conditions does not hold. For example, the key has been
// placed, or placed again, or removed meanwhile.
var ErrChanged = errors.New("the placement has changed")

// Store changes the directory of placed keys in etcd. Any number of stores may work at the same
// time.
type Store struct {
	KV clientv3.KV
	// prefix of all of the gateways' keys, usually DefaultPrefix
	Prefix string
}

// Put writes the placement of a key. It fails with ErrChanged if the key already has a placement,
// or if a condition does not hold. After any other error it is not known whether the placement was
// written. The returned entry has its mod revision.
//
// Put never replaces a placement. To move a key, first remove it from its slot, and delete its
// placement; then place the key again. Otherwise gateways that do not know the new slot yet would
// still read the old slot.
func (s Store) Put(ctx context.Context, key string, e Entry, conditions ...clientv3.Cmp) (Entry, error) {
	fail := func(err error) (Entry, error) {
		return Entry{}, fmt.Errorf("writing to etcd that %q is placed as 0x%08x: %w", key, e.ID, err)
	}
	if err := errors.Join(Check(s.Prefix, key), e.check()); err != nil {
		return fail(err)
	}
	name := Name(s.Prefix, key)
	r, err := s.KV.Txn(ctx).If(append(slices.Clone(conditions),
		clientv3.Compare(clientv3.CreateRevision(name), "=", 0))...).
		Then(clientv3.OpPut(name, e.marshal())).Commit()
	switch {
	case err != nil:
		return fail(err)
	case !r.Succeeded:
		return fail(ErrChanged)
	}
	e.Mod = r.Header.Revision
	return e, nil
}

// Delete deletes the placement of a key if it has the mod revision was. It fails with ErrChanged if
// the key now has another placement or none, or if a condition does not hold. After any other error
// it is not known whether the placement was deleted.
func (s Store) Delete(ctx context.Context, key string, was int64, conditions ...clientv3.Cmp) error {
	name := Name(s.Prefix, key)
	r, err := s.KV.Txn(ctx).If(append(slices.Clone(conditions),
		clientv3.Compare(clientv3.ModRevision(name), "=",
			was))...).Then(clientv3.OpDelete(name)).Commit()
	if err == nil && !(r.Succeeded && r.Responses[0].GetResponseDeleteRange().Deleted == 1) {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("deleting the placement of %q from etcd: %w", key, err)
	}
	return nil
}

// List reads the whole directory with a linearizable read, and returns its revision. If an entry
// cannot be parsed, List returns it in broken instead of entries. Such an entry cannot be used to
// read a slot, but it can be deleted by its mod revision.
func (s Store) List(ctx context.Context) (entries map[string]Entry, broken map[string]error,
	revision int64, err error) {
	prefix := Name(s.Prefix, "")
	r, err := s.KV.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, nil, 0, fmt.Errorf("reading which keys are placed from etcd under %s: %w", prefix, err)
	}
	entries, broken = make(map[string]Entry, len(r.Kvs)), map[string]error{}
	for _, kv := range r.Kvs {
		key := string(kv.Key[len(prefix):])
		if e, err := parse(kv.Value, kv.ModRevision); err != nil {
			broken[key] = err
		} else {
			entries[key] = e
		}
	}
	return entries, broken, r.Header.Revision, nil
}
