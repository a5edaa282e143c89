package server

import (
	"context"
	"errors"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// watchCost returns how many requests a watch counts as. It is the number of keys for which the
// server and the store keep state.
func watchCost(d *nodeapi.WatchData) int { return max(1, len(d.Keys), len(d.After)) }

// eventsAtOnce is the approximate maximum size, in bytes, of the values and names in one answer of
// a watch.
const eventsAtOnce = nodeapi.MaxMessage / 8

// watchOf converts the data of a request to a watch of the store.
func watchOf(ctx context.Context, k *call, d *nodeapi.WatchData) (*store.Watch, error) {
	if len(d.Keys) == 0 && d.Prefix == nil {
		return nil, rpc.Invalid("a watch has keys or a prefix (\"\": all keys of the namespace)")
	}
	w := &store.Watch{Keys: d.Keys, Prefix: d.Prefix}
	for _, name := range d.Keys {
		if err := checkKey(name); err != nil {
			return nil, err
		}
	}
	if d.Prefix != nil && *d.Prefix != "" { // a prefix must be valid in the same way as a name
		if err := checkKey(*d.Prefix); err != nil {
			return nil, err
		}
	}
	if len(d.After) > 0 {
		w.After = map[string]wire.Version{}
	}
	for name, text := range d.After {
		v, err := parseVersion(text)
		if err != nil {
			return nil, err
		}
		w.After[name] = v
	}
	var err error
	w.Namespace, err = k.place(ctx, d.Namespace)
	return w, err
}

// watch has a small stack frame, because there are many watches, and each keeps its stack while it
// waits.
func watch(ctx context.Context, k *call, d *nodeapi.WatchData) (any, error) {
	w, err := watchOf(ctx, k, d)
	if err != nil {
		return nil, err
	}
	if !k.more(ctx, &nodeapi.WatchAnswer{Started: true}) {
		return nil, ctx.Err()
	}
	// During the watch, the right to watch may be revoked, or the caller's pod may end.
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err = k.c.s.config.Store.Watch(ctx, *w, func(changes []store.Change) {
		if _, err := k.place(ctx, w.Namespace); err != nil {
			end(err)
			return
		}
		tellChanges(ctx, k, changes)
	})
	return nil, causeOf(ctx, err)
}

// causeOf returns the reason why a watch ended. The reason is err or, for example, that the right
// to watch was revoked.
func causeOf(ctx context.Context, err error) error {
	if refused := new(nodeapi.Error); errors.As(context.Cause(ctx), &refused) {
		return refused
	}
	return err
}

func tellChanges(ctx context.Context, k *call, changes []store.Change) {
	for len(changes) > 0 {
		var events []nodeapi.Event
		size := 0
		for len(changes) > 0 && (len(events) == 0 || size < eventsAtOnce) {
			// JSON may need six bytes for one byte of a value.
			size += 64 + len(changes[0].Key.Name) + 6*len(changes[0].Value)
			if !cell.Reserved(changes[0].Key.Name) {
				events = append(events, k.c.s.event(ctx, changes[0]))
			}
			changes = changes[1:]
		}
		if len(events) > 0 && !k.more(ctx, &nodeapi.WatchAnswer{Events: events}) {
			return
		}
	}
}

// event converts a change to an event for programs. A key whose lease has ended has no value. If
// the key is deleted later, that is reported, too.
func (s *Server) event(ctx context.Context, c store.Change) nodeapi.Event {
	v, err := s.coordination.Resolve(ctx, c.Item, true)
	if err != nil {
		failed := nodeapi.Item{Key: c.Key.Name, Version: version(c.Version), Error: rpc.ToAnswer(err, false)}
		return nodeapi.Event{Item: failed, Overtaken: c.Overtaken}
	}
	return nodeapi.Event{Item: item(v), Overtaken: c.Overtaken}
}
