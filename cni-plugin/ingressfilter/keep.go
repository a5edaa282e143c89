package ingressfilter

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// made has the tables that this process wrote last, by network namespace and name. The lock is held
// while a table is written. So KeepRules never restores an older version of a table.
var made = struct {
	sync.Mutex
	writes map[string]map[string]func(*table) error
}{writes: map[string]map[string]func(*table) error{}}

// madeHere returns the tables in made for the calling thread's network namespace. The caller holds
// made's lock.
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
// namespace whenever another program deletes them. It runs in the background until ctx ends. It
// calls restored after each attempt.
func KeepRules(ctx context.Context, restored func(name string, err error)) error {
	_, err := nftwatch.Watch(ctx, func() { look(restored) })
	if err != nil {
		return fmt.Errorf("keeping the stack filter: %w", err)
	}
	return nil
}

// look restores the tables that are missing.
func look(restored func(name string, err error)) {
	made.Lock()
	defer made.Unlock()
	here, err := madeHere()
	if err != nil {
		return // the next call of look tries again
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
