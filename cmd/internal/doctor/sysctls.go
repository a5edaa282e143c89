package doctor

import (
	"context"
	"os"
)

func sysctls(_ context.Context, l *look) {
	agent := false
	for _, p := range l.processes() {
		agent = agent || p.name == "netcraq-agent"
	}
	l.forwarding(agent, "net.ipv4.ip_forward", "sys/net/ipv4/ip_forward")
	if _, err := os.Stat(l.proc("sys/net/ipv6")); err == nil {
		l.forwarding(agent, "net.ipv6.conf.all.forwarding", "sys/net/ipv6/conf/all/forwarding")
	}
	if n, ok := number(l.proc("sys/net/ipv4/conf/all/rp_filter")); ok && n == 1 {
		l.warn("net.ipv4.conf.all.rp_filter", "sysctl -w net.ipv4.conf.all.rp_filter=0, and 1 on the interfaces that need it; or 2 (loose)",
			"every interface drops packets whose answer would leave by another one (1, strict): between nodes with more than one way, tunnels' packets are lost. The agent sets it on pods' interfaces by itself")
	} else if ok {
		l.ok("net.ipv4.conf.all.rp_filter", "%d", n)
	} else {
		l.unseen("net.ipv4.conf.all.rp_filter", "reading it", os.ErrNotExist)
	}
}

// forwarding checks a sysctl that the agent sets when it starts.
func (l *look) forwarding(agent bool, name, file string) {
	n, ok := number(l.proc(file))
	advice := "sysctl -w " + name + "=1, and a file in /etc/sysctl.d so that it stays"
	switch {
	case !ok:
		l.unseen(name, "reading it", os.ErrNotExist)
	case n != 0:
		l.ok(name, "%d", n)
	case name != "net.ipv4.ip_forward":
		l.note(name, "0: pods' IPv6 packets do not leave the node; needed only where pods have IPv6 addresses")
	case agent:
		l.problem(name, advice, "0, though the agent has set it: something has set it back, and pods' packets do not leave the node")
	default:
		l.note(name, "0: the agent sets it to 1 when it starts; without an agent, pods' packets do not leave the node")
	}
}
