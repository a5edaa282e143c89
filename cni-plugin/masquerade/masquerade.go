// Package masquerade lets pods talk to hosts outside of the cluster. Their packets leave with the
// node's address, because hosts outside have no route to a pod's address. Packets inside the
// cluster keep their source, so that a server sees its client.
//
//	table ip netcraq {        (and the same of ip6)
//	  set pods    { the prefixes of this node's pods }
//	  set cluster { those of all nodes' pods, the nodes' addresses, multicast }
//	  chain postrouting { type nat hook postrouting priority srcnat
//	    ip saddr @pods ip daddr != @cluster masquerade }
//	}
//
// The tables belong to this package. [Apply] replaces them in one transaction, so they never
// disappear. Existing connections continue, because the kernel's connection tracking has their
// state. The package uses netlink, so nft and iptables need not be installed.
package masquerade

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// Table is the name of the nftables tables.
const Table = "netcraq"

// family is an address family. It has the offsets of addresses in the IP header, and the length of
// an address, in bytes (RFC 791, section 3.1; RFC 8200, section 3).
type family struct {
	table               nftables.TableFamily
	address             nftables.SetDatatype
	source, destination uint32
	length              uint32
	// near has destinations that are never masqueraded. Multicast packets get no answers, and
	// link-local addresses are on the link to the node.
	near []netip.Prefix
}

var (
	ipv4 = family{nftables.TableFamilyIPv4, nftables.TypeIPAddr, 12, 16, 4,
		[]netip.Prefix{netip.MustParsePrefix("224.0.0.0/4")}}
	ipv6 = family{nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 8, 24, 16,
		[]netip.Prefix{netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("fe80::/10")}}
)

func (f family) has(a netip.Addr) bool { return a.IsValid() && a.BitLen() == int(8*f.length) }

// of returns those of the prefixes that belong to this family.
func (f family) of(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return !f.has(p.Addr()) })
}

// KeepRules calls Apply or, if masquerade is false, Remove.
func KeepRules(masquerade bool, self podroutes.Node, others []podroutes.Node) error {
	if masquerade {
		return Apply(self, others)
	}
	return Remove()
}

// Apply makes this node masquerade its pods' packets to destinations outside of the cluster of
// these nodes. It works on the calling thread's network namespace, and can be called at any time.
func Apply(self podroutes.Node, others []podroutes.Node) error {
	var cluster []netip.Prefix
	for _, n := range append([]podroutes.Node{self}, others...) {
		cluster = append(cluster, n.PodCIDRs...)
		for _, a := range []netip.Addr{n.Address, n.Second} {
			if a.IsValid() {
				cluster = append(cluster, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	for _, f := range []family{ipv4, ipv6} {
		pods := f.of(self.PodCIDRs)
		if len(pods) == 0 {
			// This address family needs no masquerading, but may have had some before.
			if err := f.remove(); err != nil {
				return err
			}
			continue
		}
		if err := f.write(c, pods, append(f.of(cluster), f.near...)); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("writing the table %s with nftables: %w", Table, err)
	}
	return nil
}

// write adds a table of the family to the transaction of the next Flush.
func (f family) write(c *nftables.Conn, pods, cluster []netip.Prefix) error {
	t := &nftables.Table{Family: f.table, Name: Table}
	c.AddTable(t) // if the table does not exist, DelTable would fail
	c.DelTable(t)
	c.AddTable(t)
	sets := map[string][]netip.Prefix{"pods": pods, "cluster": cluster}
	made := map[string]*nftables.Set{}
	for _, name := range []string{"pods", "cluster"} {
		made[name] = &nftables.Set{Table: t, Name: name, KeyType: f.address, Interval: true}
		if err := c.AddSet(made[name], intervals(sets[name])); err != nil {
			return fmt.Errorf("the set %s of the table %s: %w", name, Table, err)
		}
	}
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	address := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.length}
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		address(f.source), &expr.Lookup{SourceRegister: 1, SetName: "pods", SetID: made["pods"].ID},
		address(f.destination), &expr.Lookup{SourceRegister: 1, SetName: "cluster", SetID: made["cluster"].ID, Invert: true},
		&expr.Counter{},
		&expr.Masq{},
	}})
	return nil
}

// Remove removes the tables.
func Remove() error { return errors.Join(ipv4.remove(), ipv6.remove()) }

func (f family) remove() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Family: f.table, Name: Table})
	// a kernel without this address family has no tables of it
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fmt.Errorf("removing the table %s: %w", Table, err)
	}
	return nil
}

// intervals returns prefixes of one family as elements of an interval set. Each interval has a
// beginning and an end, and intervals do not overlap.
func intervals(prefixes []netip.Prefix) (out []nftables.SetElement) {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var last netip.Prefix
	for _, p := range sorted {
		if last.IsValid() && last.Overlaps(p) { // prefixes are nested or disjoint, and the wider one comes first
			continue
		}
		last = p
		out = append(out, nftables.SetElement{Key: p.Masked().Addr().AsSlice()})
		if end, ok := after(p); ok {
			out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

// after returns the first address after a prefix. It returns false if there is none.
func after(p netip.Prefix) (netip.Addr, bool) {
	a := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(a)
	next := last.Next()
	return next, next.IsValid()
}
