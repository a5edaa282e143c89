package topology

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (p *parser) program(f *Spec) {
	p.t.Program = Program{JSON: f.Program.JSON, P4Info: f.Program.P4Info}
	if f.Program.Profile != "" {
		switch bits, err := strconv.Atoi(f.Program.Profile); {
		case err == nil && slices.Contains([]int{128, 1024, 4096, 8192}, bits):
			p.t.Program.ValueBits = bits
		default:
			p.add("program.profile", f.Program.Profile, "the profile is the width of a value in bits: 128, 1024, 4096 or 8192")
		}
	}
	if f.Program.JSON == "" {
		p.add("program.json", "", "give the path of the compiled program (the JSON that p4c wrote)")
	}
	if f.Program.P4Info == "" {
		p.add("program.p4info", "", "give the path of the program's P4Info")
	}
}

func (p *parser) tls(f *Spec) {
	p.t.TLS = TLS(f.TLS)
	switch t := f.TLS; {
	case (t.Cert == "") != (t.Key == ""):
		p.add("p4runtimeTLS", "", "a certificate and its key go together: give both cert and key, or neither")
	case t.Cert != "" && t.CA == "":
		p.add("p4runtimeTLS", "", "give ca, too: the certificates that sign those of the switches")
	}
}

func (p *parser) controller(f *Spec) {
	p.t.Controller.Address = DefaultController
	if f.Controller.Address != "" {
		p.t.Controller.Address = p.address("controller.address", "", f.Controller.Address, "the controller")
	} else {
		p.addresses[DefaultController] = "the controller (by default)"
	}
	s := Sessions{Controller: ControllerSessions, Last: f.Sessions.Last, TTL: 30 * time.Second}
	if c := f.Sessions.Controller; c != nil {
		s.Controller = *c
		if *c < 1 || *c > ControllerSessions {
			p.add("sessions.controller", fmt.Sprint(*c), "the controller needs between 1 and %d sessions: as many as it may write keys at a time, and no more than the program keeps for it",
				ControllerSessions)
		}
	}
	if s.Last != 0 && (s.Last <= s.Controller || s.Last > 0xFFFF) {
		p.add("sessions.last", fmt.Sprint(s.Last), "the last session id for clients must be above the controller's own (%d) and at most 65535", s.Controller)
	}
	if ttl := f.Sessions.TTLSeconds; ttl != nil {
		s.TTL = time.Duration(*ttl) * time.Second
		if *ttl < 1 || *ttl > 86400 {
			p.add("sessions.ttlSeconds", fmt.Sprint(*ttl), "give between 1 and 86400 seconds")
		}
	}
	p.t.Sessions = s
}

// address reads an IPv4 address that must be unique to owner.
func (p *parser) address(path, what, s, owner string) netip.Addr {
	a, err := netip.ParseAddr(s)
	switch {
	case s == "":
		p.add(path, what, "give an IPv4 address")
	case err != nil || !a.Is4():
		p.add(path, what, "%q is not an IPv4 address (such as 10.0.0.1, without a prefix length)", s)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() && !p.loopback ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		p.add(path, what, "%s cannot be an address in the data plane: give a unicast one", s)
	case p.addresses[a] != "":
		p.add(path, what, "the address %s is that of %s already: each switch, host and chain needs its own", s, p.addresses[a])
	default:
		p.addresses[a] = owner
	}
	return a
}

// mac reads the MAC address of owner. A switch's MAC address must be unique in the whole network. A
// host's MAC address must be unique at its switch. Only a host's switch uses the host's MAC
// address, so hosts of different switches may have the same address.
func (p *parser) mac(path, what, s, owner, at string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	taken := cmp.Or(p.macs[m.String()], p.macs[at+" "+m.String()])
	switch {
	case s == "":
		p.add(path, what, "give a MAC address (such as 02:00:00:00:00:01)")
	case err != nil || len(m) != 6:
		p.add(path, what, "%q is not a MAC address of 48 bits (such as 02:00:00:00:00:01)", s)
	case m[0]&1 != 0:
		p.add(path, what, "%s is a multicast address: a MAC address of one interface has an even first byte", s)
	case taken != "":
		p.add(path, what, "the MAC address %s is that of %s already", s, taken)
	case at != "":
		p.macs[at+" "+m.String()] = owner
	default:
		p.macs[m.String()] = owner
	}
	return m
}

