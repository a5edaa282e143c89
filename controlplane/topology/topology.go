// Package topology reads and checks the file that describes a NetCRAQ network: switches, links,
// hosts and chains. It derives each switch's neighbours, the path from each switch to each address,
// which ports lead to hosts, and the tree along which acknowledgements travel. The same file always
// gives the same network.
//
// The file is YAML (or JSON, which is also YAML). example.yaml next to this file is a commented
// example. Each mistake is reported with its line, the object and what to do about it, and all
// mistakes are reported at once.
package topology

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// These are limits of the P4 program and of P4Runtime targets.
const (
	MaxPort   = 509 // ports have 9 bits; 510 is the controller's (CPU) port, 511 means drop
	CPUPort   = 510
	MaxChains = 256 // the chain is the top byte of a KEY_ID
)

// DefaultRejoin is how long a lost member must have been steady before it is brought in again, if
// the file gives no other time.
const DefaultRejoin = 3 * time.Second

// DefaultController is the controller's own address in the data plane, unless the file gives
// another address. It is link-local (RFC 3927), so no host has it. Its last two bytes are the
// letters "NC" (78 and 67).
var DefaultController = netip.MustParseAddr("169.254.78.67")

// Topology is the checked content of a topology file.
type Topology struct {
	Program    Program
	TLS        TLS
	Controller Controller
	Sessions   Sessions
	Switches   []*Switch // the switches, in the order of the file
	Hosts      []*Host
	Chains     []*Chain
	Realms     []Realm
	Grants     []Grant // sorted by principal and realm

	switches map[string]*Switch
}

// Program is the compiled P4 program that all switches run.
type Program struct {
	ValueBits int    // 0 stands for the value in the P4Info
	JSON      string // a path, which is already resolved if it was relative to the file
	P4Info    string
}

// TLS names the PEM files for connections to the switches' P4Runtime servers. They hold the
// controller's certificate, and the CA that signs the switches' certificates. With the zero TLS,
// the connections use plain text.
type TLS struct {
	CA   string // file with the CA of the switches' certificates
	Cert string // file with the controller's own certificate; "" if switches require none
	Key  string // file with the key of Cert
}

// Controller describes the controller in the data plane.
type Controller struct {
	// source address of the controller's packets; switches send packets to this address to the
	// controller
	Address netip.Addr
}

// Sessions divides the session ids.
type Sessions struct {
	Controller int           // ids 1 to Controller are the controller's own
	Last       int           // the last id for clients; 0: the last id of the program
	TTL        time.Duration // time within which a client must renew its lease on sessions
}

// Switch is one P4Runtime device.
type Switch struct {
	Name      string
	P4Runtime string // HOST:PORT of the P4Runtime server
	// ServerName is the name that the certificate of the switch's P4Runtime server must have, if
	// there is TLS. If it is "", the certificate must be for the host in P4Runtime.
	ServerName string
	DeviceID   uint64
	Address    netip.Addr       // the switch's own address in the data plane
	MAC        net.HardwareAddr // Ethernet address of the switch
	// Prefixes are prefixes whose addresses all belong to hosts of this switch, such as the pods of
	// a Kubernetes node. Other switches have one route for each prefix, and no routes for its
	// hosts.
	Prefixes []netip.Prefix
	Ports    []Port // the ports, sorted by number
}

