// Package ingressfilter stops packets with which a pod or another machine forges messages between
// switches.
//
//	frame ──▶ the switch ──▶ ingress filter ──▶ the host's stack ──▶ stack filter ──▶ sockets, tunnels, other interfaces
//	             │ takes       │ drops what is left                   │ drops what was wrapped
//	             ▼ NetCRAQ     ▼ of NetCRAQ at this interface         ▼ in something, wherever from
//
// The ingress filter ([Attach]) is an eBPF program at an interface that is a switch port. While the
// switch runs, it consumes NetCRAQ packets before they reach the filter. While the agent is down,
// or if the switch gets only copies (the interpreter), the kernel would route NetCRAQ packets like
// any other packets. A pod could then send an acknowledgement to a switch on another node, which
// trusts packets from the fabric. So the filter outlives the agent. No process holds a link to it,
// and it stays until the interface goes or someone removes it. With tcx, the interface's ingress
// qdisc stays free for other programs (the bandwidth plugin adds one there). On kernels before 6.6,
// the filter is a tc filter of clsact.
//
// The stack filter ([ApplyTunnels], [ApplySwitch]) is nftables. It sees packets after the kernel
// has unwrapped them (tags, the operator's tunnels), reassembled fragments and translated services'
// addresses. The stack filter outlives the agent, too.
package ingressfilter

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
)

// name is the name of the filter's program, of at most 15 bytes. Filters are found by this name.
const name = ingressProgNetcraqIngress

// formerName is the name of the program in previous versions. Attach replaces such filters like its
// own.
const formerName = "netcraq_guard"

// Rules says which incoming packets of an interface the filter drops. UDP means UDP over IPv4 and
// IPv6.
type Rules struct {
	// Everything drops all packets, because only the switch uses the interface. The other rules
	// then have no effect.
	Everything bool
	// Port is a UDP port, or 0. The filter drops packets to or from it, with or without tags,
	// fragments and IP options.
	Port uint16
	// Destination is a UDP port, or 0. The filter drops packets to it.
	Destination uint16
	// Untagged drops frames with a tag (802.1Q, 802.1ad), whatever they contain.
	Untagged bool
	// CheckSources drops packets and ARP messages from addresses that are not among Sources.
	// Link-local addresses must be among Sources, too. Otherwise a pod could use a thousand of them
	// and fill the stack's neighbour table, because each new address adds an entry there. Packets
	// without an address (:: or, in ARP, 0.0.0.0) pass. The kernel's rp_filter is not a substitute.
	// It checks neither IPv6 nor ARP, and checks IPv4 only if net.ipv4.conf.all.rp_filter is not 2.
	CheckSources bool
	// Sources are the permitted source addresses: at most MaxSources IPv4 addresses, and as many
	// IPv6 addresses.
	Sources []netip.Addr
	// Guest means that the other end of the interface is neither a router nor part of the node. The
	// filter then drops packets to or from 127.0.0.0/8, and router advertisements and redirects
	// (RFC 4861).
	Guest bool
	// NotFrom are IPv4 prefixes, at most MaxSources of them. The filter drops packets from
	// addresses in them.
	NotFrom []netip.Prefix
	// Place is the filter's place among other programs. The switch's program always comes before
	// the filter.
	Place Place
}

// MaxSources is the maximum number of source addresses of each family at an interface.
const MaxSources = 4

// Place is the filter's place among the programs of an interface.
type Place int

const (
	// Last puts the filter after all programs that are currently attached at tcx.
	Last Place = iota
	// First puts the filter before all programs that are currently attached at tcx, except for the
	// frame filter and the switch's program. It is for interfaces where another network's program
	// may consume every packet, including those that the filter must drop.
	First
	// LastFilter puts the filter after tcx and after the filters of clsact. It is for interfaces
	// where the switch is there as well.
	LastFilter
)

// side is one of the two directions of an interface, incoming or outgoing.
type side struct {
	at     ebpf.AttachType
	parent uint32 // parent of a tc filter of clsact in this direction
	name   string // name of the filter's program
	former string // name of the previous version's program, or "" if it had none
}

var (
	incoming = side{ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS, name, formerName}
	outgoing = side{ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS, ingressProgNetcraqEgress, ""}
)

