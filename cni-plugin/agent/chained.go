package agent

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// In chained mode another plugin owns the interfaces. The agent attaches four things to the node's
// end of an interface: the frame filter, the switch's program (as a port), the ingress filter, and
// the egress filter. It never changes addresses, routes, settings or the interface itself. It
// removes only these four things.

// ChainedSteps are the steps of Chain, in their order.
var ChainedSteps = []string{stepRecord, stepFilter, stepPort, stepReady, stepReply}

// Chain makes an interface that the previous plugin made a port of the switch. If it fails, it
// leaves no trace.
func (a *Agent) Chain(req *agentapi.Chain) error {
	if err := errors.Join(completeChain(req), a.checkReserved(req.Addresses)); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return agentapi.Errorf(agentapi.CodeTryAgain, "the node agent is not ready: %s", a.reason)
	}
	space, err := openContainer(req.Namespace)
	if err != nil {
		return err
	}
	defer space.close()
	host, inside, err := space.ends(req.IfName)
	if err != nil {
		return err
	}
	if err := space.has(inside, req.Addresses); err != nil {
		return err
	}
	if err := a.makeWayChained(req, host); err != nil {
		return err
	}
	port, err := a.freePort()
	if err != nil {
		return err
	}
	r := &agentapi.Record{Attachment: req.Attachment, Chained: true, Index: host.Attrs().Index, Pod: req.Pod,
		State: agentapi.Adding, Namespace: req.Namespace, Port: port, Addresses: req.Addresses,
		Host: interfaceOf(host), Container: interfaceOf(inside)}
	a.records[hostName(req.Attachment)] = r
	if err := a.chain(r, space); err != nil {
		a.discard(r)
		return fmt.Errorf("making %s, of %s, a port: %w", r.Host.Name, r.Attachment, err)
	}
	a.changed()
	a.opts.step(stepReply)
	a.log.Info("chained", "attachment", r.Attachment, "iface", r.Host.Name, "port", port, "addresses", r.Addresses)
	return nil
}

func completeChain(req *agentapi.Chain) error {
	invalid := func(format string, args ...any) error {
		return agentapi.Errorf(agentapi.CodeInvalidConfig, "chaining %s: %s", req.Attachment, fmt.Sprintf(format, args...))
	}
	if req.Network == "" || req.ContainerID == "" || req.IfName == "" || req.Namespace == "" {
		return invalid("network, container, interface and namespace are all needed")
	}
	if len(req.Addresses) == 0 {
		return invalid("the result of the plugins before has no address of %s", req.IfName)
	}
	for i, d := range req.Addresses {
		if !d.Prefix.IsValid() {
			return invalid("address %d is none", i)
		}
	}
	return nil
}

