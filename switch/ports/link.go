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

// linkWatch calls changed with the name of each interface about which the kernel has news
// (rtnetlink(7), RTMGRP_LINK), and with "" when news were lost.
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
			// The subscription ended (for example because its buffer overflowed): subscribe again,
			// and check everything, because some news is lost.
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

// linkChanged brings the ports on the named interface (all, if "") in line with the interface's
// present state.
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

// lookAgain is when to retry a port whose check has failed.
const lookAgain = 500 * time.Millisecond

// noSuchInterface says whether the kernel has said that there is no interface of that name, as
// against not saying anything.
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
		case err != nil: // gone
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
		case p.sock.index != link.Index: // another interface has the name now
			s.drop(p)
			p.settings = nil
			reopen = true
		case p.sock.maxFrame != link.MTU+l2Overhead: // the ring's slots are made for the MTU
			s.drop(p)
			reopen = true
		default:
			up := link.Flags&net.FlagUp != 0
			if was := p.up.Swap(up); was != up {
				if up {
					// A socket that was opened while the interface was down is not bound to it.
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

// tryAgain looks at a port again in a moment, since the kernel says nothing more if nothing
// changes. It is logged once.
func (s *Set) tryAgain(p *port, what string, err error) {
	if !p.logged {
		p.logged = true
		s.log.Warn(what, "port", p.number, "iface", p.iface, "err", err, "do", offload.Help(err))
	}
	time.AfterFunc(lookAgain, func() { s.linkChanged(p.iface) })
}
