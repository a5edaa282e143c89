package ebpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
)

// XDP features of a device (linux/netdev.h, enum netdev_xdp_act).
const (
	xdpBasic = 1 // it runs programs natively
	xdpXmit  = 4 // it takes frames from XDP programs, its own and those of others
)

// chooseHook decides where a port's frames are met, and prepares the peer of a veth.
func (d *device) chooseHook(q *port, l netlink.Link) {
	q.hook, q.why = hookTC, "as asked"
	if d.opts.Hook == HookTC {
		return
	}
	veth, isVeth := l.(*netlink.Veth)
	if isVeth && d.opts.Hook == HookAuto {
		q.why = "on a veth tc is as fast as XDP and needs nothing of the peer"
		return
	}
	if f, err := d.features(q.ifindex); err != nil || f&xdpBasic == 0 {
		d.atTC(q, fmt.Sprintf("the driver of %s does not run XDP programs natively", q.Iface))
		return
	}
	if isVeth {
		p, err := preparePeer(d.home, veth)
		if err != nil {
			d.atTC(q, err.Error())
			return
		}
		q.peer = p
	}
	q.hook, q.why = hookXDP, "the driver runs it natively"
}

// atTC makes tc the hook of a port for which XDP was asked.
func (d *device) atTC(q *port, why string) {
	q.hook, q.why = hookTC, why
	if d.opts.Hook == HookXDP {
		d.log.Warn("the port is served at tc, not at XDP", "port", q.Number, "iface", q.Iface, "why", why)
	}
	if q.peer != nil {
		q.peer.release()
		q.peer = nil
	}
}

// features are the XDP features of an interface, as the kernel's netdev family tells them (Linux 6.3).
func (d *device) features(ifindex int) (f uint64, err error) {
	err = d.home.do(func() error {
		f, err = xdpFeatures(ifindex)
		return err
	})
	return f, err
}

func xdpFeatures(ifindex int) (uint64, error) {
	const (
		devGet          = 1 // NETDEV_CMD_DEV_GET
		attrIfindex     = 1 // NETDEV_A_DEV_IFINDEX
		attrXDPFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
	)
	family, err := netdevFamily()
	if err != nil {
		return 0, fmt.Errorf("asking for XDP features (Linux 6.3): %w", err)
	}
	value, err := askGeneric(family, devGet, nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(ifindex))), attrXDPFeatures)
	if err != nil {
		return 0, fmt.Errorf("asking for the XDP features of interface %d: %w", ifindex, err)
	}
	if len(value) != 8 {
		return 0, nil
	}
	return nl.NativeEndian().Uint64(value), nil
}

// netdevFamily is the number of the kernel's netdev family.
var netdevFamily = sync.OnceValues(func() (int, error) {
	value, err := askGeneric(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated("netdev")), unix.CTRL_ATTR_FAMILY_ID)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the kernel's netdev family: %w", err)
	case len(value) != 2:
		return 0, errors.New("the kernel's netdev family has no number")
	}
	return int(nl.NativeEndian().Uint16(value)), nil
})

// askGeneric sends a command with one attribute to a family of generic netlink, and gives an attribute of the answer; nil if it has none. The header is written out here: nl.Genlmsg
// takes its reserved bytes from whatever is behind it in memory.
func askGeneric(family int, command byte, with *nl.RtAttr, want uint16) ([]byte, error) {
	req := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
	req.AddRawData(append([]byte{command, 1, 0, 0}, with.Serialize()...))
	answers, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		for _, attr := range attrs {
			if attr.Attr.Type == want {
				return attr.Value, nil
			}
		}
	}
	return nil, nil
}

// refresh says whether XDP programs may send by a port: its device takes frames from them (a veth while its peer polls), and nobody has given it a queueing discipline
// that they would go past, for a rate, a delay or a loss. Else the frames go by tc. Where it cannot be found out all stays as it is.
func (d *device) refresh(q *port) {
	if d.opts.Hook == HookTC || q.gone {
		d.setXDP(q.Number, 0)
		return
	}
	f, err := d.features(q.ifindex)
	if err != nil {
		return
	}
	shaped, err := d.shaped(q.ifindex)
	switch {
	case err != nil:
	case f&xdpXmit != 0 && !shaped:
		d.setXDP(q.Number, q.ifindex)
	default:
		d.setXDP(q.Number, 0)
	}
}

// plainDisciplines are those that interfaces have by themselves, and those that hold programs.
var plainDisciplines = []string{"noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "clsact", "ingress"}

// shaped reports whether an interface has a queueing discipline that somebody has chosen.
func (d *device) shaped(ifindex int) (yes bool, err error) {
	err = d.home.do(func() error {
		disciplines, err := netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}})
		for _, q := range disciplines {
			yes = yes || !slices.Contains(plainDisciplines, q.Type())
		}
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
	if err := d.home.do(func() error { return netlink.LinkSubscribe(w.changes, w.end) }); err != nil {
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
			if n := d.portMap.load(portsLost); n > lost {
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
		case index == q.ifindex && !q.gone:
			if q.peer != nil {
				if err := q.peer.space.do(q.peer.ensurePass); err != nil {
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
	err = d.home.do(func() error {
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
