package ebpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/target"
)

// port is one port with its interface.
type port struct {
	target.Port
	attach.Attachment              // empty while no program is committed
	reason            string       // why the port uses this hook
	peer              *attach.Peer // nil except for a veth at XDP
	// zero and seen are the interface's packet counters: when the interface became the port, and
	// when they were last read.
	zero, seen target.PortCounters
	settings   *offload.Change
	// change of the offload for 802.1Q tags that must be undone; nil unless the port is at XDP
	tags    *offload.Change
	missing bool // set while the interface does not exist
	// set while the switch cannot restore a program that somebody else detached
	unrepaired bool
}

// setInterface assigns an interface to a port. An ifindex of 0 stands for no interface.
func (d *device) setInterface(number uint32, ifindex int) {
	some := ifindex
	for _, q := range d.ports {
		if some == 0 && q.Number != number && !q.missing {
			some = q.Ifindex
		}
	}
	d.PortMap.SetInterface(number, ifindex, some)
}

// attach attaches a pipeline's programs to a port. The caller must call finish once all frames that
// were in flight have left.
func (d *device) attach(q *port, p *runtime.Pipeline) (finish func(), err error) {
	finish = func() {}
	if q.missing {
		return finish, nil
	}
	err = d.netns.Do(func() error {
		finish, err = q.Change(p.TC, p.XDP)
		return err
	})
	if err != nil && q.At == HookXDP && q.XDP == nil && q.Attached() {
		// The driver refused XDP, but tc also works.
		d.atTC(q, err.Error())
		err = nil
	}
	if err == nil {
		d.refresh(q)
	}
	return finish, err
}

// AddPort implements [target.Device].
func (d *device) AddPort(p target.Port) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return attach.ErrClosed
	}
	switch {
	case d.ports[p.Number] != nil:
		return fmt.Errorf("port %d: %w", p.Number, target.ErrExists)
	case p.Number >= memory.MaxPorts-1 || p.Number == d.opts.CPUPort && p.Number != 0 ||
		p.Number == d.opts.DropPort:
		return fmt.Errorf("port %d: the number is taken, or over %d: %w", p.Number,
			memory.MaxPorts-2, target.ErrInvalid)
	}
	q := &port{Port: p}
	if err := d.openPort(q); err != nil {
		return err
	}
	d.ports[p.Number] = q
	return nil
}

// openPort finds a port's interface, prepares it, and attaches the program to it.
func (d *device) openPort(q *port) error {
	var l netlink.Link
	err := d.netns.Do(func() (err error) {
		if l, err = netlink.LinkByName(q.Iface); err != nil {
			return fmt.Errorf("port %d: interface %s: %w", q.Number, q.Iface, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	index := l.Attrs().Index
	if index >= memory.MaxIfindex {
		return fmt.Errorf("port %d: interface %s has the index %d, over %d: %w", q.Number, q.Iface,
			index, memory.MaxIfindex, target.ErrUnsupported)
	}
	for _, r := range d.ports {
		if r != q && r.Ifindex == index {
			return fmt.Errorf("port %d: interface %s is port %d: %w", q.Number, q.Iface, r.Number,
				target.ErrExists)
		}
	}
	q.Attachment = attach.New(q.Iface, index, d.clsact)
	q.Late, q.After = d.opts.LateFilters, d.opts.After
	q.zero, q.missing = countersOf(l), false
	q.seen = q.zero
	_ = d.netns.Do(func() error {
		var err error
		// Generic and large receive offload must be off. Otherwise a program would receive one
		// large frame instead of several frames.
		off := []offload.Setting{offload.GenericReceive, offload.LargeReceive}
		if d.opts.OnlyUDP != 0 {
			off = nil // The host's TCP is faster with its offloads, so they stay on.
		}
		if q.settings, err = offload.Off(q.Iface, index, off...); err != nil {
			d.log.Warn("frames that came in one by one may be seen as one, "+
				"or the setting may outlive a kill",
				"port", q.Number, "iface", q.Iface, "err", err)
		}
		if err := offload.RemoveFilters(l); err != nil {
			d.log.Warn("a dead switch's filter may be left", "port", q.Number, "iface", q.Iface,
				"err", err)
		}
		return nil
	})
	d.chooseHook(q, l)
	if q.At == HookXDP {
		_ = d.netns.Do(func() (err error) {
			if q.tags, err = offload.Off(q.Iface, index, offload.RxVLAN); err != nil {
				d.log.Warn("frames whose 802.1Q tag the device takes off are taken for "+
					"untagged ones at XDP, or the setting may outlive a kill",
					"port", q.Number, "iface", q.Iface, "err", err)
			}
			return nil
		})
	}
	d.PortMap.SetPort(index, q.Number)
	d.setInterface(q.Number, index)
	if d.pipeline != nil {
		if _, err := d.attach(q, d.pipeline); err != nil {
			d.closePort(q)
			return err
		}
	}
	d.log.Info("port", "port", q.Number, "iface", q.Iface, "hook", q.At, "why", q.reason)
	return nil
}

// closePort undoes openPort.
func (d *device) closePort(q *port) {
	d.setInterface(q.Number, 0)
	d.PortMap.SetXDP(q.Number, 0)
	d.PortMap.SetPort(q.Ifindex, runtime.NoPort)
	_ = d.netns.Do(func() error {
		q.Close()
		if err := errors.Join(q.settings.Restore(), q.tags.Restore()); err != nil {
			d.log.Warn("an interface's settings are not as they were", "iface", q.Iface, "err", err)
		}
		return nil
	})
	if q.peer != nil {
		q.peer.Release()
		q.peer = nil
	}
}

// RemovePort implements [target.Device].
func (d *device) RemovePort(number uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.ports[number]
	if q == nil {
		return fmt.Errorf("port %d: %w", number, target.ErrNotFound)
	}
	if !q.missing {
		d.closePort(q)
	}
	delete(d.ports, number)
	return nil
}

func countersOf(l netlink.Link) target.PortCounters {
	s := l.Attrs().Statistics
	if s == nil {
		return target.PortCounters{}
	}
	return target.PortCounters{RxPackets: s.RxPackets, RxBytes: s.RxBytes, TxPackets: s.TxPackets,
		TxBytes: s.TxBytes, TxDropped: s.TxDropped}
}

// Ports implements [target.Device]. It counts an interface's packets from the time at which the
// interface became a port.
func (d *device) Ports() map[target.Port]target.PortCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[target.Port]target.PortCounters{}
	_ = d.netns.Do(func() error {
		for _, q := range d.ports {
			if l, err := netlink.LinkByIndex(q.Ifindex); err == nil {
				q.seen = countersOf(l)
			}
			c := q.seen
			out[q.Port] = target.PortCounters{RxPackets: c.RxPackets - q.zero.RxPackets,
				RxBytes:   c.RxBytes - q.zero.RxBytes,
				TxPackets: c.TxPackets - q.zero.TxPackets, TxBytes: c.TxBytes - q.zero.TxBytes,
				TxDropped: c.TxDropped - q.zero.TxDropped}
		}
		return nil
	})
	return out
}
