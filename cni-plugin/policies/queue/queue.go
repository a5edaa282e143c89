// Package queue makes packets wait in a kernel queue (nfnetlink_queue) until a program judges them.
// It uses nftables' own queue statement (CONFIG_NFT_QUEUE). On kernels without it, it uses the
// target of iptables (CONFIG_NETFILTER_XT_TARGET_NFQUEUE), which nftables can also run
// (CONFIG_NFT_COMPAT).
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/internal/nftwatch"
)

// Table is the name of the two tables, one for ip and one for ip6.
const Table = "netcraq_policies"

// families are the address families that have a table.
var families = []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}

// target returns the iptables target NFQUEUE, revision 3 (struct xt_NFQ_info_v3 in
// linux/netfilter/xt_NFQUEUE.h). Its fields are the queue's number, the number of queues, and
// flags.
func target(number uint16, failOpen bool) *expr.Target {
	const bypass = 1
	info := binaryutil.NativeEndian.PutUint16(number)
	info = append(info, binaryutil.NativeEndian.PutUint16(1)...)
	flags := uint16(0)
	if failOpen {
		flags = bypass
	}
	info = append(append(info, binaryutil.NativeEndian.PutUint16(flags)...), 0, 0) // padding for alignment
	unknown := xt.Unknown(info)
	return &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &unknown}
}

// Rules are the kernel's rules for the first packets of connections.
type Rules struct {
	// Number is the number of the kernel's queue.
	Number uint16
	// Prefix is the prefix of the names of pods' interfaces.
	Prefix string
	// FailOpen lets connections pass while no process listens at the queue. Otherwise they are
	// dropped.
	FailOpen bool
	// Rate is the maximum number of packets a second that the queue takes from one address of a pod
	// of this node. From any other address, it takes farTimes as many. The kernel drops packets
	// above this rate. 0 means no limit.
	Rate uint32
}

// An address outside of this node may have farTimes the rate of a pod of this node, because another
// node replaces the addresses of a Service's clients by its own. A source may send a burst of as
// many packets as in a quarter of a second, but at most maxBurst, because the queue has 1,024
// places. The kernel remembers maxSources sources of each kind for sourceLasting.
const (
	farTimes      = 4
	maxBurst      = 500
	maxSources    = 1 << 16
	sourceLasting = 10 * time.Second
)

// Lasting is the lifetime of the list that SetUnselected writes. A process that does not write the
// list again has ended, and so would miss new policies.
const Lasting = 30 * time.Second

// unselected is the name of the set that SetUnselected writes.
const unselected = "unselected"

// toSwitch is the node's own interface to its switch (package nodeswitch). It is not a pod's
// interface, although its name has the same prefix.
const toSwitch = "ncqnode"

// Operands of rules (NFT_META_IIFKIND and NFT_META_OIFKIND in linux/netfilter/nf_tables.h), and the
// kind of tunnel interfaces. For nftables an encapsulated packet comes from the tunnel's interface,
// and the names of tunnels between switches have the prefix of pods' interfaces.
const (
	metaIIFKind = 26
	metaOIFKind = 27
	tunnelKind  = "vxlan"
)

// Apply makes the process that listens at the queue judge the first packet of each connection from
// or to a pod of this node. This happens when the node routes the packet, after the kernel has
// replaced a service's address by a pod's, and before it changes the source. The following packets
// pass unjudged: link messages of IPv6 (Neighbor Discovery, Multicast Listener Discovery), packets
// of root's processes on the node (kubelet's probes), packets of an accepted connection, and
// packets of SetUnselected's pods. The kernel drops packets above their source's rate before the
// queue, so that one source cannot fill the queue. Apply replaces existing rules atomically, and
// empties SetUnselected's list. by names the kernel's mechanism.
func (r Rules) Apply() (by string, err error) {
	conn, err := nftables.New()
	if err != nil {
		return "", fmt.Errorf("reaching nftables: %w", err)
	}
	return r.applyBy(conn)
}

// Keep restores Apply's rules in the calling thread's network namespace whenever someone deletes
// them, until ctx ends, and calls restored after each attempt. It runs in the background. After
// ended is closed, it restores nothing. A restoration empties SetUnselected's list.
func (r Rules) Keep(ctx context.Context, restored func(error)) (ended <-chan struct{}, err error) {
	return nftwatch.Watch(ctx, func() {
		conn, err := nftables.New()
		if err != nil {
			restored(fmt.Errorf("reaching nftables: %w", err))
			return
		}
		if there, err := nftwatch.Present(conn, Table, families...); err == nil && !there {
			_, err = r.applyBy(conn)
			restored(err)
		}
	})
}

// applyBy is like Apply, on a given connection.
func (r Rules) applyBy(conn *nftables.Conn) (by string, err error) {
	if r.Prefix == "" || len(r.Prefix) >= unix.IFNAMSIZ {
		return "", fmt.Errorf("interfaces have names of 1 to %d bytes, which do not begin with %q", unix.IFNAMSIZ-1, r.Prefix)
	}
	native := &expr.Queue{Num: r.Number}
	if r.FailOpen {
		native.Flag = expr.QueueFlagBypass
	}
	switch err := r.apply(conn, native); {
	case err == nil:
		return "nftables", nil
	case !errors.Is(err, unix.ENOENT):
		return "", err
	}
	if err := r.apply(conn, target(r.Number, r.FailOpen)); err != nil {
		return "", fmt.Errorf("%w (the kernel needs CONFIG_NFT_QUEUE, or CONFIG_NFT_COMPAT and "+
			"CONFIG_NETFILTER_XT_TARGET_NFQUEUE; and CONFIG_NFT_LIMIT)", err)
	}
	return "iptables' NFQUEUE in nftables", nil
}

