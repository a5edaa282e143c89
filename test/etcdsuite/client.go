package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netcraq/netcraq/test/etcdsuite/direct"
)

// errNotUsed means that the tests did not use the switches. They could then pass without testing
// client/etcd.
var errNotUsed = errors.New("the switches answered no read, or no key was written under a guard: what passed shows nothing of client/etcd")

// runClient runs the tests on client/etcd, and prints how often the tests used the switches.
func (o *options) runClient(ctx context.Context, env []string) error {
	path := o.path("client-stats.jsonl")
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if _, err := o.packages(ctx, byClient, append(env, direct.EnvStats+"="+path)); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	total, err := direct.Sum(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", byClient, total)
	if o.run.String() == "" && (total.Network == 0 || total.Writes["done"] == 0) {
		return errNotUsed
	}
	return nil
}
