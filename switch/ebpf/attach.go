package ebpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachment is the programs of one port: at tc always, at XDP where the port is there, too. All its functions are called on the thread of the namespace.
type attachment struct {
	iface   string
	ifindex int
	hook    hook // where frames are met first
	clsact  bool // at tc by a filter, not by tcx

	tc     link.Link // nil where clsact or nothing is attached
	filter bool
	xdp    link.Link
}

// attached reports whether a program runs.
func (a *attachment) attached() bool { return a.tc != nil || a.filter }

// change makes a pipeline's programs those of the port, in the place of the old pipeline's. At every moment a frame is met by one program that takes it as a whole:
// what the old program at XDP has handed over is finished by the old program at tc, which stays behind the new one until finish is called.
func (a *attachment) change(p *pipeline) (finish func(), err error) {
	finish = func() {}
	switch {
	case a.clsact:
		if err := a.setFilter(p.program); err != nil {
			return finish, err
		}
	case a.tc == nil:
		if a.tc, err = a.attachTCX(p.program, nil); err != nil {
			return finish, err
		}
	case a.xdp == nil:
		if err := a.tc.Update(p.program); err != nil {
			return finish, fmt.Errorf("changing the program at %s: %w", a.iface, err)
		}
	default:
		before := a.tc
		if a.tc, err = a.attachTCX(p.program, link.Head()); err != nil {
			a.tc = before
			return finish, err
		}
		finish = func() { _ = before.Close() }
	}
	if a.hook != hookXDP {
		return finish, nil
	}
	if a.xdp != nil {
		if err := a.xdp.Update(p.xdp); err != nil {
			return finish, fmt.Errorf("changing the program at XDP of %s: %w", a.iface, err)
		}
		return finish, nil
	}
	a.xdp, err = attachXDP(a.ifindex, p.xdp)
	if err != nil {
		return finish, fmt.Errorf("attaching the program to %s: %w", a.iface, err)
	}
	return finish, nil
}

func (a *attachment) attachTCX(prog *ebpf.Program, anchor link.Anchor) (link.Link, error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: a.ifindex, Program: prog, Attach: ebpf.AttachTCXIngress, Anchor: anchor})
	if err != nil {
		return nil, fmt.Errorf("attaching the program to %s: %w", a.iface, err)
	}
	return l, nil
}

// attachXDP attaches a program natively. A program that a switch has put there for the other end of the cable makes room: this one serves the same purpose.
func attachXDP(ifindex int, prog *ebpf.Program) (link.Link, error) {
	options := link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode}
	l, err := link.AttachXDP(options)
	if errors.Is(err, unix.EBUSY) && removePass(ifindex) {
		l, err = link.AttachXDP(options)
	}
	if err != nil {
		return nil, fmt.Errorf("at XDP: %w", err)
	}
	return l, nil
}

// close takes the programs off the port.
func (a *attachment) close() {
	for _, l := range []link.Link{a.xdp, a.tc} {
		if l != nil {
			_ = l.Close()
		}
	}
	a.xdp, a.tc = nil, nil
	if a.filter {
		if err := a.removeFilter(); err == nil || errors.Is(err, unix.ENODEV) {
			a.filter = false
		}
	}
}

// ---- clsact: the hook of kernels before 6.6 ----
//
// A filter stays when the process that made it dies, and answers reads until the read lease that the program checks has run out. So its name says whose it is, and
// whoever starts on the interface next takes away what the dead have left.

const filterPriority, filterHandle = 1, 1

func filterPrefix() string { return "netcraq-" }

func filterName() string { return fmt.Sprintf("%s%d", filterPrefix(), os.Getpid()) }

func (a *attachment) bpfFilter(prog *ebpf.Program) *netlink.BpfFilter {
	f := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: a.ifindex, Parent: netlink.HANDLE_MIN_INGRESS, Handle: filterHandle, Protocol: unix.ETH_P_ALL,
		Priority: filterPriority}, Name: filterName(), DirectAction: true}
	if prog != nil {
		f.Fd = prog.FD()
	}
	return f
}

// setFilter puts the program into the interface's clsact queueing discipline, which is made if need be, in the place of any that is there.
func (a *attachment) setFilter(prog *ebpf.Program) error {
	discipline := &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: a.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(discipline); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding clsact to %s: %w", a.iface, err)
	}
	if err := netlink.FilterReplace(a.bpfFilter(prog)); err != nil {
		return fmt.Errorf("attaching the program to %s with clsact: %w", a.iface, err)
	}
	a.filter = true
	return nil
}

func (a *attachment) removeFilter() error { return netlink.FilterDel(a.bpfFilter(nil)) }

// removeFilters takes away the filters that dead switches have left on an interface.
func removeFilters(ifindex int) error {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return err
	}
	filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return fmt.Errorf("looking for filters of dead switches on %s: %w", l.Attrs().Name, err)
	}
	for _, f := range filters {
		b, ok := f.(*netlink.BpfFilter)
		var pid int
		if !ok {
			continue
		}
		if n, err := fmt.Sscanf(b.Name, filterPrefix()+"%d", &pid); n != 1 || err != nil || pid != os.Getpid() && unix.Kill(pid, 0) == nil {
			continue
		}
		if err := netlink.FilterDel(f); err != nil {
			return fmt.Errorf("removing the filter %q from %s: %w", b.Name, l.Attrs().Name, err)
		}
	}
	return nil
}
