// Package changes is a source of streams. It fills a stream with commits of a namespace's keys.
package changes

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/source"
)

// Keys fills a stream with changes of the keys of a namespace whose names begin with a prefix. Each
// record is a node.Event in JSON, and the mark of the record is the version of the key. All changes
// of a key are in the same partition, in order. As with any watch, versions that are replaced
// before they are reported are only counted.
type Keys struct {
	// Watch does what the method Watch of store.Store does, but reports changes as events for
	// programs.
	Watch func(ctx context.Context, w store.Watch, tell func([]nodeapi.Event)) error

	Namespace, Prefix string
}

// Run implements source.Source. For a key that has records in the stream, it reports only newer
// versions. For any other key it first reports the state.
func (k *Keys) Run(ctx context.Context, to source.Sink) error {
	after := map[string]wire.Version{}
	to.Had(func(r stream.Record) {
		var e nodeapi.Event
		if json.Unmarshal(r.Data, &e) == nil && (e.Error == nil || errors.Is(e.Error, errTooLarge)) {
			after[e.Key] = wire.Version(r.Mark)
		}
	})
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n, of := to.Partition()
	var records []stream.Record
	w := store.Watch{Namespace: k.Namespace, Prefix: &k.Prefix, After: after}
	err := k.Watch(ctx, w, func(events []nodeapi.Event) {
		records = records[:0]
		for _, e := range events {
			if source.Partition(e.Key, of) != n {
				continue
			}
			if r, ok := record(e, to.MaxRecord()); ok {
				records = append(records, r)
			} else {
				to.Missed(1)
			}
		}
		if err := to.Append(ctx, records); err != nil {
			end(err)
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

var errTooLarge = &nodeapi.Error{Code: nodeapi.CodeTooLarge}

// record encodes an event as a record. If the value does not fit, the record contains only the
// information that the value is missing.
func record(e nodeapi.Event, most int) (r stream.Record, ok bool) {
	v, err := wire.ParseVersion(e.Version)
	if err != nil {
		return r, false
	}
	r.Mark = uint64(v)
	if r.Data, err = json.Marshal(e); err == nil && len(r.Data) > most {
		e.Value, e.ValueBase64 = nil, nil
		e.Error = nodeapi.Errorf(nodeapi.CodeTooLarge, "read the key", "the value does not go into a record")
		r.Data, err = json.Marshal(e)
	}
	return r, err == nil && len(r.Data) <= most
}
