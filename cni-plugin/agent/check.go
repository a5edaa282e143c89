package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// Check compares an attachment with its record and with the result of ADD. Its error names every
// difference.
func (a *Agent) Check(req *agentapi.Check) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return agentapi.Errorf(agentapi.CodeTryAgain, "the node agent is not ready: %s", a.reason)
	}
	r := a.records[hostName(req.Attachment)]
	if r == nil {
		return agentapi.Errorf(agentapi.CodeUnknownContainer, "%s is not attached", req.Attachment)
	}
	space, err := openContainer(req.Namespace)
	if err != nil {
		return err
	}
	defer space.close()
	var wrong []string
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if r.Chained {
		a.checkChained(r, req, space, note)
	} else {
		a.checkHost(r, req, note)
		space.check(r, req, note)
	}
	if len(wrong) > 0 {
		return &agentapi.Error{Code: agentapi.CodeNotAsItWas, Message: req.Attachment.String() +
			" is not as it was made", Details: strings.Join(wrong, "; ")}
	}
	return nil
}

// checkLink compares an interface with ADD's result. It prefers the CNI result to the record,
// because a later plugin of the list (for example tuning) may have changed the interface.
func checkLink(l netlink.Link, want, asked agentapi.Interface, lower bool, note func(string, ...any)) {
	at := l.Attrs()
	mtu := want.MTU
	if asked.MAC != "" {
		want.MAC = asked.MAC
	}
	if asked.MTU != 0 {
		want.MTU = asked.MTU
	}
	if at.OperState != netlink.OperUp {
		note("%s is %s", at.Name, at.OperState)
	}
	if mac := at.HardwareAddr.String(); !strings.EqualFold(mac, want.MAC) {
		note("%s has the Ethernet address %s, not %s", at.Name, mac, want.MAC)
	}
	// tuning changes the MTU, but not the MTU in the result.
	if at.MTU != want.MTU && !(lower && want.MTU == mtu && at.MTU < mtu) {
		note("%s has an MTU of %d bytes, not %d", at.Name, at.MTU, want.MTU)
	}
}

func (a *Agent) checkHost(r *agentapi.Record, req *agentapi.Check, note func(string, ...any)) {
	if req.Host.Name != "" && req.Host.Name != r.Host.Name {
		note("the result of ADD names %s, not %s", req.Host.Name, r.Host.Name)
	}
	l, err := linkByName(r.Host.Name)
	if err != nil {
		note("%s: %v", r.Host.Name, err)
		return
	}
	checkLink(l, r.Host, req.Host, false, note)
	checkFilters(l.Attrs().Index, r.Host.Name, note)
	addrs, err := netlinkdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		note("the addresses of %s: %v", r.Host.Name, err)
	}
	for _, addr := range r.Addresses {
		if !hasAddress(addrs, addr.Gateway, addr.Gateway.BitLen()) {
			note("%s does not have the gateway's address %s", r.Host.Name, addr.Gateway)
		}
	}
	routes, err := netlinkdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteList(l,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		note("the routes by %s: %v", r.Host.Name, err)
	}
	for _, addr := range r.Addresses {
		ip := addr.Prefix.Addr()
		if !hasRoute(routes, netip.PrefixFrom(ip, ip.BitLen()), netip.Addr{}) {
			note("the node has no route to %s by %s", ip, r.Host.Name)
		}
	}
}

// checkFilters calls note for each filter that an interface lacks.
func checkFilters(index int, name string, note func(string, ...any)) {
	if there, err := ingressfilter.Attached(index); err != nil || !there {
		note("%s has no ingress filter (%v)", name, err)
	}
	there, err := framefilter.Attached(index)
	if (err != nil || !there) && !errors.Is(err, framefilter.ErrUnsupported) {
		note("%s has no frame filter (%v)", name, err)
	}
}

func (c *container) check(r *agentapi.Record, req *agentapi.Check, note func(string, ...any)) {
	l, err := c.handle.LinkByName(r.Container.Name)
	if err != nil {
		note("the container's %s: %v", r.Container.Name, err)
		return
	}
	checkLink(l, r.Container, req.Container, true, note)
	addrs, err := netlinkdump.Whole(func() ([]netlink.Addr, error) { return c.handle.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		note("the addresses of the container's %s: %v", r.Container.Name, err)
	}
	for _, addr := range req.Addresses {
		if !hasAddress(addrs, addr.Prefix.Addr(), addr.Prefix.Bits()) {
			note("the container's %s does not have the address %s", r.Container.Name, addr.Prefix)
		}
	}
	routes, err := netlinkdump.Whole(func() ([]netlink.Route, error) {
		return c.handle.RouteList(l,
			netlink.FAMILY_ALL)
	})
	if err != nil {
		note("the routes of the container: %v", err)
	}
	for _, d := range req.Routes {
		in, where := routes, ""
		if d.Table != 0 {
			where = fmt.Sprintf(" in its table %d", d.Table)
			if in, err = c.routes(d.Table); err != nil {
				note("the routes of the container%s: %v", where, err)
			}
		}
		if !hasRoute(in, d.Destination, d.Gateway) {
			note("the container has no route to %s%s", d.Destination, where)
		}
	}
	for _, addr := range r.Addresses {
		if !hasRoute(routes, netip.PrefixFrom(addr.Gateway, addr.Gateway.BitLen()), netip.Addr{}) {
			note("the container has no route to its gateway %s", addr.Gateway)
		}
	}
}

func hasAddress(addrs []netlink.Addr, want netip.Addr, bits int) bool {
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if n, _ := a.Mask.Size(); ok && ip.Unmap() == want && n == bits {
			return true
		}
	}
	return false
}

// hasRoute reports whether there is a route to a destination. If by is valid, the route must go
// through this gateway.
func hasRoute(routes []netlink.Route, to netip.Prefix, by netip.Addr) bool {
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		n, _ := r.Dst.Mask.Size()
		if !ok || netip.PrefixFrom(ip.Unmap(), n) != to.Masked() {
			continue
		}
		if gw, ok := netip.AddrFromSlice(r.Gw); !by.IsValid() || ok && gw.Unmap() == by {
			return true
		}
	}
	return false
}
