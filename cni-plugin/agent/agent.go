package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/framefilter"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/switch/netlinkdump"
)

// Switch has the operations of the node's switch that the agent uses. AddPort makes an interface a
// host port, from which the switch accepts only requests.
type Switch interface {
	AddPort(number uint32, iface string) error
	RemovePort(number uint32) error
	// NamedPorts returns the ports that appear in entries of the switch's tables.
	NamedPorts() (map[uint32]bool, error)
}

// Options configure an Agent.
type Options struct {
	// Dir is the folder for records. It must be in a file system that is empty after each start of
	// the machine.
	Dir string
	// Switch is the node's switch. If it is nil, the node has no switch, and its pods cannot reach
	// any.
	Switch Switch
	// FirstPort and LastPort are the first and the last port of the switch that containers may get.
	FirstPort, LastPort uint32
	// AfterOthers places the switch's program and the filters after other programs at an interface.
	AfterOthers bool
	// Services are the chains' service addresses: IPv4 prefixes, at most ingressfilter.MaxSources.
	// Only a switch may send from them.
	Services []netip.Prefix
	// MTU is the MTU, in bytes, of interfaces of containers that request none.
	MTU int
	// Reserved are prefixes that lead to the switch. No container may have an address in them.
	Reserved []netip.Prefix
	// Log receives events. nil means slog.Default().
	Log *slog.Logger

	// step is called with the name of each step of an attachment, before the step. Tests use it to
	// kill the agent there.
	step func(name string)
}

// Agent attaches containers to the node's switch. Its methods may be called from several
// goroutines. They change only the network namespace of the process.
type Agent struct {
	opts  Options
	log   *slog.Logger
	store *store

	mu      sync.Mutex
	records map[string]*agentapi.Record // records by hostName
	ready   bool
	reason  string        // reason why ready is false
	changes chan struct{} // closed at the next change of the records
}

// New makes an agent. It attaches nothing before Reconcile has been called.
func New(opts Options) (*Agent, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.step == nil {
		opts.step = func(string) {}
	}
	if opts.Switch == nil {
		opts.Switch = noSwitch{}
	}
	if opts.FirstPort == 0 || opts.LastPort < opts.FirstPort {
		return nil, fmt.Errorf("no ports for containers: %d to %d", opts.FirstPort, opts.LastPort)
	}
	s, err := openStore(opts.Dir)
	if err != nil {
		return nil, err
	}
	return &Agent{opts: opts, log: opts.Log, store: s, records: map[string]*agentapi.Record{},
		reason: "it is starting", changes: make(chan struct{})}, nil
}

// podRules drop a container's NetCRAQ packets that the switch has not consumed, packets for the
// tunnels between nodes, and all tagged frames. Containers need no tags, because the node has no
// interface that would accept tagged frames. If the switches are not on the nodes, the rules drop
// all NetCRAQ packets. Otherwise a container could reach the switches under the node's address and
// with the node's rights.
var podRules = ingressfilter.Rules{Port: wire.Port, Destination: podroutes.VXLANPort, Untagged: true, Guest: true}

// chainedRules are the rules for interfaces that another plugin made. The node may use tagged
// frames there, so the filter also finds NetCRAQ packets behind tags.
var chainedRules = ingressfilter.Rules{Port: wire.Port, Destination: podroutes.VXLANPort, Guest: true}

// rulesFor returns the rules for an attachment's interface. At another plugin's interface, the
// filter and the switch's program both come before that plugin's programs, or both after them. Any
// of these programs may keep a packet from the next one. The other plugin decides which source
// addresses are valid there.
func (a *Agent) rulesFor(r *agentapi.Record) ingressfilter.Rules {
	rules := podRules
	if r.Chained {
		rules = chainedRules
		rules.NotFrom = a.opts.Services
		rules.Place = ingressfilter.First
	} else {
		rules.CheckSources = true
		for _, a := range r.Addresses {
			rules.Sources = append(rules.Sources, a.Prefix.Addr())
		}
		if mac, err := net.ParseMAC(r.Container.MAC); err == nil && len(mac) == 6 {
			rules.Sources = append(rules.Sources, linkLocal(mac))
		}
	}
	if a.opts.AfterOthers {
		rules.Place = ingressfilter.LastFilter
	}
	return rules
}

// egressRules returns the rules for packets that reach a pod without passing the node's stack, for
// example over another plugin's bridge.
func (a *Agent) egressRules() ingressfilter.Rules {
	return ingressfilter.Rules{Port: wire.Port, NotFrom: a.opts.Services}
}

// linkLocal returns the link-local address that the kernel derives from a MAC address (RFC 4291,
// appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// guard attaches the filters to an attachment's interface. These are the ingress filter and the
// frame filter, and the egress filter if another plugin made the interface. The frame filter comes
// before all other programs, including the switch's.
func (a *Agent) guard(index int, r *agentapi.Record) error {
	if err := ingressfilter.Attach(index, a.rulesFor(r)); err != nil {
		return err
	}
	if r.Chained {
		if err := ingressfilter.AttachEgress(index, a.egressRules()); err != nil {
			return err
		}
	}
	if err := framefilter.Attach(index); err != nil && !errors.Is(err, framefilter.ErrUnsupported) {
		return err
	}
	return nil
}

