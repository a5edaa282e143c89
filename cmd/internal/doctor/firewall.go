package doctor

import (
	"context"
	"fmt"

	"github.com/google/nftables"
)

// firewall searches for nftables chains that drop forwarded packets by default. It sees the rules
// of iptables-nft, but not those of iptables-legacy.
func firewall(_ context.Context, l *look) {
	conn, err := nftables.New()
	var chains []*nftables.Chain
	if err == nil {
		chains, err = conn.ListChains()
	}
	if err != nil {
		l.unseen("nftables", "listing the chains", err)
		return
	}
	dropping := false
	for _, c := range chains {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Type != nftables.ChainTypeFilter ||
			c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop {
			continue
		}
		dropping = true
		l.warn(fmt.Sprintf("nftables chain %s %s", c.Table.Name, c.Name),
			"accept the pods' ranges there: iptables -I FORWARD -s POD_CIDR -j ACCEPT; iptables -I FORWARD -d POD_CIDR -j ACCEPT "+
				"(ufw: DEFAULT_FORWARD_POLICY in /etc/default/ufw)",
			"drops what it does not accept on its way through this machine, as Docker and ufw set it up: "+
				"pods may reach neither each other nor other nodes")
	}
	if !dropping {
		l.ok("nftables", "no chain drops what it does not know on its way through this machine")
	}
}
