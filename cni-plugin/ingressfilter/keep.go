package ingressfilter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Tables that others delete. A firewall that is loaded anew begins with "flush ruleset", which
// takes away everybody's tables.

// keepEvery is how often Keep looks, whether it was told of a deletion or not.
const keepEvery = time.Second

// made is the tables that this process has written last, by network namespace and name.
var made = struct {
	sync.Mutex
	writes map[string]map[string]func(*table) error
}{writes: map[string]map[string]func(*table) error{}}

// note notes what a table of the calling thread's network namespace is; nil: there is none.
func note(name string, write func(*table) error) error {
	space, err := netns.Get()
	if err != nil {
		return fmt.Errorf("noting the table %s: %w", name, err)
	}
	defer space.Close()
	made.Lock()
	defer made.Unlock()
	id := space.UniqueId()
	if made.writes[id] == nil {
		made.writes[id] = map[string]func(*table) error{}
	}
	made.writes[id][name] = write
	return nil
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
		for _, f := range families() {
			if _, err := conn.ListTableOfFamily(name, f.table); write != nil && errors.Is(err, unix.ENOENT) {
				restored(name, writeAll(conn, name, write))
				break
			}
		}
	}
}
