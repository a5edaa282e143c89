package server

import (
	"context"
	"fmt"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

func transact(ctx context.Context, k *call, d *nodeapi.TransactData) (any, error) {
	if err := checkTransaction(d); err != nil {
		return nil, err
	}
	compare := make([]coordination.Comparison, len(d.Compare))
	for i := range d.Compare {
		c, err := comparison(&d.Compare[i])
		if err != nil {
			return nil, within(err, "the comparison with", d.Compare[i].Key)
		}
		compare[i] = c
	}
	writes := make([]coordination.Write, len(d.Write))
	makes := false
	for i := range d.Write {
		w, err := writeOf(&d.Write[i])
		if err != nil {
			return nil, within(err, "the write of", d.Write[i].Key)
		}
		writes[i], makes = w, makes || !w.Delete
	}
	ctx, ns, err := k.placeToTransact(ctx, d.Namespace, len(compare) > 0, len(writes) > 0, makes)
	if err != nil {
		return nil, err
	}
	done, err := k.c.s.coordination.Transact(ctx, ns, compare, writes)
	if err != nil {
		return nil, err
	}
	out := nodeapi.TransactAnswer{Done: done.Done}
	for _, v := range done.Versions {
		out.Versions = append(out.Versions, version(v))
	}
	for _, f := range done.Failed {
		i := item(f)
		if f.Found && f.Value == nil {
			i.Value, i.ValueBase64 = nil, nil // leave out the value, because the answer has no room for it
		}
		out.Failed = append(out.Failed, i)
	}
	return &out, nil
}

// within adds to an error which part of a transaction the error is about.
func within(err error, what, key string) error {
	refused := *rpc.ToAnswer(err, false)
	refused.Message = fmt.Sprintf("%s %.64q: %s", what, key, refused.Message)
	return &refused
}

// checkTransaction returns an error if the content of a transaction is not valid.
func checkTransaction(d *nodeapi.TransactData) error {
	bytes := 0
	compared, written := map[string]bool{}, map[string]bool{}
	count := func(seen map[string]bool, key, doing string, text *string, base64 []byte) error {
		if err := checkKey(key); err != nil {
			return err
		}
		if seen[key] {
			return rpc.Invalid("the key %.64q is %s twice; a transaction has a key once in compare and once in write", key, doing)
		}
		seen[key] = true
		if bytes += len(key) + len(base64); text != nil {
			bytes += len(*text)
		}
		return nil
	}
	switch n := len(d.Compare) + len(d.Write); {
	case n == 0:
		return rpc.Invalid("the transaction has nothing to compare and nothing to write")
	case n > nodeapi.MaxTransact:
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "compare and write fewer keys",
			"%d comparisons and writes; a transaction has at most %d together", n, nodeapi.MaxTransact)
	}
	for i := range d.Compare {
		c := &d.Compare[i]
		if err := count(compared, c.Key, "compared", c.Value, c.ValueBase64); err != nil {
			return err
		}
	}
	for i := range d.Write {
		w := &d.Write[i]
		if err := count(written, w.Key, "written", w.Value, w.ValueBase64); err != nil {
			return err
		}
	}
	if bytes > nodeapi.MaxTransactBytes {
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "write less at once",
			"the names and values have %d bytes; those of a transaction have at most %d", bytes, nodeapi.MaxTransactBytes)
	}
	return nil
}

func comparison(c *nodeapi.Comparison) (out coordination.Comparison, err error) {
	out = coordination.Comparison{Name: c.Key, Absent: c.Absent}
	conditions := 0
	if c.Absent {
		conditions++
	}
	if c.Version != "" {
		conditions++
		v, err := parseVersion(c.Version)
		if err != nil {
			return out, err
		}
		out.Version = &v
	}
	if c.Value != nil || c.ValueBase64 != nil {
		conditions++
		b, err := valueOf(c.Value, c.ValueBase64)
		if err != nil {
			return out, err
		}
		value := string(b)
		out.Value = &value
	}
	if conditions != 1 {
		return out, rpc.Invalid("it has %d conditions: give exactly one of version, value (or valueBase64) and absent", conditions)
	}
	return out, nil
}

func writeOf(w *nodeapi.TransactWrite) (coordination.Write, error) {
	out := coordination.Write{Name: w.Key, Lease: w.Lease, Delete: w.Delete}
	if w.Delete {
		if w.Value != nil || w.ValueBase64 != nil || w.Lease != "" {
			return out, rpc.Invalid("delete: give no value and no lease with it")
		}
		return out, nil
	}
	var err error
	out.Value, err = valueOf(w.Value, w.ValueBase64)
	return out, err
}

// placeToTransact returns the namespace of a transaction, if the caller has the necessary rights.
// The caller must be allowed to read the compared keys and to write the written keys. If the caller
// may not create keys, the returned context tells the store.
func (k *call) placeToTransact(ctx context.Context, ns string, compares, writes, makes bool) (context.Context, string,
	error) {
	ns, err := k.named(ns)
	if err == nil && compares {
		err = k.may(ctx, authority.Read, ns)
	}
	if err == nil && writes {
		err = k.may(ctx, authority.Write, ns)
	}
	if err == nil && makes {
		ctx = k.creating(ctx, ns)
	}
	return ctx, ns, err
}
