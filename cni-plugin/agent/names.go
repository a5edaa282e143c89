package agent

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"strings"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// hostPrefix begins the names of the nodes' ends. All interfaces with this prefix belong to the
// agent.
const hostPrefix = agentapi.HostPrefix

// hostName is the name of an attachment's record, and of the node's end if the agent makes the
// interfaces.
func hostName(a agentapi.Attachment) string { return a.HostName() }

// alias marks the node's end for people and for GC: "netcraq NETWORK CONTAINER IFNAME". The kernel
// allows 255 bytes, so alias shortens a long container ID.
func alias(a agentapi.Attachment) string {
	room := max(0, 255-len(strings.Join([]string{aliasMark, a.Network, "", a.IfName}, " ")))
	return strings.Join([]string{aliasMark, a.Network, a.ContainerID[:min(len(a.ContainerID), room)], a.IfName}, " ")
}

const aliasMark = "netcraq"

// ofAlias is the reverse of alias. A long container ID stays shortened.
func ofAlias(s string) (agentapi.Attachment, bool) {
	f := strings.Split(s, " ")
	if len(f) != 4 || f[0] != aliasMark {
		return agentapi.Attachment{}, false
	}
	return agentapi.Attachment{Network: f[1], ContainerID: f[2], IfName: f[3]}, true
}

// hardwareAddresses derives Ethernet addresses from the attachment, so that a container that
// returns under its name has the address its neighbours know. They are locally administered (02)
// and never multicast. The two ends differ in the second byte.
func hardwareAddresses(a agentapi.Attachment) (host, container net.HardwareAddr) {
	sum := sha256.Sum256([]byte("mac\x00" + a.Network + "\x00" + a.ContainerID + "\x00" + a.IfName))
	return append(net.HardwareAddr{2, 0x4e}, sum[:4]...), append(net.HardwareAddr{2, 0}, sum[:4]...)
}

// defaultGateway4 and defaultGateway6 are the gateways if IPAM gives none. They are link-local, and
// valid only on one veth (RFC 3927, RFC 4291).
var (
	defaultGateway4 = netip.MustParseAddr("169.254.78.1")
	defaultGateway6 = netip.MustParseAddr("fe80::4e43:1")
)
