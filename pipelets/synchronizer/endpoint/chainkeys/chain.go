// Package chainkeys is a source and a destination of keys in NetCRAQ's chains, by prefix. It uses
// the node API of the node on which the worker runs.
//
// A chain has no transactions over several keys, and no history. So before a destination writes
// rows, it records in a separate key the current versions of their keys and hashes of the new
// values. It then writes each row by compare-and-swap on that version. From the versions a
// successor knows which rows are already written, and an interrupted worker never overwrites later
// writes. A source's position is the newest version that it has read of each key.
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

// Overlap reports whether two stores have keys in common.
func Overlap(a, b pipeletapi.Chain) bool {
	nested := strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix)
	return a.Namespace == b.Namespace && nested
}

// link is a client that connects on first use.
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
