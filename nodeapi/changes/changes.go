// Package changes fills streams with what is committed of a namespace's keys.
package changes

import (
	"context"
	"encoding/json"
	"hash/fnv"

	"github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/wire"
)

// Keys is a source of streams: the keys of a namespace whose names begin with a prefix. Each record
// is a node.Event in JSON, whose mark is the version. All changes of a key are in one partition, in
// their order. As with any watch, what is overtaken before it was told is not there, and counted.
type Keys struct {
	// Watch is store.Store's, with changes as programs are told of them.
	Watch func(ctx context.Context, w store.Watch, tell func([]node.Event)) error

	Namespace, Prefix string
}

// Partition is where a key's changes are.
func Partition(key string, of int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(of))
}

// Run implements broker.Source. Of what the stream still has it tells what is newer; of other keys
// their state is told anew when it begins.
func (k *Keys) Run(ctx context.Context, to broker.Sink) error {
	after := map[string]wire.Version{}
	for n := range to.Partitions() {
		to.Had(n, func(r stream.Record) {
			var e node.Event
			if json.Unmarshal(r.Data, &e) == nil && e.Error == nil {
				after[e.Key] = wire.Version(r.Mark)
			}
		})
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	records := make([][]stream.Record, to.Partitions())
	w := store.Watch{Namespace: k.Namespace, Prefix: &k.Prefix, After: after}
	err := k.Watch(ctx, w, func(events []node.Event) {
		for _, e := range events {
			v, err := wire.ParseVersion(e.Version)
			if err != nil {
				continue
			}
			data, err := json.Marshal(e)
			if err != nil {
				continue
			}
			n := Partition(e.Key, len(records))
			records[n] = append(records[n], stream.Record{Data: data, Mark: uint64(v)})
		}
		for n, some := range records {
			if len(some) > 0 {
				if err := to.Append(ctx, n, some); err != nil {
					end(err)
				}
				records[n] = some[:0]
			}
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
