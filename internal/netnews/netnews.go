// Package netnews reports changes of the network from the kernel's rtnetlink(7).
package netnews

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Settle is how long Watch collects notifications before it calls changed.
const Settle = 50 * time.Millisecond

// subscribeAgain is the interval between attempts to subscribe.
const subscribeAgain = 100 * time.Millisecond

// Watch calls changed soon after the kernel has sent a message for which concerns returns true,
// until ctx ends. It returns at once. Watch subscribes to groups (RTNLGRP_...) of the calling
// thread's network namespace. The kernel drops messages for a reader that is too slow. Watch then
// subscribes again and calls changed, because a dropped message may have concerned the caller.
func Watch(ctx context.Context, log *slog.Logger, groups []uint, concerns func(syscall.NetlinkMessage) bool,
	changed func()) error {
	space, err := netns.Get()
	if err != nil {
		return fmt.Errorf("naming the network namespace: %w", err)
	}
	subscribe := func() (*nl.NetlinkSocket, error) {
		return nl.SubscribeAt(space, netns.None(), unix.NETLINK_ROUTE, groups...)
	}
	socket, err := subscribe()
	if err != nil {
		space.Close()
		return fmt.Errorf("subscribing to the kernel's news: %w", err)
	}
	news := make(chan struct{})
	tell := func() {
		select {
		case news <- struct{}{}:
		case <-ctx.Done():
		}
	}
	read := func() { // read receives messages until an error. The error ENOBUFS means that messages were dropped.
		defer socket.Close()
		defer context.AfterFunc(ctx, socket.Close)()
		for {
			messages, _, err := socket.Receive()
			if err != nil {
				log.Debug("the kernel's news were interrupted", "err", err)
				return
			}
			if slices.ContainsFunc(messages, concerns) {
				tell()
			}
		}
	}
	go func() {
		defer space.Close()
		for {
			read()
			for socket = nil; socket == nil; {
				select {
				case <-ctx.Done():
					return
				case <-time.After(subscribeAgain):
				}
				if socket, err = subscribe(); err != nil {
					socket = nil
				}
			}
			tell()
		}
	}()
	go collect(ctx, news, changed)
	return nil
}

// collect calls changed once for all notifications within Settle.
func collect(ctx context.Context, news <-chan struct{}, changed func()) {
	for {
		var due <-chan time.Time
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-news:
				if due == nil {
					due = time.After(Settle)
				}
			case <-due:
				waiting = false
			}
		}
		changed()
	}
}
