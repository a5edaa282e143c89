package ingressfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// The stack filter has these tables, in each address family (ip and ip6). Each table is replaced as
// a whole in one transaction. So at no moment a table is missing.
//
//	table ip netcraq_tunnels {
//	  set tunnels { who may send in which tunnel: address . VNI }
//	  chain input   { udp dport PORT iifname UPLINK ip daddr ADDRESS ip saddr . VNI @tunnels accept; udp dport PORT drop }
//	  chain forward { udp dport PORT drop }
//	  chain prerouting-raw, output-raw { udp dport PORT notrack }
//	  chain postrouting { oifname DEVICE meta mark set mark | INSIDE }
//	  chain output  { udp dport PORT meta skuid != 0 mark & INSIDE == 0 drop; udp dport PORT mark set mark & ~INSIDE }
//	}
//	table ip netcraq_switch {
//	  chain input   { udp sport PORT iifname HOST-END accept; udp sport PORT drop; udp dport PORT drop }
//	  chain forward { udp sport PORT drop; udp dport PORT drop }
//	  chain output  { udp dport PORT meta skuid != 0 drop }
//	  chain prerouting-nat, output-nat { udp dport PORT dnat to ip daddr }
//	}
//
// Each chain except postrouting begins with a rule that accepts everything but UDP.
//
// Only root's processes may send tunnel packets, because the other node would take them for this
// node's. But the kernel keeps a packet's socket when it puts the packet into a tunnel. So the
// output hook sees tunnel packets with the sockets of the processes whose packets are inside. The
// chain postrouting marks these packets before the kernel encapsulates them. Only privileged
// processes can set a mark themselves.
//
// The chains before routing (prerouting and output) exempt these ports from NAT. Otherwise a
// Service with the node's address among its externalIPs, or a pod with a hostPort, would get tunnel
// packets and the requests of the node's own processes. Tunnel packets are neither tracked nor
// translated. Requests are tracked, so that a firewall that accepts replies also accepts the
// switch's. Their destination is translated to itself, because the kernel translates a packet only
// once.
//
// The node forwards none of these packets, because tunnels begin and end at the nodes, and only
// switches forward NetCRAQ packets. If this node forwarded such a packet of a pod, the next node
// would take it for a packet of this node. At the hooks input and forward, the kernel has unwrapped
// packets completely, and they have their real destination. The kernel has already replaced the
// address of a Service by that of an endpoint, which any user who may create Services can choose.
const (
	TunnelsTable = "netcraq_tunnels"
	SwitchTable  = "netcraq_switch"
)

// Tunnel is a tunnel in which another node may send packets.
type Tunnel struct {
	Peer netip.Addr // address of the other node, IPv4 or IPv6
	VNI  uint32     // the tunnel's network identifier, 24 bits
}

// TunnelEnd is the address and the interface at which tunnels end on a node.
type TunnelEnd struct {
	Address netip.Addr // the node's address, IPv4 or IPv6
	Uplink  string     // interface at which tunnel packets arrive
}

// Tunnels says which VXLAN packets a node accepts.
type Tunnels struct {
	Port uint16      // the tunnels' UDP port
	Ends []TunnelEnd // one end for each address family that has tunnels
	From []Tunnel
	// Devices are the interfaces through which the node's own processes send into tunnels.
	Devices []string
}

// family has the offsets and lengths of an address family for nftables, in bytes.
type family struct {
	table       nftables.TableFamily
	address     nftables.SetDatatype
	source      uint32
	destination uint32
	length      uint32
	// second is the register for the second part of a key. The key's first part is an address in
	// firstRegister.
	second uint32
}

