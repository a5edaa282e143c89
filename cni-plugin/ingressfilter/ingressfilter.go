// Package ingressfilter keeps forged packets of a pod or a stranger from being taken for messages
// between switches.
//
//	frame ──▶ the switch ──▶ ingress filter ──▶ the host's stack ──▶ stack filter ──▶ sockets, tunnels, other interfaces
//	             │ takes       │ drops what is left                   │ drops what was wrapped
//	             ▼ NetCRAQ     ▼ of NetCRAQ at this interface         ▼ in something, wherever from
//
// The ingress filter ([Attach]) is an eBPF program at an interface that is a switch port. While the
// switch runs it takes NetCRAQ's packets before they get here. When it does not (the agent is being
// restarted or was killed), or looks at copies (the interpreter), the kernel would route them like
// any others. A pod could then send an acknowledgement to a switch on another node, which trusts
// packets from the fabric. So the filter does not go with the agent: it is attached without a link
// that a process holds, and stays until the interface goes or somebody removes it. At tcx it leaves
// the interface's ingress queueing discipline free for others (the bandwidth plugin has one there).
// On kernels before 6.6 it is a filter of clsact.
//
// The stack filter ([ApplyTunnels], [ApplySwitch]) is nftables: it sees packets after the kernel
// has unwrapped them (tags, tunnels of the operator's), reassembled fragments and translated
// services' addresses. It stays, too.
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

// name of the program, of 15 bytes at most. It is how a filter is known for one.
const name = ingressProgNetcraqIngress

// formerName is that of agents before. They leave theirs behind, and it is replaced as one of ours
// is.
const formerName = "netcraq_guard"

// Rules say which incoming packets of an interface are dropped. UDP is that over IPv4 and IPv6.
type Rules struct {
	// Everything: nothing at all gets past, because only the switch uses the interface. The other
	// rules do not matter then.
	Everything bool
	// Port is a UDP port, or 0. Packets to or from it are dropped, tagged or not, in fragments or
	// not, with IP options or without.
	Port uint16
	// Destination is a UDP port, too, or 0: packets to it are dropped.
	Destination uint16
	// Untagged: frames with a tag (802.1Q, 802.1ad) are dropped, whatever is in them.
	Untagged bool
	// CheckSources drops packets and ARP messages from addresses that are not among Sources.
	// Link-local addresses must be among Sources, too: the stack remembers each address that it
	// hears of, and a thousand of them fill its table of neighbours. Packets without an address (::
	// or, in ARP, 0.0.0.0) pass. The kernel's rp_filter is not a substitute: it checks neither IPv6
	// nor ARP, and IPv4 only if net.ipv4.conf.all.rp_filter is not 2.
	CheckSources bool
	// Sources are IPv4 and IPv6 addresses, MaxSources of each at most.
	Sources []netip.Addr
	// Guest: the other end of the interface is not a router and not a part of the node. Packets to
	// or from 127.0.0.0/8, and router advertisements and redirects (RFC 4861), are dropped.
	Guest bool
	// NotFrom are IPv4 prefixes, MaxSources at most: packets from there are dropped.
	NotFrom []netip.Prefix
	// Place is the filter's place among others' programs. The switch's comes before it.
	Place Place
}

// MaxSources is how many addresses of each family an interface's packets may come from.
const MaxSources = 4

// Place is a filter's place among the programs of an interface.
type Place int

const (
	// Last is behind all that are at tcx when it is attached.
	Last Place = iota
	// First is before all that are at tcx then but the frame filter and the switch's program:
	// another network's program may take every packet, and with it those that this filter is for.
	First
	// LastFilter is behind tcx and behind filters of clsact, for a switch that is there as well.
	LastFilter
)

// side is one of the two directions at an interface.
type side struct {
	at     ebpf.AttachType
	parent uint32 // of a filter of clsact
	name   string // of the program
	former string // of the program of agents before; "": they had none
}

var (
	incoming = side{ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS, name, formerName}
	outgoing = side{ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS, ingressProgNetcraqEgress, ""}
)

// check says what is wrong with rules.
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

// Attach puts a filter onto an interface of the calling thread's network namespace, in the place of
// one that is there. There is no moment without one.
func Attach(ifindex int, r Rules) error { return incoming.attach(ifindex, r) }

// AttachEgress does the same for packets that leave by an interface, to a pod. The filter lets the
// switch's packets pass, which have SwitchMark, and stands before all programs that are at tcx
// then, whatever the rules' Place.
//
// A bridge without br_netfilter takes packets from pod to pod past the stack filter. A pod that is
// not a port of the switch has no ingress filter.
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
		return attach.DetachAt(s.at, ifindex, old...) // of an earlier agent, with other options
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
		before, err := ebpf.NewProgramFromID(old[0]) // the kernel replaces none by its id
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
	if err := s.removeFilter(ifindex); err != nil { // the same
		return err
	}
	if len(old) > 1 { // of this agent and of an earlier one
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

// Detach takes the filter off an interface, if there is one.
func Detach(ifindex int) error { return incoming.detach(ifindex) }

// DetachEgress removes the egress filter of an interface, if there is one.
func DetachEgress(ifindex int) error { return outgoing.detach(ifindex) }

func (s side) detach(ifindex int) error {
	there, err := s.find(ifindex)
	if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return errors.Join(attach.DetachAt(s.at, ifindex, there...), s.removeFilter(ifindex))
}

// withoutTCX has the tests do what kernels before 6.6 need.
var withoutTCX bool

// find gives the filters at an interface: none, one, or one of this agent and one of an agent
// before.
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
