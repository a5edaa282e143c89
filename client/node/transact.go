package node

import (
	"context"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Transaction is the input of Transact: 1 to 64 comparisons and writes altogether. A key may be
// compared at most once, and written at most once.
type Transaction struct {
	Compare []Comparison
	Write   []Write
}

// Comparison is a condition on a key: see HasVersion, HasValue and IsAbsent.
type Comparison struct{ data nodeapi.Comparison }

// HasVersion holds if a key has this version. Never means that the key was never written.
// HasVersion is cheaper than the other comparisons, for which the server must read the key.
func HasVersion(key string, v Version) Comparison {
	return Comparison{nodeapi.Comparison{Key: key, Version: string(v)}}
}

// HasValue holds if a key has this value.
func HasValue(key string, value []byte) Comparison {
	c := Comparison{nodeapi.Comparison{Key: key}}
	c.data.Value, c.data.ValueBase64 = coded(value)
	return c
}

// IsAbsent holds if a key has no value, because it was never written or was deleted.
func IsAbsent(key string) Comparison {
	return Comparison{nodeapi.Comparison{Key: key, Absent: true}}
}

// Write is a transaction's change of one key: see PutKey and DeleteKey.
type Write struct{ data nodeapi.TransactWrite }

// PutKey writes a value, and creates the key if it does not exist. Options: WithLease.
func PutKey(key string, value []byte, opts ...Option) Write {
	w := Write{nodeapi.TransactWrite{Key: key, Lease: gather(opts).lease}}
	w.data.Value, w.data.ValueBase64 = coded(value)
	return w
}

// DeleteKey leaves a key without a value.
func DeleteKey(key string) Write { return Write{nodeapi.TransactWrite{Key: key, Delete: true}} }

func coded(value []byte) (text *string, base64 []byte) {
	if s := string(value); utf8.Valid(value) {
		return &s, nil
	}
	return nil, value
}

// Transacted is the result of a transaction.
type Transacted struct {
	// Done reports whether all comparisons held. If they did, everything was written.
	Done bool
	// Versions are the versions of the written keys, in the order of Write, if Done is true. All of
	// them are equal, except that a key has Never if the transaction deletes it and it was never
	// written.
	Versions []Version
	// Failed are the keys whose comparisons did not hold, in the order of Compare, if Done is
	// false. Each item is a state of its key in which the comparison did not hold. If the values up
	// to an item exceed 32 KiB in total, the item's Value is nil although Found is true.
	Failed []Item
}

// Transact compares and writes several durable keys of one namespace atomically. If all comparisons
// hold, everything is written; otherwise nothing is written. A comparison that does not hold is not
// an error. Transact refuses volatile keys with CodeInvalidArgument. The only option is In.
func (c *Client) Transact(ctx context.Context, t Transaction, opts ...Option) (Transacted, error) {
	data := nodeapi.TransactData{Namespace: gather(opts).namespace}
	for _, x := range t.Compare {
		if err := checkKey(nodeapi.FuncTransact, x.data.Key); err != nil {
			return Transacted{}, err
		}
		data.Compare = append(data.Compare, x.data)
	}
	for _, x := range t.Write {
		if err := checkKey(nodeapi.FuncTransact, x.data.Key); err != nil {
			return Transacted{}, err
		}
		data.Write = append(data.Write, x.data)
	}
	answer, err := askFor[nodeapi.TransactAnswer](ctx, c, nodeapi.FuncTransact, data, changing)
	if err != nil {
		return Transacted{}, err
	}
	if answer.Done && len(answer.Versions) != len(t.Write) {
		return Transacted{}, because(nil, CodeInternal, "read the keys", "transact: %d keys were written, the answer has %d versions",
			len(t.Write), len(answer.Versions))
	}
	out := Transacted{Done: answer.Done}
	for _, v := range answer.Versions {
		out.Versions = append(out.Versions, Version(v))
	}
	for i := range answer.Failed {
		item := itemOf(&answer.Failed[i])
		if answer.Failed[i].Value == nil && answer.Failed[i].ValueBase64 == nil {
			item.Value = nil
		}
		out.Failed = append(out.Failed, item)
	}
	return out, nil
}
