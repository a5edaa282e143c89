package etcdstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/controller/saved"
)

// batch is the number of changes in one transaction. etcd refuses more than 128 operations
// (--max-txn-ops).
const batch = 101

// Gateway is the prefix of the keys of gateways and of placement, if these keys are below the
// controllers' prefix. These keys are not part of the state.
const Gateway = "gateway/"

// writing is how long the store repeats a write while etcd does not answer.
const writing = 10 * time.Second

// cache holds the state that etcd is known to have.
type cache struct {
	revision int64 // ModRevision of "revision"; 0: the key does not exist
	image    *Image
}

// Load implements saved.Store.
func (t *Term) Load() (*saved.State, error) {
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("reading the state from etcd under %s: %w", t.c.Prefix, err)
	}
	if t.cache.revision == 0 {
		return nil, nil
	}
	s, err := t.cache.image.State()
	if err != nil {
		return nil, fmt.Errorf("in etcd, under %s: %w", t.c.Prefix, err)
	}
	return s, nil
}

// read reads the whole state, at one revision of etcd.
func (t *Term) read() error {
	ctx, cancel := context.WithTimeout(t.ctx, writing)
	defer cancel()
	r, err := t.c.Client.Get(ctx, t.c.Prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	var revision int64
	stored := map[string]string{}
	for _, kv := range r.Kvs {
		name := strings.TrimPrefix(string(kv.Key), t.c.Prefix)
		switch {
		case strings.HasPrefix(name, "leader/"), strings.HasPrefix(name, Gateway): // other components use these keys
		default:
			stored[name] = string(kv.Value)
		}
		if name == revisionName {
			revision = kv.ModRevision
		}
	}
	image, err := NewImage(stored)
	if err != nil {
		return err
	}
	t.cache = cache{revision, image}
	return nil
}

// Save implements saved.Store. It writes the changes in as many transactions as necessary.
func (t *Term) Save(s *saved.State) error {
	fail := func(err error) error { return fmt.Errorf("saving the state in etcd under %s: %w", t.c.Prefix, err) }
	deadline := time.Now().Add(writing)
	for again := t.cache.image == nil; ; again = true {
		if again { // nothing was read yet, the last write's result is unknown, or somebody else has written
			if err := t.read(); err != nil {
				if t.ctx.Err() != nil {
					return fail(t.notLeading())
				}
				return fail(err)
			}
		}
		ok, err := t.write(s)
		switch {
		case ok:
			return nil
		case t.ctx.Err() != nil:
			return fail(t.notLeading())
		case time.Now().After(deadline):
			return fail(err)
		case err != nil:
			pause(t.ctx, 50*time.Millisecond)
		}
	}
}

// write makes the changes that lead from the cached state to s, and reports whether all changes
// were made.
func (t *Term) write(s *saved.State) (bool, error) {
	transactions, err := t.cache.image.Transactions(s, t.rev, batch)
	if err != nil {
		return false, err
	}
	for _, changes := range transactions {
		if ok, err := t.commit(changes); !ok {
			return false, err
		}
	}
	t.cache.image.Written(s)
	return true, nil
}

// commit makes changes in one transaction. It returns false without an error if "revision" has
// changed since it was read.
func (t *Term) commit(changes []Change) (bool, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	var ops []clientv3.Op
	for _, c := range changes {
		if name := t.c.Prefix + c.Name; c.Delete {
			ops = append(ops, clientv3.OpDelete(name))
		} else {
			ops = append(ops, clientv3.OpPut(name, c.Value))
		}
	}
	r, err := t.c.Client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.rev),
		clientv3.Compare(clientv3.ModRevision(t.c.Prefix+revisionName), "=", t.cache.revision),
	).Then(ops...).Else(clientv3.OpGet(t.key)).Commit()
	if err != nil {
		return false, err
	}
	if !r.Succeeded {
		if mine := r.Responses[0].GetResponseRange().Kvs; len(mine) == 0 || mine[0].CreateRevision != t.rev {
			t.notLeading()
		}
		return false, nil
	}
	t.cache.revision = r.Header.Revision
	for _, c := range changes {
		t.cache.image.Made(c)
	}
	return true, nil
}
