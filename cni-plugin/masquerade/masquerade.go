// Package masquerade lets pods talk to the world outside of the cluster: what they send there goes
// out under the node's address, because nobody out there has a way to a pod's. What stays in the
// cluster keeps its source, so that who is asked sees who asks.
//
//	table ip netcraq {
//	  set pods    { the prefixes of this node's pods }
//	  set cluster { those of all nodes' pods, the nodes' addresses, multicast }
//	  chain postrouting { type nat hook postrouting priority srcnat
//	    ip saddr @pods ip daddr != @cluster masquerade }
//	}
//
// The table is the package's own: [Apply] replaces it in one transaction, so there is no moment
// without it, and connections that are there go on (the kernel's connection tracking has them). It
// is made over netlink, so no nft or iptables need be installed.
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

// Table is the table's name.
const Table = "netcraq"

// multicast has no source that it could be answered to.
var multicast = netip.MustParsePrefix("224.0.0.0/4")

// Offsets in an IPv4 header, and the length of an address there, in bytes (RFC 791, section 3.1).
const (
	sourceOffset      = 12
	destinationOffset = 16
	addressLength     = 4
)

// Keep is Apply, or Remove where nothing is to be masqueraded.
func Keep(masquerade bool, self podroutes.Node, others []podroutes.Node) error {
	if masquerade {
		return Apply(self, others)
	}
	return Remove()
}

// Apply has this node's pods masqueraded where they leave the cluster of these nodes. It works on
// the calling thread's network namespace and can be called at any time.
func Apply(self podroutes.Node, others []podroutes.Node) error {
	cluster := []netip.Prefix{multicast}
	for _, n := range append([]podroutes.Node{self}, others...) {
		cluster = append(cluster, n.PodCIDRs...)
		if n.Address.Is4() {
			cluster = append(cluster, netip.PrefixFrom(n.Address, n.Address.BitLen()))
		}
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: Table}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	sets := map[string][]netip.Prefix{"pods": self.PodCIDRs, "cluster": cluster}
	made := map[string]*nftables.Set{}
	for _, name := range []string{"pods", "cluster"} {
		made[name] = &nftables.Set{Table: t, Name: name, KeyType: nftables.TypeIPAddr, Interval: true}
		if err := c.AddSet(made[name], intervals(sets[name])); err != nil {
			return fmt.Errorf("the set %s of the table %s: %w", name, Table, err)
		}
	}
	chain := c.AddChain(&nftables.Chain{Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	address := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressLength}
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		address(sourceOffset), &expr.Lookup{SourceRegister: 1, SetName: "pods", SetID: made["pods"].ID},
		address(destinationOffset), &expr.Lookup{SourceRegister: 1, SetName: "cluster", SetID: made["cluster"].ID, Invert: true},
		&expr.Counter{},
		&expr.Masq{},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("writing the table %s with nftables: %w", Table, err)
	}
	return nil
}

// Remove takes the table away.
func Remove() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("reaching nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: Table})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing the table %s: %w", Table, err)
	}
	return nil
}

// intervals are IPv4 prefixes as an interval set wants them: where each begins and where it ends,
// none in another.
func intervals(prefixes []netip.Prefix) (out []nftables.SetElement) {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var last netip.Prefix
	for _, p := range sorted {
		if last.IsValid() && last.Overlaps(p) { // prefixes are in one another or apart, and the wider comes first
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

// after is the first address behind a prefix; false: there is none.
func after(p netip.Prefix) (netip.Addr, bool) {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	next := netip.AddrFrom4(a).Next()
	return next, next.IsValid()
}