// objectName checks a name and reports whether it can be used.
func (p *parser) objectName(path, name, kind string, taken bool) bool {
	if strings.Contains(name, ":") { // names must not contain colons, because a port is written SWITCH:PORT
		p.add(path, name, "a name may not contain a colon, a slash or white space")
		return false
	}
	return p.authorityName(path, name, kind, taken)
}

// authorityName checks the name of a principal or a realm. The name may have a prefix that ends
// with a colon, as in ns:team.
func (p *parser) authorityName(path, name, kind string, taken bool) bool {
	switch {
	case name == "":
		p.add(path, "", "give the %s a name", kind)
	case strings.ContainsAny(name, " \t\n/"):
		p.add(path, name, "a name may not contain a slash or white space")
	case taken:
		p.add(path, name, "there is another %s of this name: rename one", kind)
	default:
		return true
	}
	return false
}

func (p *parser) addSwitch(i int, f *SwitchSpec) {
	path := fmt.Sprintf("switches[%d]", i)
	if !p.objectName(path+".name", f.Name, "switch", p.t.switches[f.Name] != nil) {
		return
	}
	s := &Switch{Name: f.Name, P4Runtime: f.P4Runtime, ServerName: f.Server, DeviceID: uint64(i + 1)}
	if f.DeviceID != nil {
		s.DeviceID = *f.DeviceID
	}
	if _, port, err := net.SplitHostPort(f.P4Runtime); err != nil || port == "" {
		p.add(path+".p4runtime", f.Name, "%q is not host:port: give the address of the switch's P4Runtime server (--grpc-server-addr)", f.P4Runtime)
	}
	for _, other := range p.t.Switches {
		if other.P4Runtime == s.P4Runtime && other.DeviceID == s.DeviceID {
			p.add(path+".p4runtime", f.Name, "%s has the same P4Runtime address and device id: they would be one switch", other.Name)
		}
	}
	s.Address = p.address(path+".address", f.Name, f.Address, "switch "+f.Name)
	if f.MAC != "" {
		s.MAC = p.mac(path+".mac", f.Name, f.MAC, "switch "+f.Name, "")
	} else if s.Address.Is4() { // this address is locally administered, and unique because it contains the IPv4 address
		a := s.Address.As4()
		s.MAC = net.HardwareAddr{0x02, 0x4E, a[0], a[1], a[2], a[3]}
		if p.macs[s.MAC.String()] == "" {
			p.macs[s.MAC.String()] = "switch " + f.Name
		}
	}
	for n, text := range f.Prefixes {
		p.addPrefix(fmt.Sprintf("%s.prefixes[%d]", path, n), s, text)
	}
	p.t.Switches = append(p.t.Switches, s)
	p.t.switches[s.Name] = s
}

// addPrefix reads a prefix whose addresses all belong to hosts of one switch.
func (p *parser) addPrefix(path string, s *Switch, text string) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() || prefix != prefix.Masked() {
		p.add(path, s.Name, "%q is not an IPv4 prefix (such as 10.244.1.0/24)", text)
		return
	}
	for _, other := range append(slices.Clone(p.t.Switches), s) {
		for _, x := range other.Prefixes {
			if x.Overlaps(prefix) {
				p.add(path, s.Name, "%v overlaps %v of %s: an address is behind one switch", prefix, x, other.Name)
				return
			}
		}
	}
	s.Prefixes = append(s.Prefixes, prefix)
}

// endpoint reads "s1:2" and returns the switch and the port, if the port is free.
func (p *parser) endpoint(path, what, s string) (*Switch, uint32, bool) {
	name, number, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(number)
	sw := p.t.switches[name]
	switch {
	case !ok || err != nil:
		p.add(path, what, "%q is not SWITCH:PORT (such as s1:2)", s)
		return nil, 0, false
	case sw == nil:
		p.add(path, what, "there is no switch %q: %s", name, p.switchNames())
		return nil, 0, false
	case n < 1 || n > MaxPort:
		p.add(path, what, "port %d: port numbers are 1 to %d (510 is the controller's port, 511 means drop)", n, MaxPort)
		return nil, 0, false
	}
	if port, taken := sw.Port(uint32(n)); taken {
		p.add(path, what, "port %d of %s leads to %s already: a port has one cable", n, name, port.LeadsTo())
		return nil, 0, false
	}
	return sw, uint32(n), true
}

func (p *parser) switchNames() string {
	var names []string
	for _, s := range p.t.Switches {
		names = append(names, s.Name)
	}
	return "the switches are " + strings.Join(names, ", ")
}

