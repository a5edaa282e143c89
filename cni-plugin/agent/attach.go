package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// Steps of an attachment, in their order.
const (
	stepRecord    = "record"    // the record is written, in state "adding"
	stepPair      = "pair"      // the two interfaces are made, and one of them is in the container
	stepFilter    = "filter"    // the filter is attached, before the interface can receive anything
	stepHost      = "host"      // the node's end gets its alias and the gateway's addresses, and is up
	stepContainer = "container" // the container's end gets its addresses and routes, and is up
	stepRoutes    = "routes"    // the node gets its routes to the container
	stepPort      = "port"      // the interface becomes a port of the switch
	stepReady     = "ready"     // the record is written again, in state "ready"
	stepReply     = "reply"     // the plugin gets the answer
)

// Steps lists the steps of an attachment in their order.
var Steps = []string{stepRecord, stepPair, stepFilter, stepHost, stepContainer, stepRoutes, stepPort, stepReady,
	stepReply}

// Attach gives a container an interface. If it fails, it leaves no trace.
func (a *Agent) Attach(req *agentapi.Attach) (*agentapi.Attached, error) {
	if err := errors.Join(complete(req), a.checkReserved(req.Addresses)); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return nil, agentapi.Errorf(agentapi.CodeTryAgain, "the node agent is not ready: %s", a.reason)
	}
	space, err := openContainer(req.Namespace)
	if err != nil {
		return nil, err
	}
	defer space.close()
	if _, err := space.handle.LinkByName(req.IfName); err == nil {
		return nil, agentapi.Errorf(agentapi.CodeExists, "the container has an interface %s already", req.IfName)
	}
	name := hostName(req.Attachment)
	if old := a.records[name]; old != nil {
		// The old attachment's interface has gone with its namespace, or is in another namespace.
		if err := a.undo(old); err != nil {
			return nil, err
		}
	}
	if err := a.makeWay(req); err != nil {
		return nil, err
	}
	port, err := a.freePort()
	if err != nil {
		return nil, err
	}
	mtu := req.MTU
	if mtu == 0 {
		mtu = a.opts.MTU
	}
	hostMAC, containerMAC := hardwareAddresses(req.Attachment)
	r := &agentapi.Record{Attachment: req.Attachment, Pod: req.Pod, State: agentapi.Adding,
		Namespace: req.Namespace, Port: port, Addresses: req.Addresses, Routes: req.Routes,
		Host:      agentapi.Interface{Name: name, MAC: hostMAC.String(), MTU: mtu},
		Container: agentapi.Interface{Name: req.IfName, MAC: containerMAC.String(), MTU: mtu}}
	a.records[name] = r
	if err := a.make(r, space); err != nil {
		a.discard(r)
		return nil, fmt.Errorf("attaching %s: %w", r.Attachment, err)
	}
	a.changed()
	a.opts.step(stepReply)
	a.log.Info("attached", "attachment", r.Attachment, "iface", name, "port", port, "addresses", r.Addresses)
	return &agentapi.Attached{Host: r.Host, Container: r.Container, Addresses: r.Addresses}, nil
}

// checkReserved refuses addresses from which packets would go to the switch.
func (a *Agent) checkReserved(addresses []agentapi.Address) error {
	for _, x := range addresses {
		for _, p := range a.opts.Reserved {
			if p.Contains(x.Prefix.Addr()) {
				return agentapi.Errorf(agentapi.CodeInvalidConfig, "the container's address %s is in %s, which is NetCRAQ's own: give the agents' --services and --switches, in the chart the values services and switches, prefixes that nothing else in the cluster has", x.Prefix.Addr(), p)
			}
		}
	}
	return nil
}

