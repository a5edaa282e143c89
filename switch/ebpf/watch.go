package ebpf

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/offload"
)

// chooseHook decides where a port's frames are met, and prepares the peer of a veth.
func (d *device) chooseHook(q *port, l netlink.Link) {
	q.At, q.why = HookTC, "as asked"
	if d.opts.Hook == HookTC {
		return
	}
	veth, isVeth := l.(*netlink.Veth)
	if isVeth && d.opts.Hook == HookAuto {
		q.why = "on a veth tc is as fast as XDP and needs nothing of the peer"
		return
	}
	if f, err := d.features(q.Ifindex); err != nil || f&attach.RunsXDP == 0 {
		d.atTC(q, fmt.Sprintf("the driver of %s does not run XDP programs natively", q.Iface))
		return
	}
	if isVeth {
		p, err := attach.PreparePeer(d.home, veth)
		if err != nil {
			d.atTC(q, err.Error())
			return
		}
		q.peer = p
	}
	q.At, q.why = HookXDP, "the driver runs it natively"
}

// atTC makes tc the hook of a port for which XDP was asked.
func (d *device) atTC(q *port, why string) {
	q.At, q.why = HookTC, why
	if d.opts.Hook == HookXDP {
		d.log.Warn("the port is served at tc, not at XDP", "port", q.Number, "iface", q.Iface, "why", why)
	}
	if q.peer != nil {
		q.peer.Release()
		q.peer = nil
	}
}

// features are the XDP features of an interface, as the kernel's netdev family tells them (Linux 6.3).
func (d *device) features(ifindex int) (f uint64, err error) {
	err = d.home.Do(func() error {
		f, err = attach.XDPFeatures(ifindex)
		return err
	})
	return f, err
}

// refresh says whether XDP programs may send by a port: its device takes frames from them (a veth while its peer polls), and nobody has given it a queueing discipline
// that they would go past, for a rate, a delay or a loss. Else the frames go by tc. Where it cannot be found out all stays as it is.
func (d *device) refresh(q *port) {
	if d.opts.Hook == HookTC || q.gone {
		d.PortMap.SetXDP(q.Number, 0)
		return
	}
	f, err := d.features(q.Ifindex)
	if err != nil {
		return
	}
	shaped, err := d.shaped(q.Ifindex)
	switch {
	case err != nil:
	case f&attach.TakesXDP != 0 && !shaped:
		d.PortMap.SetXDP(q.Number, q.Ifindex)
	default:
		d.PortMap.SetXDP(q.Number, 0)
	}
}

// shaped reports whether an interface has a queueing discipline that somebody has chosen.
func (d *device) shaped(ifindex int) (yes bool, err error) {
	err = d.home.Do(func() error {
		yes, err = attach.Shaped(ifindex)
		return err
	})
	return yes, err
}

// watcher sees to it that what was attached stays attached: interfaces go and come back, and peers lose the program that another switch had there.
type watcher struct {
	changes chan netlink.LinkUpdate
	end     chan struct{}
	ended   sync.WaitGroup
	once    sync.Once
}

// lookEvery is how often all ports are looked at even if the kernel reports no change: what happens to a peer elsewhere is not reported.
const lookEvery = 500 * time.Millisecond

func (d *device) watch() (*watcher, error) {
	w := &watcher{changes: make(chan netlink.LinkUpdate, 256), end: make(chan struct{})}
	if err := d.home.Do(func() error { return netlink.LinkSubscribe(w.changes, w.end) }); err != nil {
		return nil, fmt.Errorf("asking to be told of interfaces that come and go: %w", err)
	}
	w.ended.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		changes := w.changes
		var lost uint64
		for {
			select {
			case <-w.end:
				return
			case _, ok := <-changes:
				if !ok {
					changes = nil // the subscription has ended: the clock goes on
				}
			case <-tick.C:
			}
			d.look()
			if n := d.PortMap.Lost(); n > lost {
				d.log.Warn("frames were lost between XDP and tc", "frames", n-lost)
				lost = n
			}
		}
	})
	return w, nil
}

func (w *watcher) stop() {
	w.once.Do(func() { close(w.end) })
	w.ended.Wait()
}

// look compares the interfaces with the ports.
func (d *device) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	var unknown error
	for _, q := range d.ports {
		index, err := d.indexOf(q.Iface)
		switch {
		case err != nil: // which says nothing about the interface
			unknown = err
		case index == q.Ifindex && !q.gone:
			if q.peer != nil {
				if err := q.peer.Namespace.Do(q.peer.EnsureProgram); err != nil {
					d.log.Debug("the peer of a port", "port", q.Number, "iface", q.Iface, "err", err)
				}
			}
			d.refresh(q)
		case !q.gone:
			d.log.Warn("the interface of a port is gone", "port", q.Number, "iface", q.Iface)
			d.forget(q)
			q.gone = true
			fallthrough
		default:
			if index == 0 {
				continue
			}
			if err := d.open(q); err != nil {
				d.log.Warn("the interface of a port is back, but is no port", "port", q.Number, "iface", q.Iface, "err", err)
				q.gone = true
				continue
			}
			d.log.Info("the interface of a port is back", "port", q.Number, "iface", q.Iface)
		}
	}
	if blind := unknown != nil; blind != d.blind {
		if d.blind = blind; blind {
			d.log.Warn("interfaces cannot be looked at, so ports stay as they are", "err", unknown, "do", offload.Help(unknown))
		} else {
			d.log.Info("interfaces can be looked at again")
		}
	}
}

// indexOf is an interface's index, 0 where there is none of that name.
func (d *device) indexOf(name string) (index int, err error) {
	err = d.home.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			if errors.As(err, &netlink.LinkNotFoundError{}) {
				return nil
			}
			return fmt.Errorf("looking for the interface %s: %w", name, err)
		}
		index = l.Attrs().Index
		return nil
	})
	return index, err
}
