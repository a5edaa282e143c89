package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
)

// follower writes a key in several ways, one after the other, and measures the time until it is
// notified of the write. A write starts when the previous write was notified, so other load on the
// machine affects all ways.
type follower struct {
	writer, reader string            // sockets of node servers
	etcd           map[string]string // etcd endpoints, by the name of the way of following
	writes         int
	every          time.Duration
}

// followed is the result for one way of following.
type followed struct {
	Writes int `json:"writes"`
	// Told is the time from the call of put to the callback. Answered is the time from the call of
	// put to its answer.
	Told     spread `json:"told_us"`
	Answered spread `json:"answered_us"`
	// After is the time from put's answer to the callback. With put's answer, the writer knows that
	// the write is committed. After is negative if the callback came first.
	After spread `json:"after_us"`
}

type spread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func spreadOf(all []time.Duration) spread {
	slices.Sort(all)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return spread{us(all[len(all)/2]), us(all[len(all)*99/100])}
}

// followedKey is the key that is written, and followedStream is its stream.
const followedKey, followedStream = "followed/key", "followed"

// toldWithin is the timeout for a callback.
const toldWithin = 30 * time.Second

// told is a value, and the time of its callback.
type told struct {
	value string
	at    time.Time
}

// follow is one way of following a key. It has a function that writes a value, and a channel of
// callbacks.
type follow struct {
	name  string
	put   func(value string) error
	calls chan told

	whole, answered, after []time.Duration
}

func (f *follower) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ways []*follow
	opens := []func(context.Context) (*follow, error){f.push, f.watch}
	for _, name := range slices.Sorted(maps.Keys(f.etcd)) {
		opens = append(opens, func(ctx context.Context) (*follow, error) { return watchEtcd(ctx, name, f.etcd[name]) })
	}
	for _, open := range opens {
		w, err := open(ctx)
		if err != nil {
			return err
		}
		ways = append(ways, w)
	}
	warm := min(50, f.writes)
	for n := range warm + f.writes {
		for _, w := range ways {
			if err := w.once(strconv.Itoa(n), n >= warm); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			time.Sleep(f.every)
		}
	}
	report := map[string]followed{}
	for _, w := range ways {
		report[w.name] = followed{len(w.whole), spreadOf(w.whole), spreadOf(w.answered), spreadOf(w.after)}
	}
	return json.NewEncoder(out).Encode(report)
}

// once writes a value, and waits for the callback with that value.
func (w *follow) once(value string, counts bool) error {
	begin := time.Now()
	if err := w.put(value); err != nil {
		return err
	}
	answered := time.Now()
	for deadline := time.After(toldWithin); ; {
		select {
		case t := <-w.calls:
			if t.value != value {
				continue // this is the callback of an earlier value
			}
			if counts {
				w.whole = append(w.whole, t.at.Sub(begin))
				w.answered = append(w.answered, answered.Sub(begin))
				w.after = append(w.after, t.at.Sub(answered))
			}
			return nil
		case <-deadline:
			return fmt.Errorf("it is not told of %s", value)
		}
	}
}

// callback sends a value to the channel without blocking. If 64 values are already waiting, it
// drops the value.
func (w *follow) callback(value string) {
	select {
	case w.calls <- told{value, time.Now()}:
	default:
	}
}

// put returns a function that writes through the node API at the writer's node.
func (f *follower) put(ctx context.Context, key string) (func(string) error, error) {
	c, err := node.Connect(ctx, node.Config{Socket: f.writer, Wait: toldWithin})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close(ctx) })
	return func(value string) error {
		_, err := c.Put(ctx, key, []byte(value))
		return err
	}, nil
}

// push follows the key by push from the key's stream.
func (f *follower) push(ctx context.Context) (*follow, error) {
	put, err := f.put(ctx, followedKey)
	if err != nil {
		return nil, err
	}
	if err := put("first"); err != nil {
		return nil, err
	}
	c, err := node.Connect(ctx, node.Config{Socket: f.reader, Wait: toldWithin})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close(ctx) })
	source := &nodeapi.StreamSource{Keys: &nodeapi.KeysSource{Prefix: followedKey}}
	if _, err := c.OpenStream(ctx, followedStream, &nodeapi.StreamConfig{Source: source}); err != nil {
		return nil, err
	}
	r, err := streams.Open(ctx, streams.Config{Socket: f.reader, Stream: followedStream})
	if err != nil {
		return nil, err
	}
	w := &follow{name: "push", put: put, calls: make(chan told, 64)}
	go func() {
		for {
			b, err := r.Next(ctx)
			if err != nil {
				return
			}
			for _, record := range b.Records() {
				var e nodeapi.Event
				if json.Unmarshal(record.Data, &e) == nil && e.Value != nil {
					w.callback(*e.Value)
				}
			}
		}
	}()
	return w, nil
}

// watch follows a key by the node API's watch.
func (f *follower) watch(ctx context.Context) (*follow, error) {
	const key = "watched/key"
	put, err := f.put(ctx, key)
	if err != nil {
		return nil, err
	}
	c, err := node.Connect(ctx, node.Config{Socket: f.reader, Wait: toldWithin})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close(ctx) })
	if err := put("first"); err != nil {
		return nil, err
	}
	events, err := c.Watch(ctx, node.WatchConfig{Keys: []string{key}})
	if err != nil {
		return nil, err
	}
	w := &follow{name: "watch", put: put, calls: make(chan told, 64)}
	go func() {
		for {
			e, err := events.Next(ctx)
			if err != nil {
				return
			}
			w.callback(string(e.Value))
		}
	}()
	return w, nil
}

// watchEtcd follows a key of an etcd with etcd's own client.
func watchEtcd(ctx context.Context, name, endpoint string) (*follow, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Context: ctx,
		Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	w := &follow{name: name, calls: make(chan told, 64), put: func(value string) error {
		_, err := c.Put(ctx, followedKey, value)
		return err
	}}
	events := c.Watch(ctx, followedKey, clientv3.WithCreatedNotify())
	if first, ok := <-events; !ok || !first.Created {
		return nil, errors.Join(errors.New("etcd does not begin to watch"), first.Err())
	}
	go func() {
		for e := range events {
			for _, event := range e.Events {
				if event.Type == mvccpb.PUT {
					w.callback(string(event.Kv.Value))
				}
			}
		}
	}()
	return w, nil
}