// makeWay removes an old attachment of the same network that has one of the new attachment's
// addresses. IPAM gives an address to one container at a time. So the plugin believes that the old
// ADD has failed, because the agent was killed before it could answer. The plugin has then given
// the address back, and its DEL is still to come.
func (a *Agent) makeWay(req *agentapi.Attach) error {
	for _, r := range a.records {
		for _, x := range r.Addresses {
			for _, y := range req.Addresses {
				switch {
				case x.Prefix.Addr() != y.Prefix.Addr():
				case r.Network != req.Network:
					return agentapi.Errorf(agentapi.CodeInvalidConfig, "the address %s is that of %s: the ranges of two networks overlap", y.Prefix.Addr(), r.Attachment)
				default:
					a.log.Warn("an attachment whose address was given away goes", "attachment", r.Attachment, "address", x.Prefix.Addr(), "to", req.Attachment)
					if err := a.undo(r); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// complete checks a request and fills in missing gateways.
func complete(req *agentapi.Attach) error {
	invalid := func(format string, args ...any) error {
		return agentapi.Errorf(agentapi.CodeInvalidConfig, "attaching %s: %s", req.Attachment, fmt.Sprintf(format, args...))
	}
	if req.Network == "" || req.ContainerID == "" || req.IfName == "" || req.Namespace == "" {
		return invalid("network, container, interface and namespace are all needed")
	}
	if strings.Contains(req.IfName, "%") {
		return agentapi.Errorf(agentapi.CodeInvalidEnvironment, "attaching %s: the kernel takes a %% in the name of an interface for a pattern: give a name without one (CNI_IFNAME)", req.Attachment)
	}
	if len(req.Addresses) == 0 {
		return invalid("there is no address: the network's configuration needs an ipam section")
	}
	if req.MTU != 0 && (req.MTU < 68 || req.MTU > 65535) {
		return invalid("an MTU of %d bytes", req.MTU)
	}
	six := 0
	for i := range req.Addresses {
		d := &req.Addresses[i]
		if d.Prefix.IsValid() && d.Prefix.Addr().Is6() {
			six++
		}
		if six > ingressfilter.MaxSources {
			return invalid("it has more than %d IPv6 addresses", ingressfilter.MaxSources)
		}
		if !d.Prefix.IsValid() {
			return invalid("address %d is none", i)
		}
		switch {
		case d.Gateway.IsValid() && d.Gateway.Is4() != d.Prefix.Addr().Is4():
			return invalid("the gateway %s is of another family than %s", d.Gateway, d.Prefix)
		case d.Gateway.IsValid():
		case d.Prefix.Addr().Is4():
			d.Gateway = defaultGateway4
		default:
			d.Gateway = defaultGateway6
		}
	}
	for i := range req.Routes {
		d := &req.Routes[i]
		if d.Scope >= unix.RT_SCOPE_LINK {
			continue
		}
		for _, addr := range req.Addresses {
			if !d.Gateway.IsValid() && addr.Gateway.Is4() == d.Destination.Addr().Is4() {
				d.Gateway = addr.Gateway
			}
		}
		if !d.Gateway.IsValid() {
			return invalid("the route to %s has no gateway, and no address is of its family", d.Destination)
		}
	}
	return nil
}

// make makes an attachment step by step.
func (a *Agent) make(r *agentapi.Record, space *container) error {
	hostMAC, _ := net.ParseMAC(r.Host.MAC)
	containerMAC, _ := net.ParseMAC(r.Container.MAC)
	var host netlink.Link
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{stepRecord, func() error { return a.store.put(r) }},
		{stepPair, func() (err error) {
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU, attrs.HardwareAddr = r.Host.Name, r.Host.MTU, hostMAC
			pair := &netlink.Veth{LinkAttrs: attrs, PeerName: r.Container.Name, PeerHardwareAddr: containerMAC,
				PeerMTU:       uint32(r.Container.MTU),
				PeerNamespace: netlink.NsFd(int(space.fd))}
			if err := netlink.LinkAdd(pair); err != nil {
				return fmt.Errorf("making the pair %s and %s: %w", r.Host.Name, r.Container.Name, err)
			}
			host, err = netlink.LinkByName(r.Host.Name)
			return err
		}},
		{stepFilter, func() error { return a.guard(host.Attrs().Index, r) }},
		{stepHost, func() error { return setUpHost(host, r) }},
		{stepContainer, func() error { return space.setUp(r) }},
		{stepRoutes, func() error { return eachRoute(host, r, netlink.RouteReplace) }},
		{stepPort, func() error { return a.opts.Switch.AddPort(r.Port, r.Host.Name) }},
		{stepReady, func() error { r.State = agentapi.Ready; return a.store.put(r) }},
	} {
		a.opts.step(s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
	}
	return nil
}

// discard undoes an attachment after a failed step.
func (a *Agent) discard(r *agentapi.Record) {
	if err := a.undo(r); err != nil {
		a.log.Error("what is left of an attachment that failed is removed when the agent starts again, or by GC", "attachment", r.Attachment, "err", err)
	}
}

// undo removes those parts of an attachment that exist. It removes the record last.
func (a *Agent) undo(r *agentapi.Record) error {
	if r.Port != 0 {
		_ = a.opts.Switch.RemovePort(r.Port) // the interface may not have become a port
	}
	remove := func() error { return removeLink(r.Host.Name) }
	if r.Chained {
		remove = func() error { return unfilter(r) }
	}
	if err := remove(); err != nil {
		return err
	}
	if err := a.store.remove(r.Attachment); err != nil {
		return err
	}
	delete(a.records, hostName(r.Attachment))
	a.changed()
	return nil
}

// Detach removes an attachment. It is idempotent.
func (a *Agent) Detach(at agentapi.Attachment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready && a.records[hostName(at)] == nil && !a.nothingOf(at) {
		// Before Reconcile has read the records, the agent does not know the attachment's port, and
		// would not remove it.
		return agentapi.Errorf(agentapi.CodeTryAgain, "the node agent is not ready: %s", a.reason)
	}
	return a.detach(at)
}

// nothingOf reports whether an attachment has neither an interface nor a record file.
func (a *Agent) nothingOf(at agentapi.Attachment) bool {
	_, err := linkByName(hostName(at))
	return isNotFound(err) && !a.store.has(at)
}

func (a *Agent) detach(at agentapi.Attachment) error {
	r := a.records[hostName(at)]
	if r == nil { // the record may be lost while the interface still exists
		r = &agentapi.Record{Attachment: at, Host: agentapi.Interface{Name: hostName(at)}}
	} else {
		a.log.Info("detached", "attachment", at, "iface", r.Host.Name, "port", r.Port)
	}
	if err := a.undo(r); err != nil {
		return fmt.Errorf("detaching %s: %w", at, err)
	}
	return nil
}

// Collect removes the attachments to a network that the request does not list as valid.
func (a *Agent) Collect(req *agentapi.Collect) (*agentapi.Collected, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return nil, agentapi.Errorf(agentapi.CodeTryAgain, "the node agent is not ready: %s", a.reason)
	}
	valid := map[string]bool{}
	for _, v := range req.Valid {
		v.Network = req.Network
		valid[hostName(v)] = true
	}
	stale := map[string]agentapi.Attachment{}
	for name, r := range a.records {
		if r.Network == req.Network && !valid[name] {
			stale[name] = r.Attachment
		}
	}
	links, err := a.unrecorded()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if at, _ := ofAlias(l.Attrs().Alias); at.Network == req.Network && !valid[l.Attrs().Name] {
			stale[l.Attrs().Name] = at
		}
	}
	out := &agentapi.Collected{Removed: []agentapi.Attachment{}}
	var errs []error
	for _, at := range stale {
		if err := a.detach(at); err != nil {
			errs = append(errs, err)
			continue
		}
		out.Removed = append(out.Removed, at)
	}
	return out, errors.Join(errs...)
}

// setUpHost sets up the node's end of an attachment. It assigns the gateway's addresses, so that
// the kernel answers for them. It routes only the container's addresses to this interface.
func setUpHost(l netlink.Link, r *agentapi.Record) error {
	if err := netlink.LinkSetAlias(l, alias(r.Attachment)); err != nil {
		return fmt.Errorf("naming %s: %w", r.Host.Name, err)
	}
	for path, value := range settingsOf(r) {
		if _, err := setSysctl(path, value); err != nil {
			return err
		}
	}
	for _, addr := range r.Addresses {
		g := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr.Gateway, addr.Gateway.BitLen())),
			Scope: unix.RT_SCOPE_LINK, Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}
		if err := netlink.AddrReplace(l, g); err != nil {
			return fmt.Errorf("the gateway's address %s on %s: %w", addr.Gateway, r.Host.Name, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting %s up: %w", r.Host.Name, err)
	}
	return nil
}

// settingsOf returns the kernel settings for the node's end of an attachment. The keys are paths
// under /proc/sys/net.
func settingsOf(r *agentapi.Record) map[string]string {
	v4, v6 := "ipv4/conf/"+r.Host.Name+"/", "ipv6/conf/"+r.Host.Name+"/"
	settings := map[string]string{v4 + "rp_filter": "1", v4 + "forwarding": "1", v4 + "accept_redirects": "0",
		v4 + "accept_source_route": "0"}
	if hasIPv6(r) {
		settings[v6+"forwarding"], settings[v6+disableIPv6] = "1", "0"
	}
	// These settings are made even if the pod has no IPv6.
	if _, err := os.Stat(filepath.Join(sysctls, "net", v6)); err == nil {
		settings[v6+"accept_ra"], settings[v6+"accept_redirects"] = "0", "0"
	}
	return settings
}

// disableIPv6 is the setting that disables IPv6. A new interface gets its value from its network
// namespace's default.
const disableIPv6 = "disable_ipv6"

func hasIPv6(r *agentapi.Record) bool {
	return slices.ContainsFunc(r.Addresses, func(a agentapi.Address) bool { return a.Prefix.Addr().Is6() })
}

// setSysctl writes a network setting if its value differs. changed reports whether it wrote the
// setting.
func setSysctl(path, value string) (changed bool, err error) {
	path = filepath.Join(sysctls, "net", path)
	if b, err := os.ReadFile(path); err == nil && len(b) > 0 && string(b[:len(b)-1]) == value {
		return false, nil
	}
	err = os.WriteFile(path, []byte(value), 0o644)
	if errors.Is(err, unix.EROFS) {
		// /proc/sys is read-only in a container without all privileges. The mount belongs only to
		// this container, so making it writable affects no other container.
		if err = unix.Mount("", sysctls, "",
			unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err == nil {
			err = os.WriteFile(path, []byte(value), 0o644)
		}
	}
	if err != nil {
		return false, fmt.Errorf("setting %s to %s: %w", path, value, err)
	}
	return true, nil
}

const sysctls = "/proc/sys"

// eachRoute calls the function do with each of the node's routes to a container.
func eachRoute(host netlink.Link, r *agentapi.Record, do func(*netlink.Route) error) error {
	for _, addr := range r.Addresses {
		ip := addr.Prefix.Addr()
		route := &netlink.Route{LinkIndex: host.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: ipNet(netip.PrefixFrom(ip, ip.BitLen()))}
		if err := do(route); err != nil {
			return fmt.Errorf("the route to %s by %s: %w", ip, r.Host.Name, err)
		}
	}
	return nil
}

// container is the network namespace of a container, which the agent uses from outside.
type container struct {
	fd     netns.NsHandle
	handle *netlink.Handle
}

func openContainer(path string) (*container, error) {
	fd, err := netns.GetFromPath(path)
	if err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNamespace, "the container's network namespace %s: %v (the agent must see the runtime's folder of namespaces)", path, err)
	}
	own, err := netns.Get()
	if err == nil {
		defer own.Close()
		if own.Equal(fd) {
			fd.Close()
			return nil, agentapi.Errorf(agentapi.CodeInvalidNamespace, "%s is the node's own network namespace", path)
		}
	}
	h, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		fd.Close()
		return nil, agentapi.Errorf(agentapi.CodeInvalidNamespace, "%s is not a network namespace: %v", path, err)
	}
	return &container{fd, h}, nil
}

