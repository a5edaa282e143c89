package door

import (
	"bytes"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
)

var behind = []byte(clientv3.GetPrefixRangeEnd(durable.Prefix))

// inside reports whether a key, or a whole range of keys, is below the prefix.
func inside(key, end []byte) bool {
	switch {
	case len(key) > maxName || len(end) > maxName || !bytes.HasPrefix(key, []byte(durable.Prefix)):
		return false
	case len(end) == 0:
		return true
	}
	// an end of "\x00" means all keys
	return !bytes.Equal(end, []byte{0}) && bytes.Compare(end, behind) <= 0
}

// mayRange returns an error unless a node may send this read. It refuses reads that make etcd
// process more entries than it returns. Such reads have filters, or are sorted by anything but the
// name.
func (v *visit) mayRange(r *pb.RangeRequest) error {
	switch {
	case !inside(r.Key, r.RangeEnd):
		return v.deny("reading %.80q to %.80q", r.Key, r.RangeEnd)
	case r.SortOrder != pb.RangeRequest_NONE &&
		(r.SortOrder != pb.RangeRequest_ASCEND || r.SortTarget != pb.RangeRequest_KEY),
		r.MinModRevision != 0, r.MaxModRevision != 0, r.MinCreateRevision != 0, r.MaxCreateRevision != 0:
		return v.deny("reading in another order, or with filters")
	case len(r.RangeEnd) == 0 || r.CountOnly:
	case r.KeysOnly && (r.Limit <= 0 || r.Limit > namesAtOnce):
		return v.deny("reading more than %d names at once", namesAtOnce)
	case !r.KeysOnly && (r.Limit <= 0 || r.Limit > valuesAtOnce):
		return v.deny("reading more than %d values at once", valuesAtOnce)
	}
	return nil
}

func (v *visit) mayWatch(r *pb.WatchCreateRequest) error {
	if !inside(r.Key, r.RangeEnd) {
		return v.deny("watching %.80q to %.80q", r.Key, r.RangeEnd)
	}
	return nil
}

// making describes the keys that a transaction creates in one namespace.
type making struct {
	namespace string
	keys      int
	counted   int64 // revision that the transaction requires durable.MadeName of the namespace to have
}

// mayTxn returns an error unless a node may send this transaction. A transaction may read, or write
// existing keys, each with a condition on that key. It may also create keys of one namespace in the
// same form as a Store. The result size is the number of bytes that the transaction writes.
func (v *visit) mayTxn(r *pb.TxnRequest) (made making, size int, err error) {
	if len(r.Compare) > opsAtOnce || len(r.Success) > opsAtOnce || len(r.Failure) > opsAtOnce {
		return made, 0, v.deny("more than %d operations at once", opsAtOnce)
	}
	for _, c := range r.Compare {
		if !inside(c.Key, c.RangeEnd) || len(c.RangeEnd) > 0 {
			return made, 0, v.deny("a condition on %.80q to %.80q", c.Key, c.RangeEnd)
		}
	}
	var puts []*pb.PutRequest
	for _, op := range r.Success {
		if p := op.GetRequestPut(); p != nil {
			puts = append(puts, p)
		} else if err := v.mayRead(op); err != nil {
			return made, 0, err
		}
	}
	// these operations are executed if a condition fails, so they must not write
	for _, op := range r.Failure {
		if err := v.mayRead(op); err != nil {
			return made, 0, err
		}
	}
	for _, p := range puts {
		size += len(p.Key) + len(p.Value)
		if !inside(p.Key, nil) || p.PrevKv || p.IgnoreValue || p.IgnoreLease || len(p.Value) > durable.MaxValue {
			return made, 0, v.deny("writing %.80q", p.Key)
		}
	}
	made, ok := mayWrite(r.Compare, puts)
	if !ok {
		return made, 0, v.deny("a transaction that is none of the node API's")
	}
	return made, size, nil
}

// mayWrite reports whether a Store would send such writes. It also returns the keys that they
// create.
func mayWrite(when []*pb.Compare, puts []*pb.PutRequest) (made making, ok bool) {
	fences := 0
	for _, p := range puts {
		ns := isKey(p.Key)
		switch {
		case ns != "" && find(when, p.Key, isThere) != nil:
		case ns != "" && p.Lease == 0 && find(when, p.Key, isNot) != nil && (made.keys == 0 || ns == made.namespace):
			made.namespace, made.keys = ns, made.keys+1
		case bytes.HasPrefix(p.Key, []byte(durable.MadeName(""))) && len(p.Value) == 0 && p.Lease == 0 &&
			find(when, p.Key, isAsCounted) != nil:
			made.counted = find(when, p.Key, isAsCounted).GetModRevision()
			fences++
		default:
			return made, false
		}
	}
	if made.keys == 0 {
		return made, fences == 0
	}
	fence := []byte(durable.MadeName(made.namespace))
	return made, fences == 1 && slices.ContainsFunc(puts, func(p *pb.PutRequest) bool {
		return bytes.Equal(p.Key, fence)
	})
}

func (v *visit) mayRead(op *pb.RequestOp) error {
	if r := op.GetRequestRange(); r != nil {
		return v.mayRange(r)
	}
	return v.deny("a transaction that is none of the node API's")
}

// isKey returns the namespace of an entry that may be a key. It returns "" if the entry cannot be a
// key.
func isKey(entry []byte) string {
	rest, ok := strings.CutPrefix(string(entry), durable.KeysPrefix)
	ns, name, slash := strings.Cut(rest, "/")
	if !ok || !slash || name == "" || authority.CheckNamespace(ns) != nil {
		return ""
	}
	return ns
}

// find returns the first condition on key for which the function `is` returns true. It returns nil
// if there is no such condition.
func find(all []*pb.Compare, key []byte, is func(*pb.Compare) bool) *pb.Compare {
	for _, c := range all {
		if bytes.Equal(c.Key, key) && is(c) {
			return c
		}
	}
	return nil
}

// isThere reports whether a condition can hold only if the key has an entry.
func isThere(c *pb.Compare) bool {
	switch {
	case c.Target == pb.Compare_CREATE && c.Result == pb.Compare_GREATER:
		return c.GetCreateRevision() >= 0
	case c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL:
		return c.GetModRevision() > 0
	}
	// A comparison of values never holds for a key without an entry.
	return c.Target == pb.Compare_VALUE && c.Result == pb.Compare_NOT_EQUAL
}

// isNot reports whether a condition can hold only if the key has no entry.
func isNot(c *pb.Compare) bool {
	return c.Target == pb.Compare_CREATE && c.Result == pb.Compare_EQUAL && c.GetCreateRevision() == 0
}

// isAsCounted reports whether a condition holds only until another key is created in the namespace.
func isAsCounted(c *pb.Compare) bool {
	return c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL
}
