package ingressfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Tables of the stack filter. Each is replaced as a whole, in one transaction: there is no moment
// without it.
//
//	table ip netcraq_tunnels {
//	  set tunnels { who may send in which tunnel: IPv4 address . VNI }
//	  chain input   { udp dport PORT iifname UPLINK ip daddr ADDRESS ip saddr . VNI @tunnels accept; udp dport PORT drop }
//	  chain forward { udp dport PORT drop }
//	}
//	table ip netcraq_switch {
//	  chain input   { udp sport PORT iifname HOST-END accept; udp sport PORT drop; udp dport PORT drop }
//	  chain forward { udp sport PORT drop; udp dport PORT drop }
//	  chain output  { udp dport PORT meta skuid != 0 drop }
//	}
//
// Each chain begins with a rule that leaves alone what is not UDP.
//
// The node forwards none of these packets for anybody: tunnels begin and end at the nodes, and
// NetCRAQ's packets are the switch's. Somebody who sends them through the node would be taken by
// the next one for this one. At these two hooks packets are as they are after all unwrapping, and
// where they really go: a service's address has given way to one behind it, which a user who may
// make services chooses.
const (
	TunnelsTable = "netcraq_tunnels"
	SwitchTable  = "netcraq_switch"
)

// Tunnel is one that another node may send in.
type Tunnel struct {
	Peer netip.Addr // the other node's address; IPv4
	VNI  uint32     // the tunnel's network identifier, 24 bits
}

// Tunnels say what of VXLAN a node takes.
type Tunnels struct {
	Port    uint16     // the tunnels' UDP port
	Address netip.Addr // the node's, IPv4, that they end at
	Uplink  string     // the interface by which they come
	From    []Tunnel
}

// Offsets in bytes: in IPv4 (RFC 791), UDP (RFC 768), and VXLAN's identifier behind UDP's header
// (RFC 7348), which is three bytes and a reserved one that is 0.
const (
	sourceOffset      = 12
	destinationOffset = 16
	sportOffset       = 0
	dportOffset       = 2
	vniOffset         = 8 + 4
)

// The registers of a key of two parts: the second four bytes of the first 16-byte register are the
// 32-bit register 1.
const (
	firstRegister  = unix.NFT_REG_1
	secondRegister = unix.NFT_REG32_01
)

// ApplyTunnels makes Tunnels the rule in the calling thread's network namespace.
func ApplyTunnels(t Tunnels) error {
	if !t.Address.Is4() || t.Uplink == "" || len(t.Uplink) >= unix.IFNAMSIZ {
		return fmt.Errorf(
			"filtering tunnels: they end at the IPv4 address of an interface, not at %s of %q (the uplink)", t.Address, t.Uplink)
	}
	keys := map[Tunnel]bool{}
	for _, f := range t.From {
		if !f.Peer.Is4() || f.VNI >= 1<<24 {
			return fmt.Errorf("filtering tunnels: there is none from %s with the identifier %d",
				f.Peer, f.VNI)
		}
		keys[f] = true
	}
	var elements []nftables.SetElement
	for f := range keys {
		elements = append(elements,
			nftables.SetElement{Key: binary.BigEndian.AppendUint32(f.Peer.AsSlice(), f.VNI<<8)})
	}
	return replace(TunnelsTable, func(w *table) error {
		set := &nftables.Set{Table: w.table, Name: "tunnels",
			KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInteger)}
		if err := w.conn.AddSet(set, elements); err != nil {
			return err
		}
		input := w.chain("input", nftables.ChainHookInput)
		w.rule(input, expr.VerdictAccept, port(dportOffset, t.Port), iifname(t.Uplink),
			network(destinationOffset, firstRegister), equal(t.Address.AsSlice()),
			network(sourceOffset, firstRegister),
			[]expr.Any{&expr.Payload{DestRegister: secondRegister,
				Base: expr.PayloadBaseTransportHeader, Offset: vniOffset, Len: 4},
				&expr.Lookup{SourceRegister: firstRegister, SetName: set.Name, SetID: set.ID}})
		w.rule(input, expr.VerdictDrop, port(dportOffset, t.Port))
		w.rule(w.chain("forward", nftables.ChainHookForward), expr.VerdictDrop,
			port(dportOffset, t.Port))
		return nil
	})
}

// TunnelsFiltered reports whether ApplyTunnels has been called in the calling thread's network
// namespace.
func TunnelsFiltered() (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("reaching nftables: %w", err)
	}
	_, err = conn.ListTableOfFamily(TunnelsTable, nftables.TableFamilyIPv4)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the table %s: %w", TunnelsTable, err)
	}
	return true, nil
}

// RemoveTunnels takes away what ApplyTunnels has made.
func RemoveTunnels() error { return remove(TunnelsTable) }

// ApplySwitch has the node's own stack take NetCRAQ's packets, of a UDP port, from the switch
// alone: hostEnd is the name of the interface by which the switch's answers to the node's own
// processes come. Whatever else reaches the stack has gone past the switch. Of the node's own
// processes those of root alone may ask the switch: to it they are all one host, which may do what
// the agent and the gateway may.
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
		return nil
	})
}

// RemoveSwitch takes away what ApplySwitch has made.
func RemoveSwitch() error { return remove(SwitchTable) }

// table is one that is being written.
type table struct {
	conn  *nftables.Conn
	table *nftables.Table
}

// replace writes a table in the place of the one of its name.
func replace(name string, write func(*table) error) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	w := &table{conn, &nftables.Table{Family: nftables.TableFamilyIPv4, Name: name}}
	conn.AddTable(w.table) // so that there is one to delete
	conn.DelTable(w.table)
	conn.AddTable(w.table)
	if err = write(w); err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf(
			"writing the table %s with nftables (the kernel needs CONFIG_NF_TABLES): %w", name, err)
	}
	return nil
}

func remove(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: name})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the table %s: %w", name, err)
	}
	return nil
}

// chain makes one that leaves alone what is not UDP, with a first rule: most packets of a node are
// not.
func (w *table) chain(name string, hook *nftables.ChainHook) *nftables.Chain {
	c := w.conn.AddChain(&nftables.Chain{Table: w.table, Name: name, Type: nftables.ChainTypeFilter,
		Hooknum: hook, Priority: nftables.ChainPriorityFilter})
	w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: c, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Verdict{Kind: expr.VerdictAccept}}})
	return c
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

// notOfRoot is of a socket of another user than root. A packet without a socket, which the kernel
// has made, is none.
func notOfRoot() []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeySKUID, Register: firstRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: firstRegister, Data: make([]byte, 4)}}
}

func iifname(name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return append([]expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: firstRegister}},
		equal(padded)...)
}

func port(offset uint32, number uint16) []expr.Any {
	return append([]expr.Any{&expr.Payload{DestRegister: firstRegister,
		Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}},
		equal(binaryutil.BigEndian.PutUint16(number))...)
}

// network loads an address of the IPv4 header.
func network(offset, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader,
		Offset: offset, Len: 4}}
}