// Covers reports whether an address is in one of the switch's prefixes.
func (s *Switch) Covers(a netip.Addr) bool {
	return slices.ContainsFunc(s.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Port is a port of a switch. At most one of Peer and Host is set. If neither is set, the port
// leads nowhere (yet), and is treated as the port of a host.
type Port struct {
	Number   uint32
	Peer     *Switch // the switch at the other end
	PeerPort uint32  // the port of Peer
	Host     *Host
}

// LeadsTo describes the other end of the port's link, for people.
func (p Port) LeadsTo() string {
	switch {
	case p.Peer != nil:
		return fmt.Sprintf("switch %s port %d", p.Peer.Name, p.PeerPort)
	case p.Host != nil:
		return "host " + p.Host.Name
	}
	return ""
}

// Host is a machine (or pod) at a switch port.
type Host struct {
	Name   string
	IP     netip.Addr
	MAC    net.HardwareAddr
	Switch *Switch
	Port   uint32

	// Principal names the sender of the host's requests for access control (docs/security.md). If
	// it is "", the host's port is closed.
	Principal string
	// Open marks a host of a lab network that the file does not restrict. It may do everything,
	// even with sessions that it has not leased.
	Open bool
	// Rate limits the NetCRAQ packets that the host may send, per second. 0 means no limit.
	Rate int
}

// Chain is a chain as the topology file describes it.
type Chain struct {
	Name    string
	ID      uint8
	Address netip.Addr    // the chain's service address
	Members []string      // ordered from head to tail
	Lease   time.Duration // length of a lease; 0: no leases
	// Patience is how long a member may be out of the controller's reach before the chain continues
	// without it. 0 means until an operator decides.
	Patience time.Duration
	// ShortLease is the length of leases while everything is prompt, and ShortPatience is the
	// Patience during that time. If they are 0, Lease and Patience always apply.
	ShortLease, ShortPatience time.Duration
	// Rejoin is how long a lost member must have been steady, the first time, before it is brought
	// in again. 0 means until an operator decides.
	Rejoin time.Duration
	// Length is how many members the chain should have, if another program chooses the members. If
	// it is 0, the operator determines the number of members.
	Length int
	Slots  int // number of key slots that the chain may use; 0: a share of the program's slots
}

// Switch returns the switch with the given name, or nil if there is none.
func (t *Topology) Switch(name string) *Switch { return t.switches[name] }

// Port returns the port with a number.
func (s *Switch) Port(number uint32) (Port, bool) {
	i, ok := slices.BinarySearchFunc(s.Ports, number, func(p Port, n uint32) int { return cmp.Compare(p.Number, n) })
	if !ok {
		return Port{}, false
	}
	return s.Ports[i], true
}

// Equal reports whether two topologies are the same.
func (t *Topology) Equal(o *Topology) bool {
	same := t.Program == o.Program && t.TLS == o.TLS && t.Controller == o.Controller && t.Sessions == o.Sessions
	return same && slices.EqualFunc(t.Switches, o.Switches, equalSwitches) &&
		slices.EqualFunc(t.Hosts, o.Hosts, func(a, b *Host) bool {
			return a.Name == b.Name && a.IP == b.IP && bytes.Equal(a.MAC, b.MAC) &&
				a.Switch.Name == b.Switch.Name && a.Port == b.Port &&
				a.Principal == b.Principal && a.Open == b.Open && a.Rate == b.Rate
		}) && slices.Equal(t.Grants, o.Grants) && slices.EqualFunc(t.Realms, o.Realms, Realm.Equal) &&
		slices.EqualFunc(t.Chains, o.Chains, func(a, b *Chain) bool {
			return a.Name == b.Name && a.ID == b.ID && a.Address == b.Address &&
				slices.Equal(a.Members, b.Members) && a.Lease == b.Lease && a.Patience == b.Patience &&
				a.ShortLease == b.ShortLease && a.ShortPatience == b.ShortPatience &&
				a.Rejoin == b.Rejoin && a.Length == b.Length && a.Slots == b.Slots
		})
}

func equalSwitches(a, b *Switch) bool {
	return a.Name == b.Name && a.P4Runtime == b.P4Runtime && a.ServerName == b.ServerName &&
		a.DeviceID == b.DeviceID && a.Address == b.Address && bytes.Equal(a.MAC, b.MAC) &&
		slices.Equal(a.Prefixes, b.Prefixes) && slices.EqualFunc(a.Ports, b.Ports, func(a, b Port) bool {
		return a.Number == b.Number && a.PeerPort == b.PeerPort && a.LeadsTo() == b.LeadsTo()
	})
}

// Keeping returns the topology plus the named switches of an earlier topology, which some chain
// still needs. These switches have no hosts. A link of such a switch remains if its other end
// exists and leads nowhere else now. Keeping fails if such a switch has an address or id that
// another object has now.
func (t *Topology) Keeping(old *Topology, names []string) (*Topology, error) {
	kept := *t
	kept.Switches, kept.Hosts, kept.switches = nil, nil, map[string]*Switch{}
	add := func(s *Switch) {
		c := *s
		c.Ports = nil
		kept.Switches = append(kept.Switches, &c)
		kept.switches[c.Name] = &c
	}
	for _, s := range t.Switches {
		add(s)
	}
	for _, s := range old.Switches {
		if t.switches[s.Name] != nil || !slices.Contains(names, s.Name) {
			continue
		}
		if owner := t.owner(s); owner != "" {
			return nil, fmt.Errorf("%s of %s is that of switch %s, which has left and is still needed by a chain: try again when it is not", s.Address, owner, s.Name)
		}
		add(s)
		kept.switches[s.Name].Prefixes = nil
	}
	for _, from := range []*Topology{t, old} {
		for _, s := range from.Switches {
			a := kept.switches[s.Name]
			for _, p := range s.Ports {
				if a == nil {
					break
				}
				if _, taken := a.Port(p.Number); taken {
					continue
				}
				switch {
				case p.Peer != nil && kept.switches[p.Peer.Name] != nil &&
					(from == t || t.switches[s.Name] == nil || t.switches[p.Peer.Name] == nil):
					b := kept.switches[p.Peer.Name]
					if other, taken := b.Port(p.PeerPort); taken && other.Peer != a {
						continue
					}
					a.addPort(Port{Number: p.Number, Peer: b, PeerPort: p.PeerPort})
					if _, both := b.Port(p.PeerPort); !both {
						b.addPort(Port{Number: p.PeerPort, Peer: a, PeerPort: p.Number})
					}
				case from == old:
				case p.Host != nil:
					h := *p.Host
					h.Switch = a
					a.addPort(Port{Number: p.Number, Host: &h})
				default:
					a.addPort(Port{Number: p.Number})
				}
			}
		}
	}
	for _, h := range t.Hosts {
		p, _ := kept.switches[h.Switch.Name].Port(h.Port)
		kept.Hosts = append(kept.Hosts, p.Host)
	}
	return &kept, nil
}

// owner returns the object of the topology that has a switch's address, MAC address, or P4Runtime
// server. It returns "" if there is none.
func (t *Topology) owner(s *Switch) string {
	for _, o := range t.Switches {
		if o.Address == s.Address || bytes.Equal(o.MAC, s.MAC) ||
			o.P4Runtime == s.P4Runtime && o.DeviceID == s.DeviceID {
			return "switch " + o.Name
		}
	}
	for _, h := range t.Hosts {
		if h.IP == s.Address || bytes.Equal(h.MAC, s.MAC) {
			return "host " + h.Name
		}
	}
	for _, c := range t.Chains {
		if c.Address == s.Address {
			return "chain " + c.Name
		}
	}
	return ""
}

// SwitchByAddress returns the switch that has the given address, or nil if there is none.
func (t *Topology) SwitchByAddress(a netip.Addr) *Switch {
	for _, s := range t.Switches {
		if s.Address == a {
			return s
		}
	}
	return nil
}

// HostByAddress returns the host that has the given address, or nil if there is none.
func (t *Topology) HostByAddress(a netip.Addr) *Host {
	return t.Host(func(h *Host) bool { return h.IP == a })
}

// Chain returns the chain with the given name, or nil if there is none.
func (t *Topology) Chain(name string) *Chain {
	for _, c := range t.Chains {
		if c.Name == name {
			return c
		}
	}
	return nil
}
