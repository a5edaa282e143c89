package ports

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
)

// linkWatch calls changed with the name of each interface that the kernel reports as changed
// (rtnetlink(7), RTMGRP_LINK). After messages were lost, it calls changed with "".
type linkWatch struct {
	stop chan struct{}
}

func watchLinks(changed func(name string), log *slog.Logger) (*linkWatch, error) {
	w := &linkWatch{stop: make(chan struct{})}
	subscribe := func() (chan netlink.LinkUpdate, error) {
		updates := make(chan netlink.LinkUpdate, 64)
		err := netlink.LinkSubscribeWithOptions(updates, w.stop, netlink.LinkSubscribeOptions{
			ErrorCallback: func(err error) { log.Debug("interface news interrupted", "err", err) },
		})
		return updates, err
	}
	updates, err := subscribe()
	if err != nil {
		return nil, fmt.Errorf("subscribing to interface changes: %w", err)
	}
	go func() {
		for {
			select {
			case <-w.stop:
				return
			case u, ok := <-updates:
				if ok {
					changed(u.Attrs().Name)
					continue
				}
			}
			// The subscription ended, for example, because its buffer overflowed. Messages were
			// lost, so subscribe again and check everything.
			for {
				select {
				case <-w.stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				if updates, err = subscribe(); err == nil {
					break
				}
			}
			changed("")
		}
	}()
	return w, nil
}

func (w *linkWatch) close() { close(w.stop) }

// linkChanged updates the ports on the named interface to the interface's present state. If name is
// "", it updates all ports.
func (s *Set) linkChanged(name string) {
	s.mu.Lock()
	var affected []*port
	for _, p := range s.known {
		if name == "" || p.iface == name {
			affected = append(affected, p)
		}
	}
	s.mu.Unlock()
	for _, p := range affected {
		s.reconcile(p)
	}
}

// lookAgain is the pause before a failed check of a port is repeated.
const lookAgain = 500 * time.Millisecond

// noSuchInterface reports whether the kernel says that no interface has this name. If the request
// itself failed, it returns false.
func noSuchInterface(name string) bool {
	_, err := netlink.LinkByName(name)
	return errors.As(err, &netlink.LinkNotFoundError{})
}

func (s *Set) reconcile(p *port) {
	s.opening.Lock()
	defer s.opening.Unlock()
	link, err := net.InterfaceByName(p.iface)
	if err != nil && !noSuchInterface(p.iface) {
		s.tryAgain(p, "the interface of a port cannot be looked at, so the port stays as it is",
			err)
		return
	}
	reopen := false
	doErr := s.Do(func() {
		switch {
		case err != nil: // the interface no longer exists
			if p.sock != nil {
				s.drop(p)
				p.settings = nil
				s.log.Warn("port is down: its interface disappeared", "port", p.number, "iface",
					p.iface)
			}
		case p.sock == nil:
			s.mu.Lock()
			reopen = s.known[p.number] == p && !s.closing
			s.mu.Unlock()
		case p.sock.index != link.Index: // another interface has this name now
			s.drop(p)
			p.settings = nil
			reopen = true
		case p.sock.maxFrame != link.MTU+l2Overhead:
			// the size of the ring's slots depends on the MTU, which has changed
			s.drop(p)
			reopen = true
		default:
			up := link.Flags&net.FlagUp != 0
			if was := p.up.Swap(up); was != up {
				if up {
					// A socket that was opened while the interface was down is not bound to the
					// interface yet.
					_ = unix.Bind(p.sock.fd,
						&unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL),
							Ifindex: link.Index})
				}
				s.log.Info("port changes", "port", p.number, "iface", p.iface, "up", up)
			}
		}
	})
	if doErr != nil || !reopen {
		p.logged = false
		return
	}
	if err := s.open(p); err != nil {
		s.tryAgain(p, "port stays down", err)
		return
	}
	p.logged = false
	s.log.Info("port is back", "port", p.number, "iface", p.iface)
}

// tryAgain schedules another check of a port. This is necessary because the kernel sends no message
// if nothing changes. tryAgain logs only the first failure.
func (s *Set) tryAgain(p *port, what string, err error) {
	if !p.logged {
		p.logged = true
		s.log.Warn(what, "port", p.number, "iface", p.iface, "err", err, "do", offload.Help(err))
	}
	time.AfterFunc(lookAgain, func() { s.linkChanged(p.iface) })
}