func (s *Switch) addPort(port Port) {
	i, _ := slices.BinarySearchFunc(s.Ports, port, func(a, b Port) int { return int(a.Number) - int(b.Number) })
	s.Ports = slices.Insert(s.Ports, i, port)
}

func (p *parser) addLink(i int, ends []string) {
	path := fmt.Sprintf("links[%d]", i)
	what := strings.Join(ends, " - ")
	if len(ends) != 2 {
		p.add(path, what, "a link has two ends, such as [s1:2, s2:1]")
		return
	}
	a, aPort, ok := p.endpoint(path, what, ends[0])
	if !ok {
		return
	}
	b, bPort, ok := p.endpoint(path, what, ends[1])
	if !ok {
		return
	}
	if a == b {
		p.add(path, what, "both ends are at %s: a link joins two switches", a.Name)
		return
	}
	a.addPort(Port{Number: aPort, Peer: b, PeerPort: bPort})
	b.addPort(Port{Number: bPort, Peer: a, PeerPort: aPort})
}

func (p *parser) addHost(i int, f *HostSpec) {
	path := fmt.Sprintf("hosts[%d]", i)
	taken := p.t.switches[f.Name] != nil || slices.ContainsFunc(p.t.Hosts, func(h *Host) bool {
		return h.Name == f.Name
	})
	if !p.objectName(path+".name", f.Name, "host or switch", taken) {
		return
	}
	h := &Host{Name: f.Name}
	h.IP = p.address(path+".ip", f.Name, f.IP, "host "+f.Name)
	at, _, _ := strings.Cut(f.Port, ":")
	h.MAC = p.mac(path+".mac", f.Name, f.MAC, "host "+f.Name, at)
	var ok bool
	if h.Switch, h.Port, ok = p.endpoint(path+".port", f.Name, f.Port); !ok {
		return
	}
	for _, s := range p.t.Switches {
		if s != h.Switch && s.Covers(h.IP) {
			p.add(path+".ip", f.Name, "%v is in a prefix of %s: it cannot be behind %s", h.IP, s.Name, h.Switch.Name)
		}
	}
	p.authority(path, h, f)
	h.Switch.addPort(Port{Number: h.Port, Host: h})
	p.t.Hosts = append(p.t.Hosts, h)
}

// checkPorts compares a switch's own list of ports, if it has one, with the links and hosts.
func (p *parser) checkPorts(i int, f *SwitchSpec) {
	s := p.t.switches[f.Name]
	if s == nil || f.Ports == nil {
		return
	}
	seen := map[int]bool{}
	for n, fp := range f.Ports {
		path := fmt.Sprintf("switches[%d].ports[%d]", i, n)
		what := fmt.Sprintf("%s port %d", f.Name, fp.Number)
		if fp.Number < 1 || fp.Number > MaxPort {
			p.add(path, what, "port numbers are 1 to %d", MaxPort)
			continue
		}
		if seen[fp.Number] {
			p.add(path, what, "the port is listed twice")
			continue
		}
		seen[fp.Number] = true
		port, connected := s.Port(uint32(fp.Number))
		other := ""
		if port.Peer != nil {
			other = port.Peer.Name
		} else if port.Host != nil {
			other = port.Host.Name
		}
		switch {
		case fp.LeadsTo == other:
		case !connected:
			p.add(path, what, "it should lead to %s, but no link or host says so: add a link [%s:%d, %s:PORT], or a host with port: %s:%d",
				fp.LeadsTo, f.Name, fp.Number, fp.LeadsTo, f.Name, fp.Number)
		case fp.LeadsTo != "":
			p.add(path, what, "it should lead to %s, but links and hosts say %s", fp.LeadsTo, port.LeadsTo())
		}
		if !connected {
			s.addPort(Port{Number: uint32(fp.Number)})
		}
	}
	for _, port := range s.Ports {
		if !seen[int(port.Number)] {
			p.add(fmt.Sprintf("switches[%d].ports", i), f.Name, "port %d leads to %s, but is not in the switch's list of ports: add it, or leave the list out",
				port.Number, port.LeadsTo())
		}
	}
}