func (c *container) close() {
	c.handle.Close()
	c.fd.Close()
}

// finishFrames makes the container's end complete checksums and segments itself. This is necessary
// if the kernel does not support the frame filter, which would recognize unfinished frames at the
// node's end.
func (c *container) finishFrames(r *agentapi.Record) error {
	if !errors.Is(framefilter.Supported(), framefilter.ErrUnsupported) {
		return nil
	}
	return c.do(func() error { return framefilter.FinishAtSource(r.Container.Name) })
}

// do calls f on a thread in the container's network namespace.
func (c *container) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := netns.Set(c.fd)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// eui64 is the constant IN6_ADDR_GEN_MODE_EUI64 from linux/if_link.h.
const eui64 = 0

// setUp gives the container's end its addresses and routes. Only the gateway is on the link. So all
// packets go to the gateway, even those within the network's prefix.
func (c *container) setUp(r *agentapi.Record) error {
	l, err := c.handle.LinkByName(r.Container.Name)
	if err != nil {
		return fmt.Errorf("the container's interface %s: %w", r.Container.Name, err)
	}
	if hasIPv6(r) {
		if err := c.enableIPv6(r.Container.Name); err != nil {
			return err
		}
	}
	for _, addr := range r.Addresses {
		if err := c.handle.AddrReplace(l, &netlink.Addr{IPNet: ipNet(addr.Prefix),
			Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE}); err != nil {
			return fmt.Errorf("the address %s of %s: %w", addr.Prefix, r.Container.Name, err)
		}
	}
	if err := c.finishFrames(r); err != nil {
		return err
	}
	// The ingress filter admits the link-local address that is made from the MAC address. Without
	// IPv6 this call fails, and there is nothing to set.
	_ = c.handle.LinkSetIP6AddrGenMode(l, eui64)
	if err := c.handle.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting the container's %s up: %w", r.Container.Name, err)
	}
	there := map[int][]netlink.Route{} // existing routes of the container, by table
	for _, route := range containerRoutes(l.Attrs().Index, r) {
		if _, listed := there[route.Table]; !listed {
			if there[route.Table], err = c.routes(route.Table); err != nil {
				return fmt.Errorf("the routes of the container: %w", err)
			}
		}
		standBehind(&route, there[route.Table])
		if err := c.handle.RouteReplace(&route); err != nil {
			return fmt.Errorf("the container's route to %s: %w", route.Dst, err)
		}
	}
	return nil
}

