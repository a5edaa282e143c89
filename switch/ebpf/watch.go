package ebpf

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/offload"
)

// watcher keeps programs attached to their interfaces. Interfaces disappear and come back, and a
// veth peer can lose the program that another switch attached.
type watcher struct {
	changes chan netlink.LinkUpdate
	end     chan struct{}
	ended   sync.WaitGroup
	once    sync.Once
}

// reconcileInterval is how often the switch checks all ports even if the kernel reports no change.
// The kernel does not report changes of a peer in another namespace.
const reconcileInterval = 500 * time.Millisecond

func (d *device) watch() (*watcher, error) {
	w := &watcher{changes: make(chan netlink.LinkUpdate, 256), end: make(chan struct{})}
	if err := d.netns.Do(func() error {
		return netlink.LinkSubscribe(w.changes,
			w.end)
	}); err != nil {
		return nil, fmt.Errorf("asking to be told of interfaces that come and go: %w", err)
	}
	w.ended.Go(func() {
		tick := time.NewTicker(reconcileInterval)
		defer tick.Stop()
		changes := w.changes
		var lost, unsaid uint64
		for {
			select {
			case <-w.end:
				return
			case _, ok := <-changes:
				if !ok {
					changes = nil // the subscription has ended, but the ticker continues
				}
			case <-tick.C:
			}
			d.reconcile()
			if n := d.PortMap.Lost(); n > lost {
				d.log.Warn("frames were lost between XDP and tc", "frames", n-lost)
				lost = n
			}
			if p := d.committed.Load(); p != nil {
				n := p.LostMessages()
				if n > unsaid {
					d.log.Warn("what the program said with log_msg was lost: it says more than can be logged",
						"messages", n-unsaid)
				}
				unsaid = n
			}
			if d.opts.general {
				continue
			}
			if err := d.specialise(false); err != nil {
				d.log.Warn("the program is not made for what its tables hold", "err", err)
			}
			if err := d.stripeIfMeeting(); err != nil {
				d.log.Warn("registers are not locked by stripes", "err", err)
			}
		}
	})
	return w, nil
}

func (w *watcher) stop() {
	w.once.Do(func() { close(w.end) })
	w.ended.Wait()
}

// repair attaches a port's programs again if somebody else has detached one.
func (d *device) repair(q *port) {
	if d.pipeline == nil {
		return
	}
	var lost bool
	err := d.netns.Do(func() (err error) {
		lost, err = q.Lost(d.looks%filterLooks == 0)
		return err
	})
	if err != nil {
		d.log.Debug("the programs of a port cannot be looked at", "port", q.Number, "iface", q.Iface, "err", err)
	}
	if !lost && !q.unrepaired {
		return
	}
	finish, err := d.attach(q, d.pipeline)
	_ = d.netns.Do(func() error { finish(); return nil })
	if d.opts.Restored != nil && (err == nil || !q.unrepaired) {
		d.opts.Restored(q.Iface, err)
	}
	if err != nil {
		if !q.unrepaired {
			d.log.Error("somebody has taken the switch's program off a port, and it cannot be put back", "port",
				q.Number, "iface", q.Iface, "err", err)
		}
		q.unrepaired = true
		return
	}
	q.unrepaired = false
	d.log.Warn("somebody has taken the switch's program off a port; it is there again", "port", q.Number,
		"iface", q.Iface)
}

// filterLooks is the number of port checks per check of clsact's filters, which takes longer.
const filterLooks = 10

// reconcile compares the existing interfaces with the ports and corrects differences.
func (d *device) reconcile() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.looks++
	var unknown error
	for _, q := range d.ports {
		index, err := d.indexOf(q.Iface)
		switch {
		case err != nil: // The lookup failed, so nothing is known about the interface.
			unknown = err
		case index == q.Ifindex && !q.missing:
			if q.peer != nil {
				if err := q.peer.Namespace.Do(q.peer.EnsureProgram); err != nil {
					d.log.Debug("the peer of a port", "port", q.Number, "iface", q.Iface, "err",
						err)
				}
			}
			d.repair(q)
			d.refresh(q)
		case !q.missing:
			d.log.Warn("the interface of a port is gone", "port", q.Number, "iface", q.Iface)
			d.closePort(q)
			q.missing = true
			fallthrough
		default:
			if index == 0 {
				continue
			}
			if err := d.openPort(q); err != nil {
				d.log.Warn("the interface of a port is back, but is no port", "port", q.Number,
					"iface", q.Iface, "err", err)
				q.missing = true
				continue
			}
			d.log.Info("the interface of a port is back", "port", q.Number, "iface", q.Iface)
		}
	}
	if blind := unknown != nil; blind != d.lookupsFail {
		if d.lookupsFail = blind; blind {
			d.log.Warn("interfaces cannot be looked at, so ports stay as they are", "err", unknown,
				"do", offload.Help(unknown))
		} else {
			d.log.Info("interfaces can be looked at again")
		}
	}
}

// indexOf returns the index of an interface by its name, or 0 if there is no such interface.
func (d *device) indexOf(name string) (index int, err error) {
	err = d.netns.Do(func() error {
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