// Offsets of addresses in IPv4 headers (RFC 791) and IPv6 headers (RFC 8200). A register of 16
// bytes consists of four registers of 32 bits. The first one begins at REG32_00, the next one at
// REG32_04.
var (
	ipv4 = family{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4, unix.NFT_REG32_01}
	ipv6 = family{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16, unix.NFT_REG32_04}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// families returns the address families that this kernel supports. Every Linux supports IPv4.
func families() []family {
	if _, err := os.Stat("/proc/sys/net/ipv6"); errors.Is(err, os.ErrNotExist) {
		return []family{ipv4}
	}
	return []family{ipv4, ipv6}
}

// Offsets in bytes, from the beginning of the UDP header, of its ports (RFC 768) and of VXLAN's
// identifier (RFC 7348). The identifier has three bytes. The byte after it is reserved and is 0.
const (
	sportOffset = 0
	dportOffset = 2
	vniOffset   = 8 + 4
)

const firstRegister = unix.NFT_REG_1

// check returns an error if the tunnels make no sense.
func (t Tunnels) check() error {
	ends := map[nftables.TableFamily]bool{}
	for _, e := range t.Ends {
		if !e.Address.IsValid() || e.Address.Is4In6() || e.Uplink == "" || len(e.Uplink) >= unix.IFNAMSIZ {
			return fmt.Errorf(
				"filtering tunnels: they end at the address of an interface, not at %s of %q (the uplink)", e.Address, e.Uplink)
		}
		f := familyOf(e.Address).table
		if ends[f] {
			return fmt.Errorf("filtering tunnels: they end at one address of a family, and %s is another", e.Address)
		}
		ends[f] = true
	}
	for _, f := range t.From {
		if !f.Peer.IsValid() || f.Peer.Is4In6() || f.VNI >= 1<<24 || !ends[familyOf(f.Peer).table] {
			return fmt.Errorf("filtering tunnels: there is none from %s with the identifier %d", f.Peer, f.VNI)
		}
	}
	return nil
}

// ApplyTunnels puts Tunnels into effect in the calling thread's network namespace. If an address
// family has no end in t, it drops all tunnel packets of this family.
func ApplyTunnels(t Tunnels) error {
	if err := t.check(); err != nil {
		return err
	}
	return replace(TunnelsTable, func(w *table) error {
		input := w.chain("input", nftables.ChainHookInput)
		for _, e := range t.Ends {
			if familyOf(e.Address) != w.family {
				continue
			}
			keys := map[Tunnel]bool{}
			var elements []nftables.SetElement
			for _, f := range t.From {
				if familyOf(f.Peer) == w.family && !keys[f] {
					keys[f] = true
					elements = append(elements,
						nftables.SetElement{Key: binary.BigEndian.AppendUint32(f.Peer.AsSlice(), f.VNI<<8)})
				}
			}
			// nft needs a key type with a length. With the type "integer" it aborts, even at `nft
			// list ruleset` (nft 1.0.6). With this type, nft shows the identifier as a mark.
			set := &nftables.Set{Table: w.table, Name: "tunnels",
				KeyType: nftables.MustConcatSetType(w.family.address, nftables.TypeMark)}
			if err := w.conn.AddSet(set, elements); err != nil {
				return err
			}
			w.rule(input, expr.VerdictAccept, port(dportOffset, t.Port), iifname(e.Uplink),
				w.network(w.family.destination), equal(e.Address.AsSlice()), w.network(w.family.source),
				[]expr.Any{&expr.Payload{DestRegister: w.family.second,
					Base: expr.PayloadBaseTransportHeader, Offset: vniOffset, Len: 4},
					&expr.Lookup{SourceRegister: firstRegister, SetName: set.Name, SetID: set.ID}})
		}
		w.rule(input, expr.VerdictDrop, port(dportOffset, t.Port))
		w.rule(w.chain("forward", nftables.ChainHookForward), expr.VerdictDrop,
			port(dportOffset, t.Port))
		for name, hook := range beforeRouting {
			w.rule(w.chainOf(nftables.ChainTypeFilter, name+"-raw", hook, nftables.ChainPriorityRaw),
				expr.VerdictAccept, port(dportOffset, t.Port), []expr.Any{&expr.Notrack{}})
		}
		postrouting := w.base(nftables.ChainTypeFilter, "postrouting", nftables.ChainHookPostrouting,
			nftables.ChainPriorityFilter)
		for _, d := range t.Devices {
			w.rule(postrouting, expr.VerdictAccept, named(expr.MetaKeyOIFNAME, d), setMark(^uint32(inside), inside))
		}
		output := w.chain("output", nftables.ChainHookOutput)
		w.rule(output, expr.VerdictDrop, port(dportOffset, t.Port), notOfRoot(), withoutMark(inside))
		w.rule(output, expr.VerdictAccept, port(dportOffset, t.Port), setMark(^uint32(inside), 0))
		return nil
	})
}

// inside is a bit of a packet's mark. It is set when the packet is put into a tunnel, and cleared
// when the tunnel packet is sent.
const inside = 1 << 12

// SwitchMark is a bit of a packet's mark. The node's switch sets it on its packets, so that the
// filter of AttachEgress recognizes them. A pod cannot set it, because the kernel clears marks
// between network namespaces. It is the same bit as inside, because the stack filter clears that
// bit after the packet was put into a tunnel.
const SwitchMark = inside

// mark returns expressions that load the bits of a packet's mark that are in keep, and flip the
// bits that are in flip.
func mark(keep, flip uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: firstRegister},
		&expr.Bitwise{SourceRegister: firstRegister, DestRegister: firstRegister, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(keep), Xor: binaryutil.NativeEndian.PutUint32(flip)}}
}