// routes returns the container's routes in a table. Table 0 means the main table.
func (c *container) routes(table int) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: cmp.Or(table, unix.RT_TABLE_MAIN)}
	return netlinkdump.Whole(func() ([]netlink.Route, error) {
		return c.handle.RouteListFiltered(netlink.FAMILY_ALL, filter, netlink.RT_FILTER_TABLE)
	})
}

// enableIPv6 enables IPv6 in a container whose namespace has disabled it. The CNI project's own
// plugins also do so when they assign an IPv6 address.
func (c *container) enableIPv6(name string) error {
	return c.do(func() error {
		for _, name := range []string{"lo", name} {
			if _, err := setSysctl("ipv6/conf/"+name+"/"+disableIPv6, "0"); err != nil {
				return err
			}
		}
		return nil
	})
}

// standBehind raises a route's metric until no other interface of the container has a route to the
// same destination with that metric. So a later interface takes no traffic from an earlier one. The
// later interface's routes come into use when the earlier interface has gone.
func standBehind(route *netlink.Route, there []netlink.Route) {
	metric := func(r *netlink.Route) int {
		if r.Priority == 0 && r.Dst.IP.To4() == nil {
			return defaultMetric6
		}
		return r.Priority
	}
	for slices.ContainsFunc(there, func(r netlink.Route) bool {
		return r.LinkIndex != route.LinkIndex && r.Dst != nil && r.Dst.String() == route.Dst.String() &&
			metric(&r) == metric(route)
	}) {
		route.Priority = metric(route) + 1
	}
}

