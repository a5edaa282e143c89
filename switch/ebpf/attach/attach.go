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

// Attachment is the programs of one port: always at tc, and also at XDP if the port uses XDP. Call
// all its methods on the namespace's thread.
type Attachment struct {
	name    string
	Ifindex int
	At      Hook // HookTC or HookXDP: where frames are met first
	clsact  bool // at tc: attached as a clsact filter instead of through tcx
	// Late makes the filter run after other programs' filters. It has no effect on tcx.
	Late bool
	// After is the name of a program at tcx that runs before this one, if it exists; "": none.
	After string

	tc         link.Link // nil if a clsact filter or nothing is attached
	filter     bool      // a clsact filter is attached
	discipline bool      // clsact was created with the filter
	XDP        link.Link
}

// New makes the Attachment of an interface, with nothing attached yet. It uses tc (with a clsact
// filter if requested) until At is changed.
func New(name string, index int, clsact bool) Attachment {
	return Attachment{name: name, Ifindex: index, At: HookTC, clsact: clsact}
}

// Attached reports whether a program is attached.
func (a *Attachment) Attached() bool { return a.tc != nil || a.filter }

// Change replaces the old pipeline's programs at the port by another pipeline's; xdp is used if the
// port is at XDP. At every moment exactly one program processes a frame completely: frames that the
// old program at XDP has handed over are finished by the old program at tc, which stays attached
// after the new one until finish is called.
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

// attachTCX attaches a program before all others, as at XDP, except for the program named After.
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

// first is the attach position before all other programs except the one named After.
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

// attachXDP attaches a program natively. It replaces a program that a switch has put there for the
// other end of the cable, because this one serves the same purpose.
func attachXDP(ifindex int, prog *ebpf.Program) (link.Link, error) {
	options := link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode}
	l, err := link.AttachXDP(options)
	for range 3 { // the switch at the other end may be attaching its program again
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

// Lost reports whether a program was removed from the port from outside ("bpftool link detach", "tc
// filter del"). Change attaches it again. Checking clsact filters takes time in proportion to their
// number, so the caller decides whether to check them.
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

// ---- clsact: the hook of kernels before 6.6 ----
//
// A filter stays attached when the process that created it dies. It keeps answering reads until the
// read lease that the program checks has expired; package offload then removes it.

// Priorities of filters. A new program runs before the old one as long as frames of the old one are
// still in flight.
const (
	filterNew    = 1
	filterSteady = 2
	filterLate   = 0xb000 // added to both priorities
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
// necessary. finish moves it to the place of the previous program.
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

// removeFilters removes the filter, and clsact if it was created with the filter.
func (a *Attachment) removeFilters() {
	for _, priority := range []uint16{filterNew, filterSteady} {
		// an error is normal: the interface may be gone, and mostly only one of the filters exists
		_ = a.removeFilter(priority)
	}
	a.filter = false
	if l, err := netlink.LinkByIndex(a.Ifindex); err == nil && a.discipline {
		_ = offload.RemoveDiscipline(l)
	}
	a.discipline = false
}
