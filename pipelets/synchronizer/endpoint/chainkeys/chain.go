// Package chainkeys implements a source and a destination for keys in NetCRAQ's chains that begin
// with a prefix. It uses the node API of the node on which the worker runs.
//
// A chain has no transactions over several keys, and no history. So before a destination writes
// rows, it records the current versions of their keys and hashes of the new values in a separate
// key. It then writes each row by compare-and-swap on the recorded version. From the versions, the
// next worker knows which rows are already written. An interrupted worker never overwrites later
// writes. The position of a source has, for each key, the newest version that was read.
package chainkeys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/netcraq/netcraq/client/node"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

const (
	connectTimeout = 5 * time.Second
	callTimeout    = 5 * time.Second
)

// Check reports errors in a specification.
func Check(spec pipeletapi.Chain) error {
	if spec.Prefix == "" {
		return errors.New("chain.prefix: it is needed")
	}
	if strings.HasPrefix(spec.Prefix, StatePrefix) || strings.HasPrefix(StatePrefix, spec.Prefix) {
		return fmt.Errorf("chain.prefix: %q has the keys in which positions are", spec.Prefix)
	}
	return nil
}

// Overlap reports whether two stores can have keys in common.
func Overlap(a, b pipeletapi.Chain) bool {
	nested := strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix)
	return a.Namespace == b.Namespace && nested
}

// link holds a client of the node API, which connects on first use.
type link struct {
	namespace string
	c         *node.Client
}

func (l *link) get(ctx context.Context) (*node.Client, error) {
	if l.c != nil {
		return l.c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := node.Connect(ctx, node.Config{Namespace: l.namespace, Agent: "netcraq-pipelets", Wait: connectTimeout})
	if err != nil {
		return nil, fmt.Errorf("connecting to the node API: %w", err)
	}
	l.c = c
	return c, nil
}

func (l *link) close() error {
	if l.c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := l.c.Close(ctx)
	l.c = nil
	return err
}
