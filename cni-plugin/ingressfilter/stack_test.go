package ingressfilter

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/udpmatch/udptest"
)

// TestSwitchStack checks that the node's stack accepts NetCRAQ packets only from the switch's
// interface, and forwards none. This must hold even without filters at the other interfaces.
func TestSwitchStack(t *testing.T) {
	r := newRoute(t)
	for _, c := range []struct {
		hostEnd string
		arrives bool // a packet to or from the port arrives at the node
	}{{"ncqnode", false}, {"ncq", true}} {
		for _, to := range []netip.Addr{victimAddr, nodeAddr} {
			for _, p := range []udptest.Packet{r.packet(1000, to, netcraq),
				r.packet(netcraq, to, other), r.packet(netcraq, to, netcraq),
				r.packet(1000, to, other)} {
				r.node.Do(RemoveSwitch)
				before := r.arrive(p)
				r.node.Do(func() error { return ApplySwitch(netcraq, c.hostEnd) })
				after := r.arrive(p)
				if !slices.Contains(before, "plain") || !slices.Contains(before, "tags 8100 8100") {
					t.Errorf("%s to %s without a filter: %v", p.Src, p.Dst, before)
				}
				want := ""
				if p.Src.Port() != netcraq && p.Dst.Port() != netcraq || c.arrives &&
					to == nodeAddr && p.Src.Port() == netcraq {
					want = strings.Join(before, ", ")
				}
				if got := strings.Join(after, ", "); got != want {
					t.Errorf("%s to %s by ncq, the switch's interface is %s: %q, not %q", p.Src,
						p.Dst, c.hostEnd, got, want)
				}
			}
		}
	}
	// TCP to the same port must pass
	for _, address := range []string{"10.2.0.2:20035", "10.1.0.1:20035"} {
		server := r.victim
		if strings.HasPrefix(address, "10.1.") {
			server = r.node
		}
		if err := exchange(t, r.pod, server, "tcp", address, 5000); err != nil {
			t.Errorf("TCP to %s: %v", address, err)
		}
	}
	r.node.Do(RemoveSwitch)
	r.node.Do(RemoveSwitch) // the tables were already removed
}

// TestListed checks that an operator and kube-proxy can list a node's tables with nft while ours
// exist.
func TestListed(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("skipped: needs nft (nftables)")
	}
	r := newRoute(t)
	ends := []TunnelEnd{{nodeAddr, "out"}, {nodeAddr6, "out"}}
	tunnels := Tunnels{Port: vxlan, Ends: ends, From: []Tunnel{
		{victimAddr, 7}, {victimAddr, 0xabcdef}, {podAddr, 1}, {netip.MustParseAddr("fd00:2::2"), 9}}}
	r.node.Do(func() error { return errors.Join(ApplyTunnels(tunnels), ApplySwitch(netcraq, "ncq")) })
	for _, list := range []string{"list ruleset", "list tables", "-j list ruleset", "-j list sets ip", "-j list sets ip6",
		"list set ip " + TunnelsTable + " tunnels"} {
		r.node.Do(func() error {
			out, err := exec.Command(nft, strings.Fields(list)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), TunnelsTable) {
				t.Errorf("nft %s: %v\n%s", list, err, out)
			}
			return nil
		})
	}
}

// TestTranslated makes the node translate the tunnels' and the switch's port to a pod, as
// kube-proxy and portmap do for a Service's external address and for a hostPort. The pod must get
// nothing, and the node's packets must reach their original destination.
func TestTranslated(t *testing.T) {
	const stolen = 9
	r := newRoute(t)
	udp := func(s *udptest.Space, address string) (c *net.UDPConn) {
		s.Do(func() error {
			a, err := net.ResolveUDPAddr("udp4", address)
			if err == nil {
				c, err = net.ListenUDP("udp4", a)
			}
			return err
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	thief := udp(r.pod, "10.1.0.2:"+strconv.Itoa(stolen))
	r.node.Do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		w := &table{conn, conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "thief"}), ipv4}
		for name, hook := range beforeRouting {
			c := w.chainOf(nftables.ChainTypeNAT, name, hook, nftables.ChainPriorityNATDest)
			for _, p := range []uint16{netcraq, vxlan} {
				w.rule(c, expr.VerdictAccept, port(dportOffset, p), []expr.Any{
					&expr.Immediate{Register: 1, Data: podAddr.AsSlice()},
					&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, stolen)},
					&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2}})
			}
		}
		return conn.Flush()
	})
	gets := func(c *net.UDPConn) bool {
		check(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, _, err := c.ReadFrom(make([]byte, 100))
		return err == nil
	}
	tunnels := Tunnels{Port: vxlan, Ends: []TunnelEnd{{netip.MustParseAddr("10.2.0.1"), "out"}}}
	for _, p := range []uint16{netcraq, vxlan} {
		there := net.JoinHostPort("10.2.0.2", strconv.Itoa(int(p)))
		here := net.JoinHostPort("10.2.0.1", strconv.Itoa(int(p)))
		peer := udp(r.victim, there)
		for _, c := range []struct {
			name string
			from *udptest.Space
			to   string
		}{{"from outside", r.victim, here}, {"from the node", r.node, there}} {
			for _, guarded := range []bool{false, true} {
				r.node.Do(func() error {
					if !guarded {
						return errors.Join(RemoveSwitch(), RemoveTunnels())
					}
					return errors.Join(ApplySwitch(netcraq, "ncq"), ApplyTunnels(tunnels))
				})
				to, err := net.ResolveUDPAddr("udp4", c.to)
				check(t, err)
				_, err = udp(c.from, ":0").WriteTo([]byte("x"), to)
				check(t, err)
				if got := gets(thief); got == guarded {
					t.Errorf("port %d, %s, guarded %v: the pod gets it: %v", p, c.name, guarded, got)
				}
				if c.from == r.node && gets(peer) != guarded {
					t.Errorf("port %d, %s, guarded %v: it goes astray", p, c.name, guarded)
				}
			}
		}
	}
}

// TestBadTunnels checks that ApplyTunnels refuses impossible tunnels before it changes anything.
func TestBadTunnels(t *testing.T) {
	four := TunnelEnd{netip.MustParseAddr("192.168.0.1"), "eth0"}
	six := TunnelEnd{netip.MustParseAddr("fd00::1"), "eth0"}
	ends := func(e ...TunnelEnd) []TunnelEnd { return e }
	for want, rules := range map[string]Tunnels{
		"of an interface":      {Port: vxlan, Ends: ends(TunnelEnd{Address: four.Address})},
		"not at invalid IP":    {Port: vxlan, Ends: ends(TunnelEnd{Uplink: "eth0"})},
		"not at ::ffff:10.0.0": {Port: vxlan, Ends: ends(TunnelEnd{netip.MustParseAddr("::ffff:10.0.0.1"), "eth0"})},
		"fd00::2 is another":   {Port: vxlan, Ends: ends(six, TunnelEnd{six.Address.Next(), "eth1"})},
		"none from fd00::2":    {Port: vxlan, Ends: ends(four), From: []Tunnel{{Peer: netip.MustParseAddr("fd00::2"), VNI: 1}}},
		"none from 10.0.0.1":   {Port: vxlan, Ends: ends(six), From: []Tunnel{{Peer: netip.MustParseAddr("10.0.0.1"), VNI: 1}}},
		"with the identifier 167772": {Port: vxlan, Ends: ends(four, six),
			From: []Tunnel{{Peer: six.Address, VNI: 1 << 24}}},
	} {
		if err := ApplyTunnels(rules); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, not %q", rules, err, want)
		}
	}
}
