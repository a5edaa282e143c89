package offload

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// On a kernel before 6.6, a program at tc is a filter of the interface's clsact queueing
// discipline. The filter stays when its process dies. So the filter's name identifies the process,
// and says whether the process also added the discipline. The next process that starts removes the
// filter and, if so, the discipline.

const ownDiscipline = "-q"

// FilterName returns the name of this process's filters. added is set if the process has also added
// the interface's clsact discipline.
func FilterName(added bool) (string, error) {
	start, err := startOf(os.Getpid())
	if err != nil {
		return "", fmt.Errorf("finding out when this process started: %w", err)
	}
	name := fmt.Sprintf("netcraq-%d-%d", os.Getpid(), start)
	if added {
		name += ownDiscipline
	}
	return name, nil
}

// RemoveFilters removes the filters of dead processes from an interface. The interface is in the
// network namespace of the calling thread.
func RemoveFilters(l netlink.Link) error {
	filters, err := netlinkdump.Whole(func() ([]netlink.Filter, error) {
		return netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
	})
	if err != nil {
		return fmt.Errorf("looking for filters of dead switches on %s: %w", l.Attrs().Name, err)
	}
	for _, f := range filters {
		b, ok := f.(*netlink.BpfFilter)
		if !ok {
			continue
		}
		var who owner
		if n, err := fmt.Sscanf(b.Name, "netcraq-%d-%d", &who.PID, &who.Start); n != 2 ||
			err != nil || who.alive() {
			continue
		}
		if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("removing the filter %q from %s: %w", b.Name, l.Attrs().Name, err)
		}
		if strings.HasSuffix(b.Name, ownDiscipline) {
			if err := RemoveDiscipline(l); err != nil {
				return err
			}
		}
	}
	return nil
}

// Discipline returns an interface's clsact queueing discipline.
func Discipline(ifindex int) *netlink.GenericQdisc {
	return &netlink.GenericQdisc{QdiscType: "clsact",
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT}}
}

// RemoveDiscipline removes clsact from an interface that has no filters left.
func RemoveDiscipline(l netlink.Link) error {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlinkdump.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(l, parent) })
		if err != nil || len(filters) > 0 {
			return err
		}
	}
	if err := netlink.QdiscDel(Discipline(l.Attrs().Index)); err != nil &&
		!errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("removing clsact from %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// removeAllFilters calls RemoveFilters for every interface that has a clsact discipline.
func removeAllFilters() error {
	disciplines, err := netlinkdump.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return fmt.Errorf("looking for filters of dead switches: %w", err)
	}
	var errs []error
	for _, q := range disciplines {
		if q.Type() != "clsact" {
			continue
		}
		if l, err := netlink.LinkByIndex(q.Attrs().LinkIndex); err == nil {
			errs = append(errs, RemoveFilters(l))
		}
	}
	return errors.Join(errs...)
}
