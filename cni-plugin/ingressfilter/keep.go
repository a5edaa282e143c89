package ingressfilter

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// made are the tables that this process wrote last, by network namespace and name. The lock is held
// while a table is written, so that KeepRules restores no older version.
var made = struct {
	sync.Mutex
	writes map[string]map[string]func(*table) error
}{writes: map[string]map[string]func(*table) error{}}

// madeHere returns made's tables of the calling thread's network namespace. The caller holds made's
// lock.
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

// KeepRules restores the tables of ApplyTunnels and ApplySwitch in the calling thread's network
// namespace whenever another program deletes them, until ctx ends. It calls restored after each
// attempt. It returns at once.
func KeepRules(ctx context.Context, restored func(name string, err error)) error {
	_, err := nftwatch.Watch(ctx, func() { look(restored) })
	if err != nil {
		return fmt.Errorf("keeping the stack filter: %w", err)
	}
	return nil
}

// look restores the missing tables.
func look(restored func(name string, err error)) {
	made.Lock()
	defer made.Unlock()
	here, err := madeHere()
	if err != nil {
		return // the next look tries again
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