// defaultMetric6 is the metric that the kernel gives to an IPv6 route without a metric
// (IP6_RT_PRIO_USER).
const defaultMetric6 = 1024

// containerRoutes returns the routes that the container must have through its interface.
func containerRoutes(ifindex int, r *agentapi.Record) []netlink.Route {
	var out []netlink.Route
	for _, addr := range r.Addresses {
		out = append(out, netlink.Route{LinkIndex: ifindex, Scope: netlink.SCOPE_LINK,
			Dst: ipNet(netip.PrefixFrom(addr.Gateway, addr.Gateway.BitLen()))})
		if !addr.Prefix.IsSingleIP() {
			out = append(out, netlink.Route{LinkIndex: ifindex, Dst: ipNet(addr.Prefix.Masked()),
				Gw: addr.Gateway.AsSlice(), Src: addr.Prefix.Addr().AsSlice()})
		}
	}
	for _, d := range r.Routes {
		out = append(out, netlink.Route{LinkIndex: ifindex, Dst: ipNet(d.Destination.Masked()),
			Gw: d.Gateway.AsSlice(), MTU: d.MTU, AdvMSS: d.AdvMSS, Priority: d.Priority, Table: d.Table,
			Scope: netlink.Scope(d.Scope)})
	}
	return out
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func linkByName(name string) (netlink.Link, error) { return netlink.LinkByName(name) }

func isNotFound(err error) bool { return errors.As(err, new(netlink.LinkNotFoundError)) }

func removeLink(name string) error {
	l, err := linkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
}