// chain makes a chained attachment step by step.
func (a *Agent) chain(r *agentapi.Record, space *container) error {
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{stepRecord, func() error { return a.store.put(r) }},
		{stepFilter, func() error { return errors.Join(a.guard(r.Index, r), space.finishFrames(r)) }},
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

// makeWayChained forgets stale attachments that have the same name, interface or addresses as the
// request. If such an attachment still exists, it refuses the request. Then netcraq-cni is in the
// list twice, or a plugin's result is wrong.
func (a *Agent) makeWayChained(req *agentapi.Chain, host netlink.Link) error {
	for _, r := range a.records {
		same, shared := r.Attachment == req.Attachment, sharedAddress(r, req)
		if !same && shared == "" && r.Index != host.Attrs().Index && r.Host.Name != host.Attrs().Name {
			continue
		}
		_, err := linkOf(r)
		switch {
		case isNotFound(err):
			err = a.undo(r)
		case err != nil:
		case same:
			err = agentapi.Errorf(agentapi.CodeExists, "%s is attached already: is netcraq-cni twice in the list of plugins?", r.Attachment)
		case shared != "":
			err = agentapi.Errorf(agentapi.CodeInvalidConfig, "the address %s, which the plugins before gave %s, is that of %s", shared, req.Attachment, r.Attachment)
		default:
			err = agentapi.Errorf(agentapi.CodeExists, "%s is the interface of %s", host.Attrs().Name, r.Attachment)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sharedAddress returns an address that both the attachment r and the request have, or "".
func sharedAddress(r *agentapi.Record, req *agentapi.Chain) string {
	for _, x := range r.Addresses {
		for _, y := range req.Addresses {
			if x.Prefix.Addr() == y.Prefix.Addr() {
				return x.Prefix.Addr().String()
			}
		}
	}
	return ""
}

// ends returns the two ends of a container's interface. It does not trust a plugin's result, which
// may be wrong, and asks the kernel for the node's end. That is the interface in this namespace
// whose peer is in the container's namespace and has the container interface's index.
func (c *container) ends(name string) (host, inside netlink.Link, err error) {
	inside, err = c.handle.LinkByName(name)
	if isNotFound(err) {
		return nil, nil, agentapi.Errorf(agentapi.CodeInvalidConfig, "the container has no interface %s: netcraq-cni is behind the plugin that makes it, and that one has made none", name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the container's interface %s: %w", name, err)
	}
	if inside.Type() != "veth" {
		return nil, nil, agentapi.Errorf(agentapi.CodeInvalidConfig, "the container's interface %s is of the type %s, which has no end at the node that the switch could be at: it has to be a veth", name, inside.Type())
	}
	host, err = netlink.LinkByIndex(inside.Attrs().ParentIndex)
	if err == nil { // the kernel has now assigned a number to the namespace of its peer
		id, idErr := netlink.GetNetNsIdByFd(int(c.fd))
		if idErr != nil {
			return nil, nil, fmt.Errorf("how this namespace knows the container's: %w", idErr)
		}
		if id >= 0 && host.Type() == "veth" && host.Attrs().ParentIndex == inside.Attrs().Index &&
			host.Attrs().NetNsID == id {
			return host, inside, nil
		}
	}
	if err != nil && !isNotFound(err) {
		return nil, nil, fmt.Errorf("the node's end of the container's %s: %w", name, err)
	}
	return nil, nil, agentapi.Errorf(agentapi.CodeInvalidNamespace, "the other end of the container's %s is not in the node's network namespace", name)
}

// has returns an error if an interface of the container lacks any of the wanted addresses. The
// error names these addresses.
func (c *container) has(l netlink.Link, want []agentapi.Address) error {
	addrs, err := netlinkdump.Whole(func() ([]netlink.Addr, error) { return c.handle.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("the addresses of the container's %s: %w", l.Attrs().Name, err)
	}
	for _, w := range want {
		if !hasAddress(addrs, w.Prefix.Addr(), w.Prefix.Bits()) {
			return agentapi.Errorf(agentapi.CodeInvalidConfig, "the container's %s does not have the address %s, which the result of the plugins before says", l.Attrs().Name, w.Prefix)
		}
	}
	return nil
}

func interfaceOf(l netlink.Link) agentapi.Interface {
	at := l.Attrs()
	return agentapi.Interface{Name: at.Name, MAC: at.HardwareAddr.String(), MTU: at.MTU}
}

// linkOf returns the node's interface of an attachment. For another plugin's interface the index
// must match, too, because some plugins derive an interface's name from the pod's name, which
// another pod may get later.
func linkOf(r *agentapi.Record) (netlink.Link, error) {
	if !r.Chained {
		return linkByName(r.Host.Name)
	}
	l, err := netlink.LinkByIndex(r.Index)
	if err == nil && (l.Type() != "veth" || l.Attrs().Name != r.Host.Name) {
		return nil, netlink.LinkNotFoundError{}
	}
	return l, err
}

// unfilter removes the filters from another plugin's interface.
func unfilter(r *agentapi.Record) error {
	if _, err := linkOf(r); isNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	// The egress filter comes first, because the removal of the ingress filter also removes the
	// qdisc clsact.
	for _, detach := range []func(int) error{ingressfilter.DetachEgress, ingressfilter.Detach, framefilter.Detach} {
		err := detach(r.Index)
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, framefilter.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// Release removes every port and filter from other plugins' interfaces. These are then as they were
// before. An agent calls Release when it is uninstalled.
func (a *Agent) Release() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready, a.reason = false, "it is being removed"
	var errs []error
	for _, r := range a.records {
		if r.Chained {
			errs = append(errs, a.undo(r))
		}
	}
	return errors.Join(errs...)
}

// ReleaseRecorded does the same as Release for an agent that has ended. It finds the interfaces by
// the records in the agent's folder.
func ReleaseRecorded(dir string) error {
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	records, err := s.all()
	errs := []error{err}
	for _, r := range records {
		if !r.Chained {
			continue
		}
		err := unfilter(r)
		if err == nil {
			err = s.remove(r.Attachment)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkChained checks that the port is still at the same interface. The other plugin checks
// everything else of the interface.
func (a *Agent) checkChained(r *agentapi.Record, req *agentapi.Check, space *container, note func(string, ...any)) {
	host, inside, err := space.ends(req.IfName)
	if err != nil {
		note("%v", err)
		return
	}
	if host.Attrs().Index != r.Index || host.Attrs().Name != r.Host.Name {
		note("the node's end of %s is %s, not %s", req.IfName, host.Attrs().Name, r.Host.Name)
		return
	}
	want := cmp.Or(req.Container.MAC, r.Container.MAC) // a later plugin may have changed the MAC address
	if mac := inside.Attrs().HardwareAddr.String(); !strings.EqualFold(mac, want) {
		note("%s has the Ethernet address %s, not %s", req.IfName, mac, want)
	}
	if err := space.has(inside, r.Addresses); err != nil {
		note("%v", err)
	}
	checkFilters(r.Index, r.Host.Name, note)
	if there, err := ingressfilter.EgressAttached(r.Index); err != nil || !there {
		note("%s has no egress filter (%v)", r.Host.Name, err)
	}
}
