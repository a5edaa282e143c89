package ingressfilter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/netlinkdump"
	"github.com/netcraq/netcraq/switch/offload"
)

// Kernels before 6.6 have no tcx. On these kernels the filter is a tc filter of the qdisc clsact.

// priority is the tc priority of the filter. It comes after the filter of any switch.
const priority = 0xc000

func (s side) filter(ifindex int, name string) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex,
		Parent: s.parent, Handle: 1, Protocol: unix.ETH_P_ALL,
		Priority: priority},
		Name: name, DirectAction: true}
}

func (s side) attachFilter(ifindex int, prog *ebpf.Program) error {
	return s.attachFilterNamed(ifindex, prog, s.name)
}

// Handles that mark a filter for which Attach made clsact. When such a filter is removed, clsact is
// removed, too. The kernel changes a queue length of 0 when a qdisc is added. The second handle
// says that this change must also be undone.
const (
	madeDiscipline      = 2
	madeDisciplineQueue = 3
)

func (s side) attachFilterNamed(ifindex int, prog *ebpf.Program, name string) error {
	f := s.filter(ifindex, name)
	handle := uint32(madeDiscipline)
	if l, err := netlink.LinkByIndex(ifindex); err == nil && l.Attrs().TxQLen == 0 {
		handle = madeDisciplineQueue
	}
	switch err := netlink.QdiscAdd(offload.Discipline(ifindex)); {
	case err == nil:
		f.Handle = handle
	case !errors.Is(err, unix.EEXIST):
		return fmt.Errorf("attaching the ingress filter: adding clsact: %w", err)
	}
	old, err := s.findFilter(ifindex)
	if err != nil {
		return err
	}
	if old != nil {
		f.Handle = old.Handle
	}
	f.Fd = prog.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("attaching the ingress filter with clsact: %w", err)
	}
	return nil
}

// findFilter returns the tc filter at an interface, or nil.
func (s side) findFilter(ifindex int) (*netlink.BpfFilter, error) {
	filters, err := netlinkdump.Whole(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}},
			s.parent)
	})
	if err != nil {
		return nil, fmt.Errorf("looking for an ingress filter at interface %d: %w", ifindex, err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && slices.Contains(s.names(), b.Name) {
			return b, nil
		}
	}
	return nil, nil
}

func (s side) filterAttached(ifindex int) (bool, error) {
	f, err := s.findFilter(ifindex)
	return f != nil, err
}

// removeFilter removes the tc filter. It also removes clsact if Attach made it and no other filters
// use it.
func (s side) removeFilter(ifindex int) error {
	f, err := s.findFilter(ifindex)
	if f == nil || err != nil {
		return err
	}
	if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("taking the ingress filter off: %w", err)
	}
	if f.Handle != madeDiscipline && f.Handle != madeDisciplineQueue {
		return nil
	}
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil // the interface has gone, and so have its filters
	}
	if err := offload.RemoveDiscipline(l); err != nil || f.Handle != madeDisciplineQueue {
		return err
	}
	if err := netlink.LinkSetTxQLen(l, 0); err != nil {
		return fmt.Errorf("giving %s back the queue length that it had: %w", l.Attrs().Name, err)
	}
	return nil
}
