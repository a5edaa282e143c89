package ingressfilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/netdump"
)

// What kernels before 6.6 have in the place of tcx: a filter of the queueing discipline clsact.

// priority is behind that of any switch's filter.
const priority = 0xc000

func filter(ifindex int, name string) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex,
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL,
		Priority: priority},
		Name: name, DirectAction: true}
}

func attachFilter(ifindex int, prog *ebpf.Program) error {
	return attachFilterNamed(ifindex, prog, name)
}

func attachFilterNamed(ifindex int, prog *ebpf.Program, name string) error {
	q := &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("attaching the ingress filter: adding clsact: %w", err)
	}
	f := filter(ifindex, name)
	f.Fd = prog.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("attaching the ingress filter with clsact: %w", err)
	}
	return nil
}

func filterAttached(ifindex int) (bool, error) {
	filters, err := netdump.Whole(func() ([]netlink.Filter, error) {
		return netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}},
			netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return false, fmt.Errorf("looking for an ingress filter at interface %d: %w", ifindex, err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && (b.Name == name || b.Name == formerName) {
			return true, nil
		}
	}
	return false, nil
}

func removeFilter(ifindex int) error {
	if err := netlink.FilterDel(filter(ifindex, name)); err != nil &&
		!errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("taking the ingress filter off: %w", err)
	}
	return nil
}