// setMark sets a packet's mark to the result of mark.
func setMark(keep, flip uint32) []expr.Any {
	return append(mark(keep, flip),
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: firstRegister})
}

// withoutMark matches packets whose mark has none of these bits.
func withoutMark(bits uint32) []expr.Any {
	return append(mark(bits, 0), equal(make([]byte, 4))...)
}

// TunnelsFiltered reports whether ApplyTunnels was called in the calling thread's network
// namespace, by an agent that supports all address families of this kernel.
func TunnelsFiltered() (bool, error) { return TablePresent(TunnelsTable) }

// TablePresent reports whether nftables has tables of this name in the calling thread's network
// namespace. There must be one for each address family of this kernel.
func TablePresent(name string) (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("reaching nftables: %w", err)
	}
	return isThere(conn, name)
}

// isThere reports whether tables of a name exist in all address families.
func isThere(conn *nftables.Conn, name string) (bool, error) {
	var all []nftables.TableFamily
	for _, f := range families() {
		all = append(all, f.table)
	}
	return nftwatch.Present(conn, name, all...)
}

// RemoveTunnels removes the tables of ApplyTunnels.
func RemoveTunnels() error { return remove(TunnelsTable) }

// ApplySwitch makes the node's own stack accept NetCRAQ packets, of a UDP port, only from the
// switch. hostEnd is the interface where the switch's answers to the node's own processes arrive.
// All other NetCRAQ packets that reach the stack have bypassed the switch. Only root's processes on
// the node may send requests to the switch. The reason is that the switch sees all processes of the
// node as one host, with the rights of the agent and the gateway.
func ApplySwitch(udpPort uint16, hostEnd string) error {
	return replace(SwitchTable, func(w *table) error {
		input, forward := w.chain("input", nftables.ChainHookInput),
			w.chain("forward", nftables.ChainHookForward)
		w.rule(input, expr.VerdictAccept, port(sportOffset, udpPort), iifname(hostEnd))
		for _, chain := range []*nftables.Chain{input, forward} {
			w.rule(chain, expr.VerdictDrop, port(sportOffset, udpPort))
			w.rule(chain, expr.VerdictDrop, port(dportOffset, udpPort))
		}
		w.rule(w.chain("output", nftables.ChainHookOutput), expr.VerdictDrop,
			port(dportOffset, udpPort), notOfRoot())
		for name, hook := range beforeRouting {
			c := w.chainOf(nftables.ChainTypeNAT, name+"-nat", hook, beforeOthersNAT)
			w.rule(c, expr.VerdictAccept, port(dportOffset, udpPort), w.network(w.family.destination),
				[]expr.Any{&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(w.family.table),
					RegAddrMin: firstRegister}})
		}
		return nil
	})
}