// noSwitch is the Switch of a node that has no switch.
type noSwitch struct{}

func (noSwitch) AddPort(uint32, string) error { return nil }
func (noSwitch) RemovePort(uint32) error      { return nil }

func (noSwitch) NamedPorts() (map[uint32]bool, error) { return nil, nil }

// Status reports whether containers can be attached, and if not, why.
func (a *Agent) Status() agentapi.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return agentapi.Status{Ready: a.ready, Reason: a.reason}
}

// SetReady sets whether containers can be attached. If they cannot, reason says why.
func (a *Agent) SetReady(ready bool, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready, a.reason = ready, reason
}

// Attachments lists the attachments, by the node's interface.
func (a *Agent) Attachments() []agentapi.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := []agentapi.Record{}
	for _, r := range a.records {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(x, y agentapi.Record) int { return strings.Compare(x.Host.Name, y.Host.Name) })
	return out
}

// Changes returns a channel that is closed at the next change of the attachments. A caller that
// calls Changes before Attachments misses no change.
func (a *Agent) Changes() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

// changed wakes the callers that wait for Changes. The caller holds a.mu.
func (a *Agent) changed() {
	close(a.changes)
	a.changes = make(chan struct{})
}

// freePort returns the next port, after the port that it returned last, that no attachment has and
// that no entry of the switch's tables names. An entry may name the port of a deleted pod until the
// controller removes it. Such an entry grants the deleted pod's rights and sends its replies to
// this port. So a new pod must not get the port.
func (a *Agent) freePort() (uint32, error) {
	named, err := a.opts.Switch.NamedPorts()
	if err != nil {
		return 0, fmt.Errorf("choosing a port of the node's switch: %w", err)
	}
	attached := map[uint32]bool{}
	for _, r := range a.records {
		attached[r.Port] = true
	}
	last, err := a.store.lastPort()
	if err != nil {
		a.log.Warn("the agent begins with the first port", "err", err)
	}
	count, waiting := a.opts.LastPort-a.opts.FirstPort+1, 0
	if last < a.opts.FirstPort || last > a.opts.LastPort {
		last = a.opts.LastPort
	}
	for i := range count {
		p := a.opts.FirstPort + (last-a.opts.FirstPort+1+i)%count
		switch {
		case attached[p]:
		case named[p]:
			waiting++
		default:
			return p, a.store.putLastPort(p)
		}
	}
	if waiting > 0 {
		return 0, agentapi.Errorf(agentapi.CodeTryAgain, "no port of the node's switch is free: %d of %d had pods that are deleted, and the controller has not removed their rights yet. See whether a controller leads (netcraqctl status)", waiting, count)
	}
	return 0, agentapi.Errorf(agentapi.CodeTryAgain, "all %d ports of the node's switch are taken", count)
}

// Reconcile makes records and interfaces agree after the agent's start. It undoes unfinished
// attachments, and forgets attachments whose interface has gone. It makes the existing interfaces
// ports of the switch again. It continues after a failure, and its error names all failures.
func (a *Agent) Reconcile() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	records, err := a.store.all()
	if err != nil {
		a.log.Error("unreadable attachment records: GC will remove their interfaces", "err", err)
	}
	var failed []string
	for name, r := range records {
		l, err := linkOf(r)
		switch {
		case err == nil && r.State == agentapi.Ready:
			if err = a.guard(l.Attrs().Index, r); err == nil {
				err = a.opts.Switch.AddPort(r.Port, r.Host.Name)
			}
			a.records[name] = r
		case err == nil || isNotFound(err):
			a.log.Info("an attachment that was not finished, or whose container has gone", "attachment", r.Attachment, "iface", r.Host.Name, "state", r.State)
			err = a.undo(r)
		}
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s (%s): %v", r.Host.Name, r.Attachment, err))
		}
	}
	a.changed()
	if others, err := a.unrecorded(); err == nil {
		for _, l := range others {
			a.log.Warn("an interface of the agent without a record: left to GC, since a container may use it", "iface", l.Attrs().Name, "alias", l.Attrs().Alias)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d attachments are not as they were: %s", len(failed), strings.Join(failed, "; "))
	}
	return nil
}

// unrecorded lists the agent's interfaces that have no record.
func (a *Agent) unrecorded() ([]netlink.Link, error) {
	links, err := netlinkdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	var out []netlink.Link
	for _, l := range links {
		if _, ours := ofAlias(l.Attrs().Alias); ours && l.Type() == "veth" &&
			strings.HasPrefix(l.Attrs().Name, hostPrefix) && a.records[l.Attrs().Name] == nil {
			out = append(out, l)
		}
	}
	return out, nil
}
