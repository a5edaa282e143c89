package agent

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// hostPrefix is the prefix of the names of the nodes' ends. All interfaces with this prefix belong
// to the agent.
const hostPrefix = agentapi.HostPrefix

// hostName returns the name of an attachment's record. If the agent makes the interfaces, it is
// also the name of the node's end.
func hostName(a agentapi.Attachment) string { return a.HostName() }

// alias returns the alias of the node's end: "netcraq NETWORK CONTAINER IFNAME". It identifies the
// attachment for people and for GC. The kernel allows 255 bytes, so alias shortens a long container
// ID.
func alias(a agentapi.Attachment) string {
	room := max(0, 255-len(strings.Join([]string{aliasMark, a.Network, "", a.IfName}, " ")))
	return strings.Join([]string{aliasMark, a.Network, a.ContainerID[:min(len(a.ContainerID), room)], a.IfName}, " ")
}

const aliasMark = "netcraq"

// ofAlias parses an alias. A container ID that alias has shortened stays shortened.
func ofAlias(s string) (agentapi.Attachment, bool) {
	f := strings.Split(s, " ")
	if len(f) != 4 || f[0] != aliasMark {
		return agentapi.Attachment{}, false
	}
	return agentapi.Attachment{Network: f[1], ContainerID: f[2], IfName: f[3]}, true
}

// hardwareAddresses derives the Ethernet addresses of both ends from the attachment's names. So a
// container that is made again under the same names has the address that its neighbours know. The
// addresses are locally administered (02) and never multicast. The two ends differ in the second
// byte.
func hardwareAddresses(a agentapi.Attachment) (host, container net.HardwareAddr) {
	sum := sha256.Sum256([]byte("mac\x00" + a.Network + "\x00" + a.ContainerID + "\x00" + a.IfName))
	return append(net.HardwareAddr{2, 0x4e}, sum[:4]...), append(net.HardwareAddr{2, 0}, sum[:4]...)
}

// defaultGateway4 and defaultGateway6 are the gateways if IPAM gives none. They are link-local
// addresses, and are valid only on one veth (RFC 3927, RFC 4291).
var (
	defaultGateway4 = netip.MustParseAddr("169.254.78.1")
	defaultGateway6 = netip.MustParseAddr("fe80::4e43:1")
)
