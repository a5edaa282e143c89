package etcdstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/wire"
)

// batch is how many changes one transaction makes: etcd refuses more than 128 (--max-txn-ops), and
// "revision" is one of them.
const batch = 100

// Gateway is what the keys of gateways and placement begin with, where they are under the same
// prefix as the controllers': they are not part of the state.
const Gateway = "gateway/"

// writing is for how long a write is tried again while etcd does not answer.
const writing = 10 * time.Second

// cache is what is known to be in etcd.
type cache struct {
	revision int64                     // ModRevision of "revision"; 0: there is none
	keys     map[wire.Key]keyspace.Key // PREFIX keys/...
	others   map[string]string         // the other keys, without the prefix
	edit     uint64                    // of the directory whose keys those are; 0: not known
}

func keyName(id wire.Key) string { return fmt.Sprintf("keys/%08x", uint32(id)) }

// Load implements controller.Store.
func (t *Term) Load() (*controller.State, error) {
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("reading the state from etcd under %s: %w", t.c.Prefix, err)
	}
	if t.cache.revision == 0 {
		return nil, nil
	}
	s := &controller.State{Version: controller.StateVersion, Chains: map[string]chain.Record{}}
	for _, k := range t.cache.keys {
		s.Directory.Keys = append(s.Directory.Keys, k)
	}
	for name, value := range t.cache.others {
		var into any
		var record chain.Record
		chainName, isChain := strings.CutPrefix(name, "chains/")
		switch {
		case isChain:
			into = &record
		case name == "next":
			into = &s.Directory.Next
		case name == "retired":
			into = &s.Directory.Retired
		case name == "sessions":
			into = &s.Sessions
		case name == "avoided":
			into = &s.Avoided
		case name == "principals":
			into = &s.Principals
		case name == "switches":
			into = &s.Switches
		case name == "spaces":
			into = &s.Spaces
		case name == "epoch":
			into = &s.Epoch
		case name == "version":
			into = &s.Version
		default:
			return nil, fmt.Errorf("in etcd there is %s%s, which this controller does not know: is it of a later version?", t.c.Prefix, name)
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			return nil, fmt.Errorf("in etcd, %s%s: %w", t.c.Prefix, name, err)
		}
		if isChain {
			s.Chains[chainName] = record
		}
	}
	if s.Version != controller.StateVersion {
		return nil, fmt.Errorf("the state in etcd under %s is of version %d, and this controller reads version %d", t.c.Prefix, s.Version, controller.StateVersion)
	}
	return s, nil
}

// read reads everything, as of one revision of etcd.
func (t *Term) read() error {
	ctx, cancel := context.WithTimeout(t.ctx, writing)
	defer cancel()
	r, err := t.c.Client.Get(ctx, t.c.Prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	c := cache{keys: map[wire.Key]keyspace.Key{}, others: map[string]string{}}
	for _, kv := range r.Kvs {
		name := strings.TrimPrefix(string(kv.Key), t.c.Prefix)
		switch {
		case name == "revision":
			c.revision = kv.ModRevision
		case strings.HasPrefix(name, "leader/"), strings.HasPrefix(name, Gateway): // others'
		case strings.HasPrefix(name, "keys/"):
			var k keyspace.Key
			if err := json.Unmarshal(kv.Value, &k); err != nil {
				return fmt.Errorf("%s: %w", kv.Key, err)
			}
			c.keys[k.ID] = k
		default:
			c.others[name] = string(kv.Value)
		}
	}
	t.cache = c
	return nil
}

// Save implements controller.Store. It writes what has changed: first the directory's keys, in as
// many transactions as they need, then the rest, so that no record says of a chain what the
// directory does not know yet.
func (t *Term) Save(s *controller.State) error {
	fail := func(err error) error { return fmt.Errorf("saving the state in etcd under %s: %w", t.c.Prefix, err) }
	deadline := time.Now().Add(writing)
	for again := t.cache.keys == nil; ; again = true {
		if again { // nothing was read yet, or what came of the last one is not known, or somebody else has written
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

// change is one change of a key in etcd, and of what is known to be there.
type change struct {
	op   clientv3.Op
	note func(*cache)
}

// write makes the changes that lead to s, and says whether all were made.
func (t *Term) write(s *controller.State) (bool, error) {
	keys, others, err := t.changes(s)
	for _, all := range [][]change{keys, others} {
		for part := range slices.Chunk(all, batch) {
			if err != nil {
				return false, err
			}
			var ok bool
			if ok, err = t.commit(part); !ok {
				return false, err
			}
		}
	}
	if err == nil {
		t.cache.edit = s.Directory.Edit
	}
	return err == nil, err
}

// changes is what s differs in from what is known to be in etcd.
func (t *Term) changes(s *controller.State) (keys, others []change, err error) {
	put := func(name string, v any) (clientv3.Op, string) {
		b, failed := json.Marshal(v)
		if failed != nil {
			err = failed
		}
		return clientv3.OpPut(t.c.Prefix+name, string(b)), string(b)
	}
	there := map[wire.Key]bool{}
	all := s.Directory.Keys
	known := t.cache.keys
	// seldom is it the directory that has changed, and it can be large
	if s.Directory.Edit != 0 && s.Directory.Edit == t.cache.edit {
		all, known = nil, nil
	}
	for _, k := range all {
		there[k.ID] = true
		if t.cache.keys[k.ID] != k {
			op, _ := put(keyName(k.ID), k)
			keys = append(keys, change{op, func(c *cache) { c.keys[k.ID] = k }})
		}
	}
	for id := range known {
		if !there[id] {
			keys = append(keys, change{clientv3.OpDelete(t.c.Prefix + keyName(id)), func(c *cache) {
				delete(c.keys, id)
			}})
		}
	}
	other := func(name string, v any) {
		if op, text := put(name, v); t.cache.others[name] != text {
			others = append(others, change{op, func(c *cache) { c.others[name] = text }})
		}
	}
	other("version", s.Version)
	other("next", s.Directory.Next)
	other("retired", s.Directory.Retired)
	other("sessions", s.Sessions)
	other("avoided", s.Avoided)
	other("principals", s.Principals)
	other("switches", s.Switches)
	other("spaces", s.Spaces)
	other("epoch", s.Epoch)
	for name, r := range s.Chains {
		other("chains/"+name, r)
	}
	for name := range t.cache.others {
		if chain, ok := strings.CutPrefix(name, "chains/"); ok {
			if _, there := s.Chains[chain]; !there {
				others = append(others, change{clientv3.OpDelete(t.c.Prefix + name), func(c *cache) {
					delete(c.others, name)
				}})
			}
		}
	}
	return keys, others, err
}

// commit makes some changes in one transaction. It says false without an error where "revision" was
// not what was known.
func (t *Term) commit(changes []change) (bool, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	revision := t.c.Prefix + "revision"
	ops := []clientv3.Op{clientv3.OpPut(revision, fmt.Sprint(t.rev))}
	for _, c := range changes {
		ops = append(ops, c.op)
	}
	r, err := t.c.Client.Txn(ctx).If(
		clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.rev),
		clientv3.Compare(clientv3.ModRevision(revision), "=", t.cache.revision),
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
		c.note(&t.cache)
	}
	return true, nil
}
