// Package nftwatch reports deletions of nftables tables. A firewall that is reloaded begins with
// "flush ruleset", which deletes all programs' tables.
package nftwatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Every is the interval at which Watch calls look, even if the kernel has reported no deletion.
const Every = time.Second

// Watch calls look as soon as a program has deleted a table in the calling thread's network
// namespace, and each second, until ctx ends. It returns at once. look runs on a thread in that
// namespace, and is not called any more after ended is closed. Watch needs CAP_NET_ADMIN. It needs
// CAP_SYS_ADMIN only if the process has threads in several namespaces.
func Watch(ctx context.Context, look func()) (ended <-chan struct{}, err error) {
	space, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("watching nftables: %w", err)
	}
	end, watching := make(chan struct{}), make(chan error)
	go func() {
		defer close(end)
		runtime.LockOSThread() // the thread stays locked, so it ends with the goroutine
		deleted, monitor, err := deletions(space)
		watching <- err
		if err == nil {
			watch(ctx, deleted, monitor, look)
		}
	}()
	if err := <-watching; err != nil {
		return nil, fmt.Errorf("watching nftables: %w", err)
	}
	return end, nil
}

// deletions reports the deletions of tables in a network namespace. If necessary, it first moves
// the calling thread to that namespace. It closes the handle.
func deletions(space netns.NsHandle) (chan *nftables.MonitorEvent, *nftables.Monitor, error) {
	defer space.Close()
	here, err := netns.Get()
	if err != nil {
		return nil, nil, err
	}
	defer here.Close()
	if !here.Equal(space) {
		if err := netns.Set(space); err != nil {
			return nil, nil, err
		}
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, nil, err
	}
	monitor := nftables.NewMonitor(nftables.WithMonitorObject(nftables.MonitorObjectTables))
	deleted, err := conn.AddMonitor(monitor)
	return deleted, monitor, err
}

func watch(ctx context.Context, deleted chan *nftables.MonitorEvent, monitor *nftables.Monitor, look func()) {
	again := time.NewTicker(Every)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case _, ok := <-deleted:
			if !ok { // the monitor has ended, so only polling is left
				deleted = nil
			}
			look()
		case <-again.C:
			look()
		}
	}
	_ = monitor.Close()
	if deleted != nil {
		for range deleted { // drain the channel until the monitor's goroutine has ended
		}
	}
}

// Present reports whether tables with the given name exist in all of the families.
func Present(conn *nftables.Conn, name string, families ...nftables.TableFamily) (bool, error) {
	for _, f := range families {
		_, err := conn.ListTableOfFamily(name, f)
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking for the table %s: %w", name, err)
		}
	}
	return true, nil
}
