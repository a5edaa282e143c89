package ingressfilter

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
)

// Tables that others delete. A firewall that is loaded anew begins with "flush ruleset", which
// takes away everybody's tables.

// keepEvery is how often Keep looks, whether it was told of a deletion or not.
const keepEvery = time.Second

// made is the tables that this process has written last, by network namespace and name. It is
// locked while any is written: none is put back as it was before.
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

// Keep puts back what ApplyTunnels and ApplySwitch have made in the calling thread's network
// namespace as soon as somebody has deleted it, until ctx ends, and says so. It returns at once.
func Keep(ctx context.Context, restored func(name string, err error)) error {
	space, err := netns.Get()
	if err != nil {
		return fmt.Errorf("keeping the stack filter: %w", err)
	}
	conn, err := nftables.New(nftables.WithNetNSFd(int(space)))
	var deleted chan *nftables.MonitorEvent
	monitor := nftables.NewMonitor(nftables.WithMonitorObject(nftables.MonitorObjectTables))
	if err == nil {
		deleted, err = conn.AddMonitor(monitor)
	}
	if err != nil {
		space.Close()
		return fmt.Errorf("watching nftables: %w", err)
	}
	go func() {
		defer space.Close()
		again := time.NewTicker(keepEvery)
		defer again.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case _, ok := <-deleted:
				if !ok { // it cannot be watched any more: looking is left
					deleted = nil
				}
				look(space, restored)
			case <-again.C:
				look(space, restored)
			}
		}
		_ = monitor.Close()
		if deleted != nil {
			for range deleted { // until its goroutine has ended
			}
		}
	}()
	return nil
}

// Saying logs what Keep puts back.
func Saying(log *slog.Logger) func(name string, err error) {
	return func(name string, err error) {
		if err != nil {
			log.Error("a table of nftables that keeps NetCRAQ's packets apart was deleted, and cannot be put back: "+
				"other processes may send and take them", "table", name, "err", err)
			return
		}
		log.Warn("somebody deleted a table of nftables that keeps NetCRAQ's packets apart; it is there again", "table", name)
	}
}

// look puts back what is not there.
func look(space netns.NsHandle, restored func(name string, err error)) {
	made.Lock()
	defer made.Unlock()
	for name, write := range made.writes[space.UniqueId()] {
		conn, err := nftables.New(nftables.WithNetNSFd(int(space)))
		if err != nil {
			restored(name, fmt.Errorf("reaching nftables: %w", err))
			continue
		}
		if there, err := isThere(conn, name); err == nil && !there {
			restored(name, writeAll(conn, name, write))
		}
	}
}