// SetUnselected replaces the list of interfaces of pods that no policy selects. A packet between
// two such pods is not judged. Neither is a packet between such a pod and an address that is not a
// pod of this node. The list expires after Lasting. The error is unix.ENOENT if the rules do not
// exist.
func SetUnselected(interfaces []string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	elements := make([]nftables.SetElement, len(interfaces))
	for i, name := range interfaces {
		elements[i] = nftables.SetElement{Key: interfaceName(name), Timeout: Lasting}
	}
	for _, family := range families {
		set := unselectedSet(&nftables.Table{Family: family, Name: Table})
		conn.FlushSet(set)
		if err := conn.SetAddElements(set, elements); err != nil {
			return fmt.Errorf("the set of interfaces: %w", err)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("writing the set %s of the tables %s with nftables: %w", unselected, Table, err)
	}
	return nil
}

func unselectedSet(t *nftables.Table) *nftables.Set {
	return &nftables.Set{Table: t, Name: unselected, KeyType: nftables.TypeIFName, HasTimeout: true,
		KeyByteOrder: binaryutil.NativeEndian} // makes nft list show the names
}

// interfaceName returns the name of an interface in the form that the kernel compares.
func interfaceName(name string) []byte {
	return append([]byte(name), make([]byte, unix.IFNAMSIZ-len(name))...)
}

// ofALink has the types of ICMPv6 messages that IPv6 needs on a link, with their hop limit. These
// are Multicast Listener Discovery (RFC 2710, RFC 3810), from a link-local address, and Neighbor
// Discovery (RFC 4861). No router forwards such messages. With another hop limit or source they are
// ordinary packets, to which policies apply.
var ofALink = []struct{ first, last, hopLimit byte }{{130, 132, 1}, {133, 137, 255}, {143, 143, 1}}

// apply writes the tables. judge is the statement that puts a packet into the queue.
func (r Rules) apply(conn *nftables.Conn, judge expr.Any) error {
	for _, family := range families {
		t := &nftables.Table{Family: family, Name: Table}
		conn.AddTable(t) // if the table does not exist, DelTable would fail
		conn.DelTable(t)
		conn.AddTable(t)
		free := unselectedSet(t)
		if err := conn.AddSet(free, nil); err != nil {
			return fmt.Errorf("the set of interfaces: %w", err)
		}
		queue, err := r.queue(conn, t, judge)
		if err != nil {
			return err
		}
		c := conn.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPostrouting,
			// The next chain (-5) is the library's own, which has no rate limit. On kernels with
			// CONFIG_NFT_QUEUE it queues the same packets again.
			Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 6)})
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
				if of.hopLimit < 255 { // a router may have decremented a larger hop limit
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
			rule(append(r.ofPod(key),
				&expr.Lookup{SourceRegister: 1, SetName: free.Name, SetID: free.ID, Invert: true},
				&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictGoto, Chain: queue.Name})...)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("writing the tables %s with nftables: %w", Table, err)
	}
	return nil
}

// ofPod matches packets at a pod's interface, and leaves the interface's name in register 1.
func (r Rules) ofPod(key expr.MetaKey) []expr.Any {
	kind := expr.MetaKey(metaIIFKind)
	if key == expr.MetaKeyOIFNAME {
		kind = metaOIFKind
	}
	return []expr.Any{&expr.Meta{Key: kind, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(tunnelKind)},
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(r.Prefix)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: interfaceName(toSwitch)}}
}

// queue makes the chain for packets that must be judged. The chain drops packets above their
// source's rate.
func (r Rules) queue(conn *nftables.Conn, t *nftables.Table, judge expr.Any) (*nftables.Chain, error) {
	c := conn.AddChain(&nftables.Chain{Table: t, Name: "queue"})
	source := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	key := nftables.TypeIPAddr
	if t.Family == nftables.TableFamilyIPv6 {
		source.Offset, source.Len, key = 8, 16, nftables.TypeIP6Addr
	}
	for _, bound := range []struct {
		name  string
		which []expr.Any
		rate  uint32
	}{{"pods", r.ofPod(expr.MetaKeyIIFNAME), r.Rate}, {"others", nil, farTimes * r.Rate}} {
		if r.Rate == 0 {
			break
		}
		set := &nftables.Set{Table: t, Name: bound.name, KeyType: key, Dynamic: true, HasTimeout: true,
			Timeout: sourceLasting, Size: maxSources}
		if err := conn.AddSet(set, nil); err != nil {
			return nil, fmt.Errorf("the set %s: %w", set.Name, err)
		}
		conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: append(bound.which, source,
			&expr.Dynset{SrcRegKey: 1, SetName: set.Name, SetID: set.ID, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE),
				Exprs: []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(bound.rate), Over: true,
					Unit: expr.LimitTimeSecond, Burst: min(max(bound.rate/4, 1), maxBurst)}}},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})})
	}
	conn.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: []expr.Any{judge}})
	return c, nil
}

// Remove removes the tables.
func Remove() error {
	var errs []error
	for _, family := range families {
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