// beforeRouting has the hooks at which the kernel may translate a packet's destination.
var beforeRouting = map[string]*nftables.ChainHook{
	"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput}

// beforeOthersNAT is a priority after connection tracking (-200), and before iptables and
// kube-proxy translate destinations (-100).
var beforeOthersNAT = nftables.ChainPriorityRef(-150)

// RemoveSwitch removes the tables of ApplySwitch.
func RemoveSwitch() error { return remove(SwitchTable) }

type table struct {
	conn   *nftables.Conn
	table  *nftables.Table
	family family
}

// replace replaces the tables of a name in all address families.
func replace(name string, write func(*table) error) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	made.Lock()
	defer made.Unlock()
	here, err := madeHere()
	if err == nil {
		err = writeAll(conn, name, write)
	}
	if err == nil {
		here[name] = write
	}
	return err
}

// writeAll is like replace, on a given connection.
func writeAll(conn *nftables.Conn, name string, write func(*table) error) error {
	var err error
	for _, f := range families() {
		w := &table{conn, &nftables.Table{Family: f.table, Name: name}, f}
		conn.AddTable(w.table) // if the table does not exist, DelTable would fail
		conn.DelTable(w.table)
		conn.AddTable(w.table)
		if err = write(w); err != nil {
			break
		}
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf(
			"writing the table %s with nftables (the kernel needs CONFIG_NF_TABLES, CONFIG_NFT_CT and CONFIG_NFT_NAT): %w", name, err)
	}
	return nil
}

func remove(name string) error {
	made.Lock()
	defer made.Unlock()
	here, err := madeHere()
	if err != nil {
		return err
	}
	delete(here, name)
	var errs []error
	for _, f := range families() {
		conn, err := nftables.New()
		if err != nil {
			return fmt.Errorf("reaching nftables: %w", err)
		}
		conn.DelTable(&nftables.Table{Family: f.table, Name: name})
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing the table %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// chain makes a chain whose first rule accepts everything but UDP. The rule saves time, because
// most packets of a node are not UDP.
func (w *table) chain(name string, hook *nftables.ChainHook) *nftables.Chain {
	return w.chainOf(nftables.ChainTypeFilter, name, hook, nftables.ChainPriorityFilter)
}

// chainOf is like chain, with a given type and priority.
func (w *table) chainOf(kind nftables.ChainType, name string, hook *nftables.ChainHook,
	at *nftables.ChainPriority) *nftables.Chain {
	c := w.base(kind, name, hook, at)
	w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: c, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Verdict{Kind: expr.VerdictAccept}}})
	return c
}

// base makes a chain without rules at a hook.
func (w *table) base(kind nftables.ChainType, name string, hook *nftables.ChainHook,
	at *nftables.ChainPriority) *nftables.Chain {
	return w.conn.AddChain(&nftables.Chain{Table: w.table, Name: name, Type: kind, Hooknum: hook, Priority: at})
}

func (w *table) rule(chain *nftables.Chain, verdict expr.VerdictKind, matches ...[]expr.Any) {
	var all []expr.Any
	for _, m := range matches {
		all = append(all, m...)
	}
	all = append(all, &expr.Counter{}, &expr.Verdict{Kind: verdict})
	w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: chain, Exprs: all})
}

func equal(b []byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: expr.CmpOpEq, Register: firstRegister, Data: b}}
}

// notOfRoot matches packets from a socket of a user other than root. It does not match packets
// without a socket, which the kernel has made.
func notOfRoot() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeySKUID, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: make([]byte, 4)}}
}

func iifname(name string) []expr.Any { return named(expr.MetaKeyIIFNAME, name) }

// named matches packets whose incoming or outgoing interface has this name.
func named(direction expr.MetaKey, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return append([]expr.Any{&expr.Meta{Key: direction, Register: firstRegister}}, equal(padded)...)
}

func port(offset uint32, number uint16) []expr.Any {
	return append([]expr.Any{&expr.Payload{DestRegister: firstRegister,
		Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}},
		equal(binaryutil.BigEndian.PutUint16(number))...)
}

// network loads one of the two addresses in a packet's IP header.
func (w *table) network(offset uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: firstRegister, Base: expr.PayloadBaseNetworkHeader,
		Offset: offset, Len: w.family.length}}
}
