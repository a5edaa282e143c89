package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/netlinkdump"
	"github.com/netcraq/netcraq/switch/offload"
)

// Attachment manages the programs that are attached to one port: always at tc, and also at XDP if
// the port uses XDP. Its methods must be called on the namespace's thread.
type Attachment struct {
	name    string
	Ifindex int
	At      Hook // the hook that processes frames first: HookTC or HookXDP
	clsact  bool // at tc, use a clsact filter instead of tcx
	// Late makes the clsact filter run after other programs' filters. It has no effect on tcx.
	Late bool
	// After is the name of another program at tcx, or "". If that program exists, this port's
	// program runs after it.
	After string

	tc         link.Link // nil if the program is a clsact filter or is not attached
	filter     bool      // set if a clsact filter is attached
	discipline bool      // set if the filter's clsact queueing discipline was created with it
	XDP        link.Link
}

// New creates the Attachment of an interface, with no program attached yet. It uses tc until the
// caller changes At. If clsact is set, it attaches a clsact filter to tc.
func New(name string, index int, clsact bool) Attachment {
	return Attachment{name: name, Ifindex: index, At: HookTC, clsact: clsact}
}

// Attached reports whether a program is attached at tc.
func (a *Attachment) Attached() bool { return a.tc != nil || a.filter }

// Change replaces the attached programs by those of another pipeline. It uses xdp only if the port
// is at XDP. At every moment exactly one pipeline processes a frame completely. The old tc program
// stays attached after the new one until finish is called, because it must finish frames that the
// old XDP program has passed on.
func (a *Attachment) Change(tc, xdp *ebpf.Program) (finish func(), err error) {
	finish = func() {}
	switch {
	case a.clsact:
		if finish, err = a.setFilter(tc); err != nil {
			return finish, err
		}
	case a.tc == nil:
		if a.tc, err = a.attachTCX(tc); err != nil {
			return finish, err
		}
	case a.XDP == nil:
		if err := a.tc.Update(tc); err != nil {
			return finish, fmt.Errorf("changing the program at %s: %w", a.name, err)
		}
	default:
		before := a.tc
		if a.tc, err = a.attachTCX(tc); err != nil {
			a.tc = before
			return finish, err
		}
		finish = func() { _ = before.Close() }
	}
	if a.At != HookXDP {
		return finish, nil
	}
	if a.XDP != nil {
		if err := a.XDP.Update(xdp); err != nil {
			return finish, fmt.Errorf("changing the program at XDP of %s: %w", a.name, err)
		}
		return finish, nil
	}
	a.XDP, err = attachXDP(a.Ifindex, xdp)
	if err != nil {
		return finish, fmt.Errorf("attaching the program to %s: %w", a.name, err)
	}
	return finish, nil
}

// attachTCX attaches a program to tcx. The program runs before all other programs, as it would at
// XDP, except the program named After.
func (a *Attachment) attachTCX(prog *ebpf.Program) (link.Link, error) {
	anchor, err := a.first()
	if err != nil {
		return nil, err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: a.Ifindex, Program: prog,
		Attach: ebpf.AttachTCXIngress, Anchor: anchor})
	if err != nil {
		return nil, fmt.Errorf("attaching the program to %s: %w", a.name, err)
	}
	return l, nil
}

// first returns the tcx position before all other programs except the one named After.
func (a *Attachment) first() (link.Anchor, error) {
	if a.After == "" {
		return link.Head(), nil
	}
	there, err := Named(a.Ifindex, a.After)
	if err != nil || len(there) == 0 {
		return link.Head(), err
	}
	return link.AfterProgramByID(there[0]), nil
}

// attachXDP attaches a program natively at XDP. It replaces the program that another switch
// attached for the other end of the cable, because the new program serves the same purpose.
func attachXDP(ifindex int, prog *ebpf.Program) (link.Link, error) {
	options := link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode}
	l, err := link.AttachXDP(options)
	for range 3 { // The switch at the other end may attach its program again in the meantime.
		if !errors.Is(err, unix.EBUSY) || !removePass(ifindex) {
			break
		}
		l, err = link.AttachXDP(options)
	}
	if err != nil {
		return nil, fmt.Errorf("at XDP: %w", err)
	}
	return l, nil
}

