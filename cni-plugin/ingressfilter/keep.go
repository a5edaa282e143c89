package ingressfilter

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// made has the tables that this process has written last, by network namespace and name. It is
// locked while any is written, so that none is restored in an older version.
var made = struct {
	sync.Mutex
	writes map[string]map[string]func(*table) error
}{writes: map[string]map[string]func(*table) error{}}

// madeHere is those of the calling thread's network namespace. made is locked.
func madeHere() (map[string]func(*table) error, error) {
	space, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("naming the network namespace: %w", err)
	}
	defer space.Close()
	id := space.UniqueId()
	if made.writes[id] == nil {
		made.writes[id] = map[string]func(*table) error{}
	}
	return made.writes[id], nil
}

// KeepRules restores the rules of ApplyTunnels and ApplySwitch in the calling thread's network
// namespace as soon as somebody has deleted them, until ctx ends, and calls restored then. It
// returns at once.
func KeepRules(ctx context.Context, restored func(name string, err error)) error {
	_, err := nftwatch.Watch(ctx, func() { look(restored) })
	if err != nil {
		return fmt.Errorf("keeping the stack filter: %w", err)
	}
	return nil
}

// look puts back what is not there.
func look(restored func(name string, err error)) {
	made.Lock()
	defer made.Unlock()
	here, err := madeHere()
	if err != nil {
		return // it looks again
	}
	for name, write := range here {
		conn, err := nftables.New()
		if err != nil {
			restored(name, fmt.Errorf("reaching nftables: %w", err))
			continue
		}
		if there, err := isThere(conn, name); err == nil && !there {
			restored(name, writeAll(conn, name, write))
		}
	}
}
