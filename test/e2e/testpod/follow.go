package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
)

// follow STREAM PREFIX LAST KEYS creates a stream of the commits of the keys that begin with
// PREFIX, and reads it by push. It ends when KEYS of these keys have the value LAST. program.py
// does the same.
func follow(ctx context.Context, c *node.Client, args []string) error {
	if len(args) != 4 {
		return errors.New("follow takes a stream, a prefix, the last value and a number of keys")
	}
	keys, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	source := &nodeapi.StreamSource{Keys: &nodeapi.KeysSource{Prefix: args[1]}}
	if _, err := c.OpenStream(ctx, args[0], &nodeapi.StreamConfig{ObjectBytes: 4096, Source: source}); err != nil {
		return err
	}
	r, err := streams.Open(ctx, streams.Config{Stream: args[0]})
	if err != nil {
		return err
	}
	defer r.Close()
	say(map[string]any{"following": args[0], "pid": os.Getpid()})
	records, done := 0, map[string]bool{}
	for len(done) < keys {
		b, err := r.Next(ctx)
		if err != nil {
			return err
		}
		for _, record := range b.Records() {
			var e nodeapi.Event
			if err := json.Unmarshal(record.Data, &e); err != nil {
				return fmt.Errorf("a record is %q: %w", record.Data, err)
			}
			records++
			if e.Value != nil && *e.Value == args[2] {
				done[e.Key] = true
			}
		}
	}
	say(map[string]any{"records": records, "keys": slices.Sorted(maps.Keys(done))})
	return nil
}

// spy NAMESPACE STREAM tries to read a stream of another namespace, by push and by pull, and prints
// what it receives. program.py does the same.
func spy(ctx context.Context, _ *node.Client, args []string) error {
	if len(args) != 2 {
		return errors.New("spy takes a namespace and a stream")
	}
	said := map[string]any{}
	for way, pull := range map[string]bool{"push": false, "pull": true} {
		said[way] = "it was had"
		r, err := streams.Open(ctx, streams.Config{Namespace: args[0], Stream: args[1], Pull: pull})
		if err == nil {
			_, err = r.Next(ctx)
			r.Close()
		}
		if err != nil {
			said[way] = fmt.Sprint(node.CodeOf(err), ": ", err)
		}
	}
	say(said)
	return nil
}