// Lost reports whether somebody else detached a program from the port ("bpftool link detach", "tc
// filter del"). Change attaches the program again. Checking clsact filters takes time in proportion
// to their number, so the caller decides whether to check them.
func (a *Attachment) Lost(filters bool) (lost bool, err error) {
	for _, l := range []*link.Link{&a.tc, &a.XDP} {
		if *l == nil {
			continue
		}
		info, err := (*l).Info()
		if err != nil {
			return lost, fmt.Errorf("looking at the program of %s: %w", a.name, err)
		}
		tcx, xdp := info.TCX(), info.XDP()
		if tcx != nil && tcx.Ifindex == 0 || xdp != nil && xdp.Ifindex == 0 {
			_ = (*l).Close()
			*l, lost = nil, true
		}
	}
	if !filters || !a.filter {
		return lost, nil
	}
	if a.filter, err = a.findFilter(); err != nil {
		a.filter = true
		return lost, err
	}
	return lost || !a.filter, nil
}

// Close detaches the programs from the port.
func (a *Attachment) Close() {
	for _, l := range []link.Link{a.XDP, a.tc} {
		if l != nil {
			_ = l.Close()
		}
	}
	a.XDP, a.tc = nil, nil
	if a.filter {
		a.removeFilters()
	}
}

// clsact is the hook of kernels before 6.6.
//
// A filter stays attached when the process that created it dies. The filter keeps answering reads
// until the read lease that its program checks has expired. Package offload removes the filter when
// the next switch starts.

// Priorities of clsact filters. A new program runs before the old one as long as frames of the old
// program are in flight.
const (
	filterNew    = 1
	filterSteady = 2
	filterLate   = 0xb000 // added to both priorities if Attachment.Late is set
)

func (a *Attachment) bpfFilter(priority uint16, prog *ebpf.Program) (*netlink.BpfFilter, error) {
	name, err := offload.FilterName(a.discipline)
	if err != nil {
		return nil, err
	}
	if a.Late {
		priority += filterLate
	}
	f := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: a.Ifindex,
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL,
		Priority: priority},
		Name: name, DirectAction: true}
	if prog != nil {
		f.Fd = prog.FD()
	}
	return f, nil
}

// setFilter adds the program to the interface's clsact queueing discipline, which it creates if
// necessary. finish gives the new filter the priority of the old one.
func (a *Attachment) setFilter(prog *ebpf.Program) (finish func(), err error) {
	finish = func() {}
	switch err := netlink.QdiscAdd(offload.Discipline(a.Ifindex)); {
	case err == nil:
		a.discipline = true
	case !errors.Is(err, unix.EEXIST):
		return finish, fmt.Errorf("adding clsact to %s: %w", a.name, err)
	}
	put := func(priority uint16) error {
		f, err := a.bpfFilter(priority, prog)
		if err == nil {
			err = netlink.FilterReplace(f)
		}
		if err != nil {
			return fmt.Errorf("attaching the program to %s with clsact: %w", a.name, err)
		}
		return nil
	}
	if !a.filter {
		err := put(filterSteady)
		a.filter = err == nil
		return finish, err
	}
	if err := put(filterNew); err != nil {
		return finish, err
	}
	return func() {
		if put(filterSteady) == nil {
			_ = a.removeFilter(filterNew)
		}
	}, nil
}

// findFilter reports whether the interface has a filter of this process.
func (a *Attachment) findFilter() (bool, error) {
	name, err := offload.FilterName(a.discipline)
	if err != nil {
		return false, err
	}
	filters, err := netlinkdump.Whole(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: a.Ifindex}},
			netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return false, fmt.Errorf("looking for the program's filter at %s: %w", a.name, err)
	}
	return slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		b, ok := f.(*netlink.BpfFilter)
		return ok && b.Name == name
	}), nil
}

func (a *Attachment) removeFilter(priority uint16) error {
	f, err := a.bpfFilter(priority, nil)
	if err != nil {
		return err
	}
	return netlink.FilterDel(f)
}

// removeFilters removes the filters of this process. It also removes the clsact queueing discipline
// if it was created with the filter.
func (a *Attachment) removeFilters() {
	for _, priority := range []uint16{filterNew, filterSteady} {
		// Errors are normal here: the interface may no longer exist, and usually only one of the
		// filters exists.
		_ = a.removeFilter(priority)
	}
	a.filter = false
	if l, err := netlink.LinkByIndex(a.Ifindex); err == nil && a.discipline {
		_ = offload.RemoveDiscipline(l)
	}
	a.discipline = false
}
