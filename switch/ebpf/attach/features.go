package attach

import (
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// plainDisciplines are the default queueing disciplines of interfaces and those that only hold
// filters.
var plainDisciplines = []string{"noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "clsact",
	"ingress"}

// Shaped reports whether somebody configured a queueing discipline on an interface.
func Shaped(ifindex int) (yes bool, err error) {
	l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	disciplines, err := netlinkdump.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(l) })
	for _, q := range disciplines {
		yes = yes || !slices.Contains(plainDisciplines, q.Type())
	}
	return yes, err
}