// check returns an error if the rules make no sense.
func (r Rules) check() error {
	if !r.Everything && r.Port == 0 && r.Destination == 0 {
		return errors.New(
			"an ingress filter without a UDP port has nothing to do: give Port or Destination, or Everything")
	}
	if len(r.NotFrom) > MaxSources {
		return fmt.Errorf("an ingress filter drops packets from %d prefixes at most, not %d", MaxSources, len(r.NotFrom))
	}
	for _, p := range r.NotFrom {
		if !p.IsValid() || !p.Addr().Is4() || p.Bits() == 0 {
			return fmt.Errorf("an ingress filter drops packets from IPv4 prefixes, and %s is none", p)
		}
	}
	four := 0
	for _, a := range r.Sources {
		switch {
		case !a.IsValid() || a.Is4In6():
			return fmt.Errorf("an ingress filter checks IPv4 and IPv6 sources, and %s is neither", a)
		case a.Is4():
			four++
		}
	}
	if six := len(r.Sources) - four; max(four, six) > MaxSources {
		return fmt.Errorf("an ingress filter knows %d addresses of a family at most, not %d IPv4 and %d IPv6",
			MaxSources, four, six)
	}
	return nil
}

// Attach puts a filter onto an interface of the calling thread's network namespace. It replaces an
// existing filter without a gap.
func Attach(ifindex int, r Rules) error { return incoming.attach(ifindex, r) }

// AttachEgress puts a filter onto an interface for packets that leave to a pod. The filter passes
// the switch's packets, which carry SwitchMark. It comes before all programs that are currently
// attached at tcx. The rules' Place has no effect.
//
// Packets from pod to pod over a bridge without br_netfilter bypass the stack filter, and a sender
// that is not a port of the switch has no ingress filter. So the receiver needs this filter.
func AttachEgress(ifindex int, r Rules) error {
	r.Place = First
	return outgoing.attach(ifindex, r)
}

func (s side) attach(ifindex int, r Rules) error {
	if err := r.check(); err != nil {
		return err
	}
	prog, err := r.program(s.name)
	if err != nil {
		return err
	}
	defer prog.Close()
	old, err := s.find(ifindex)
	if errors.Is(err, ebpf.ErrNotSupported) {
		return s.attachFilter(ifindex, prog)
	}
	if err != nil {
		return err
	}
	if r.Place == LastFilter {
		if err := s.attachFilter(ifindex, prog); err != nil {
			return err
		}
		return attach.DetachAt(s.at, ifindex, old...) // removes a filter that an earlier agent put at tcx
	}
	anchor := link.Tail()
	if r.Place == First {
		anchor = link.Head()
		before, err := attach.NamedAt(s.at, ifindex, framefilter.Name, attach.SwitchProgram)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			anchor = link.AfterProgramByID(before[len(before)-1])
		}
	}
	if len(old) > 0 {
		before, err := ebpf.NewProgramFromID(old[0]) // needed, because the kernel cannot replace a program by its ID
		if err != nil {
			return fmt.Errorf("replacing the ingress filter: %w", err)
		}
		defer before.Close()
		anchor = link.ReplaceProgram(before)
	}
	if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: ifindex, Program: prog,
		Attach: s.at, Anchor: anchor}); err != nil {
		return fmt.Errorf("attaching the ingress filter: %w", err)
	}
	if err := s.removeFilter(ifindex); err != nil { // removes a filter that an earlier agent put at clsact
		return err
	}
	if len(old) > 1 { // one filter is this agent's, and one an earlier agent's
		return attach.DetachAt(s.at, ifindex, old[1:]...)
	}
	return nil
}

// Attached reports whether an interface has a filter.
func Attached(ifindex int) (bool, error) { return incoming.attached(ifindex) }

// EgressAttached reports whether an interface has an egress filter.
func EgressAttached(ifindex int) (bool, error) { return outgoing.attached(ifindex) }

func (s side) attached(ifindex int) (bool, error) {
	there, err := s.find(ifindex)
	if len(there) > 0 || err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return err == nil, err
	}
	return s.filterAttached(ifindex)
}

// Detach removes the filter from an interface, if it has one.
func Detach(ifindex int) error { return incoming.detach(ifindex) }

// DetachEgress removes the egress filter from an interface, if it has one.
func DetachEgress(ifindex int) error { return outgoing.detach(ifindex) }

func (s side) detach(ifindex int) error {
	there, err := s.find(ifindex)
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return errors.Join(attach.DetachAt(s.at, ifindex, there...), s.removeFilter(ifindex))
}

// withoutTCX makes tests use the code for kernels before 6.6.
var withoutTCX bool

// find returns the filters at an interface. There may be none, one, or two: one of this agent and
// one of an earlier agent.
func (s side) find(ifindex int) ([]ebpf.ProgramID, error) {
	if withoutTCX {
		return nil, ebpf.ErrNotSupported
	}
	return attach.NamedAt(s.at, ifindex, s.names()...)
}

func (s side) names() []string {
	if s.former == "" {
		return []string{s.name}
	}
	return []string{s.name, s.former}
}
