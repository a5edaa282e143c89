// Package guards restores the programs at interfaces and the kernel settings (sysctl) that isolate
// pods, if another program has removed or changed them. Network managers, udev, hardening scripts
// and administrators do so, mostly without knowing it.
package guards

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/netnews"
)

// The kinds of things that guards restore.
const (
	IngressFilter = "ingress filter"
	EgressFilter  = "egress filter"
	FrameFilter   = "frame filter"
	SwitchProgram = "switch's program"
	Setting       = "setting"
	Table         = "table of nftables"
)

// All lists the kinds of things that guards restore.
var All = []string{IngressFilter, EgressFilter, FrameFilter, SwitchProgram, Setting, Table}

// Report is called after guards have tried to restore something that another program removed or
// changed. If they failed, err is set. where is an interface, a setting's path under /proc/sys/net,
// or a table's name.
type Report func(what, where string, err error)

// Every is the interval at which Watch calls its function look. The kernel reports neither the
// removal of a program from tcx nor most changes of settings.
const Every = 5 * time.Second

// rest is the minimum time between two checks after reported changes. It is needed because other
// programs also change filters, and some of them undo a restoration again and again.
const rest = time.Second

// Watch calls look at once, and then until ctx ends: at intervals of Every, and soon after the
// kernel reports a change. The kernel reports changes of settings, filters and qdiscs in the
// calling thread's network namespace. Watch returns after the first call of look. Calls of look
// never overlap.
func Watch(ctx context.Context, log *slog.Logger, look func()) error {
	var mu sync.Mutex
	locked := func() {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			look()
		}
	}
	groups := []uint{unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_TC}
	concerns := func(m syscall.NetlinkMessage) bool {
		switch m.Header.Type {
		case unix.RTM_NEWNETCONF, unix.RTM_DELTFILTER, unix.RTM_DELQDISC:
			return true
		}
		return false
	}
	changed := func() {
		locked()
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
	if err := netnews.Watch(ctx, log, groups, concerns, changed); err != nil {
		return fmt.Errorf("watching settings and filters: %w", err)
	}
	locked()
	go func() {
		tick := time.NewTicker(Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				locked()
			}
		}
	}()
	return nil
}

// Saying returns a Report that logs each restoration. It logs the same failure only once.
func Saying(log *slog.Logger) Report {
	var mu sync.Mutex
	failing := map[[2]string]string{} // errors that were logged, by their subject
	return func(what, where string, err error) {
		mu.Lock()
		defer mu.Unlock()
		about := [2]string{what, where}
		if err == nil {
			delete(failing, about)
			log.Warn("somebody took away or changed what keeps pods apart; it is as it was again", "what", what,
				"where", where)
			return
		}
		if failing[about] != err.Error() {
			failing[about] = err.Error()
			log.Error("somebody took away or changed what keeps pods apart, and it cannot be put back: pods may send "+
				"and take what is not theirs", "what", what, "where", where, "err", err)
		}
	}
}
