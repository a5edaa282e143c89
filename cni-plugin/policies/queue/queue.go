// Package queue has packets wait in a queue of the kernel's (nfnetlink_queue) for somebody to judge
// them: by nftables' own statement (CONFIG_NFT_QUEUE), or on kernels without it by the target of
// iptables (CONFIG_NETFILTER_XT_TARGET_NFQUEUE), which nftables runs, too (CONFIG_NFT_COMPAT).
package queue

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// Table is the name of the tables, of ip and ip6.
const Table = "netcraq_policies"

// target is xt_NFQUEUE of the revision 3 (struct xt_NFQ_info_v3 of linux/netfilter/xt_NFQUEUE.h):
// the queue's number, how many queues there are, flags.
func target(number uint16, failOpen bool) *expr.Target {
	const bypass = 1
	info := binaryutil.NativeEndian.PutUint16(number)
	info = append(info, binaryutil.NativeEndian.PutUint16(1)...)
	flags := uint16(0)
	if failOpen {
		flags = bypass
	}
	info = append(append(info, binaryutil.NativeEndian.PutUint16(flags)...), 0, 0) // aligned
	unknown := xt.Unknown(info)
	return &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &unknown}
}

// Apply has the first packet of each connection from or to an interface whose name begins so judged
// by whoever listens at a queue, where the node routes it: after services' addresses have given way
// to pods', and before the source changes. Let pass are what IPv6 needs on a link (Neighbor
// Discovery, Multicast Listener Discovery), what root's processes of the node send (kubelet's
// probes), and what belongs to a connection that was let pass. Without a listener nothing passes,
// or with failOpen everything. Rules that are there are replaced at once. What is said is which of
// the two ways the kernel has.
func Apply(number uint16, prefix string, failOpen bool) (by string, err error) {
	if prefix == "" || len(prefix) >= unix.IFNAMSIZ {
		return "", fmt.Errorf("interfaces have names of 1 to %d bytes, which do not begin with %q", unix.IFNAMSIZ-1, prefix)
	}
	native := &expr.Queue{Num: number}
	if failOpen {
		native.Flag = expr.QueueFlagBypass
	}
	switch err := apply(prefix, native); {
	case err == nil:
		return "nftables", nil
	case !errors.Is(err, unix.ENOENT):
		return "", err
	}
	if err := apply(prefix, target(number, failOpen)); err != nil {
		return "", fmt.Errorf("%w (the kernel needs CONFIG_NFT_QUEUE, or CONFIG_NFT_COMPAT and "+
			"CONFIG_NETFILTER_XT_TARGET_NFQUEUE)", err)
	}
	return "iptables' NFQUEUE in nftables", nil
}

// ofALink are the types of ICMPv6 messages that IPv6 needs on a link, and the hop limit that they
// have there: Multicast Listener Discovery (RFC 2710, RFC 3810), from a link-local address, and
// Neighbor Discovery (RFC 4861). No router forwards these. With another hop limit or source they
// are a host's ordinary packets, which policies rule.
var ofALink = []struct{ first, last, hopLimit byte }{{130, 132, 1}, {133, 137, 255}, {143, 143, 1}}

// apply writes the tables with what has a packet judged.
func apply(prefix string, judge expr.Any) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		t := &nftables.Table{Family: family, Name: Table}
		conn.AddTable(t) // so that there is one to delete
		conn.DelTable(t)
		conn.AddTable(t)
		c := conn.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeFilter,
			Hooknum:  nftables.ChainHookPostrouting,
			Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 5)})
		rule := func(exprs ...expr.Any) { conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: exprs}) }
		accept := &expr.Verdict{Kind: expr.VerdictAccept}
		if family == nftables.TableFamilyIPv6 {
			for _, of := range ofALink {
				exprs := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_ICMPV6}},
					&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
					&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{of.first}, ToData: []byte{of.last}},
					&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 7, Len: 1},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{of.hopLimit}}}
				if of.hopLimit < 255 { // a packet with a larger one may have been forwarded
					exprs = append(exprs,
						&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 8, Len: 2},
						&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0xff, 0xc0},
							Xor: []byte{0, 0}},
						&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0xfe, 0x80}})
				}
				rule(append(exprs, accept)...)
			}
		}
		rule(&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)}, accept)
		rule(&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Xor: make([]byte, 4),
				Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)}, accept)
		for _, key := range []expr.MetaKey{expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME} {
			rule(&expr.Meta{Key: key, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(prefix)},
				&expr.Counter{}, judge)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("writing the tables %s with nftables: %w", Table, err)
	}
	return nil
}

// Remove takes the tables away.
func Remove() error {
	var errs []error
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		conn, err := nftables.New()
		if err != nil {
			return fmt.Errorf("reaching nftables: %w", err)
		}
		conn.DelTable(&nftables.Table{Family: family, Name: Table})
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing the table %s: %w", Table, err))
		}
	}
	return errors.Join(errs...)
}
