package podroutes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// ownPrefix is the prefix of the names of all NetCRAQ interfaces.
const ownPrefix = "ncq"

// checkPort returns an error if another program's tunnels use a UDP port of NetCRAQ. The filter for
// that port would drop their packets and cut off the other plugin's pods. So Apply filters nothing
// and makes no tunnels until one of the two uses another port.
func checkPort() error {
	links, err := netlinkdump.Whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		v, ok := l.(*netlink.Vxlan)
		if !ok || strings.HasPrefix(v.Name, ownPrefix) || !slices.Contains([]int{VXLANPort, wire.Port}, v.Port) {
			continue
		}
		errs = append(errs, fmt.Errorf("the tunnel %s, which is another plugin's, takes the UDP port %d, which is NetCRAQ's: "+
			"give it another one on all nodes (8472 is flannel's and Cilium's own, 4789 Calico's; flannel: Backend.Port in "+
			"net-conf.json; Cilium: tunnelPort; Calico: vxlanPort in the FelixConfiguration)", v.Name, v.Port))
	}
	return errors.Join(errs...)
}
