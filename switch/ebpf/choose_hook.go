package ebpf

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// chooseHook decides whether a port's frames are processed at XDP or at tc. It also prepares the
// peer of a veth.
func (d *device) chooseHook(q *port, l netlink.Link) {
	q.At, q.reason = HookTC, "as asked"
	if d.opts.Hook == HookTC {
		return
	}
	veth, isVeth := l.(*netlink.Veth)
	if isVeth && d.opts.Hook == HookAuto {
		q.reason = "on a veth tc is as fast as XDP and needs nothing of the peer"
		return
	}
	if f, err := d.features(q.Ifindex); err != nil || f&netlinkdump.RunsXDP == 0 {
		d.atTC(q, fmt.Sprintf("the driver of %s does not run XDP programs natively", q.Iface))
		return
	}
	if isVeth {
		p, err := attach.PreparePeer(d.netns, veth)
		if err != nil {
			d.atTC(q, err.Error())
			return
		}
		q.peer = p
	}
	q.At, q.reason = HookXDP, "the driver runs it natively"
}

// atTC switches a port to tc although XDP was requested, and logs the reason.
func (d *device) atTC(q *port, why string) {
	q.At, q.reason = HookTC, why
	if d.opts.Hook == HookXDP {
		d.log.Warn("the port is served at tc, not at XDP", "port", q.Number, "iface", q.Iface,
			"why", why)
	}
	if q.peer != nil {
		q.peer.Release()
		q.peer = nil
	}
}

// features returns the XDP features of an interface, which it asks from the kernel's netdev family
// (Linux 6.3).
func (d *device) features(ifindex int) (f uint64, err error) {
	err = d.netns.Do(func() error {
		f, err = netlinkdump.XDPFeatures(ifindex)
		return err
	})
	return f, err
}

// refresh finds out whether XDP programs may send through a port. Two conditions must hold. The
// device must accept frames from XDP programs (a veth does while its peer polls). The device must
// not have a configured queueing discipline (rate, delay or loss), because XDP would bypass it.
// Otherwise frames leave through tc. If refresh cannot find out, nothing changes.
func (d *device) refresh(q *port) {
	if d.opts.Hook == HookTC || q.missing {
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
	case f&netlinkdump.TakesXDP != 0 && !shaped:
		d.PortMap.SetXDP(q.Number, q.Ifindex)
	default:
		d.PortMap.SetXDP(q.Number, 0)
	}
}

// shaped reports whether somebody configured a queueing discipline on an interface.
func (d *device) shaped(ifindex int) (yes bool, err error) {
	err = d.netns.Do(func() error {
		yes, err = attach.Shaped(ifindex)
		return err
	})
	return yes, err
}