func (p *parser) addChain(i int, f *ChainSpec) {
	path := fmt.Sprintf("chains[%d]", i)
	if f.Name == "" && f.ID != nil {
		f.Name = fmt.Sprintf("chain%d", *f.ID)
	}
	if !p.objectName(path+".name", f.Name, "chain", p.t.Chain(f.Name) != nil) {
		return
	}
	if _, err := strconv.Atoi(f.Name); err == nil {
		p.add(path+".name", f.Name, "a chain's name may not be a number: it would be mistaken for an id")
	}
	c := &Chain{Name: f.Name, Slots: f.Slots, Lease: 200 * time.Millisecond}
	switch {
	case f.ID == nil:
		p.add(path+".id", f.Name, "give the chain an id, 0 to %d: it is the top byte of its keys' KEY_IDs", MaxChains-1)
	case *f.ID < 0 || *f.ID >= MaxChains:
		p.add(path+".id", f.Name, "the id %d is not between 0 and %d: it is the top byte of the chain's KEY_IDs", *f.ID, MaxChains-1)
	default:
		c.ID = uint8(*f.ID)
		for _, other := range p.t.Chains {
			if other.ID == c.ID {
				p.add(path+".id", f.Name, "the chain %s has the id %d already", other.Name, c.ID)
			}
		}
	}
	c.Address = p.address(path+".address", f.Name, f.Address, "chain "+f.Name)
	if ms := f.LeaseMillis; ms != nil {
		c.Lease = time.Duration(*ms) * time.Millisecond
		if *ms != 0 && (*ms < 20 || *ms > 60000) {
			p.add(path+".leaseMillis", f.Name, "a lease of %d ms: give 20 to 60000, or 0 for none (the paper's fail-stop assumption)", *ms)
		}
	}
	// Half a lease costs no time, because the chain waits for the lease to run out in any case.
	// Without a lease, the chain assumes that a member that is given up has stopped.
	c.Patience = max(c.Lease/2, 50*time.Millisecond)
	if c.Lease == 0 {
		c.Patience = time.Second
	}
	if ms := f.Patience; ms != nil {
		c.Patience = time.Duration(*ms) * time.Millisecond
		if *ms < 0 || *ms > 3600_000 {
			p.add(path+".patienceMillis", f.Name, "%d ms: give up to 3600000, or 0 to have nobody taken out of the chain but by hand", *ms)
		}
	}
	if ms := f.ShortLease; ms != nil && *ms != 0 {
		c.ShortLease = time.Duration(*ms) * time.Millisecond
		c.ShortPatience = c.Patience
		if f.Patience == nil {
			c.ShortPatience = c.ShortLease / 2
		}
		if *ms < 20 || c.ShortLease >= c.Lease {
			p.add(path+".shortLeaseMillis", f.Name, "%d ms: give from 20 on, and less than leaseMillis (%d), or leave it out to have leases of that at all times", *ms, c.Lease/time.Millisecond)
		}
	}
	c.Rejoin, c.Length = DefaultRejoin, f.Length
	if ms := f.Rejoin; ms != nil {
		c.Rejoin = time.Duration(*ms) * time.Millisecond
		if *ms < 0 || *ms > 3600_000 {
			p.add(path+".rejoinMillis", f.Name, "%d ms: give up to 3600000, or 0 to have nobody brought in again but by hand", *ms)
		}
	}
	if f.Slots < 0 {
		p.add(path+".slots", f.Name, "%d slots: give a number above 0, or leave it out for an equal share of what the program has", f.Slots)
	}
	if len(f.Members) == 0 {
		p.add(path+".members", f.Name, "the chain has no members: list switches, head first and tail last")
	}
	for n, m := range f.Members {
		mp := fmt.Sprintf("%s.members[%d]", path, n)
		switch {
		case p.t.switches[m] == nil:
			p.add(mp, f.Name, "there is no switch %q: %s", m, p.switchNames())
		case slices.Contains(c.Members, m):
			p.add(mp, f.Name, "the switch %s is in the chain twice: a switch has one place in a chain", m)
		default:
			c.Members = append(c.Members, m)
		}
	}
	p.t.Chains = append(p.t.Chains, c)
}

// checkConnected checks that every switch can reach every other.
func (p *parser) checkConnected() {
	g := p.t.Graph(nil)
	first := p.t.Switches[0]
	var cut []string
	for _, s := range p.t.Switches[1:] {
		if _, ok := g.Distance(first.Name, s.Name); !ok {
			cut = append(cut, s.Name)
		}
	}
	if len(cut) > 0 {
		p.add("links", "", "there is no way from %s to %s: is a link missing?", first.Name, strings.Join(cut, ", "))
	}
}
