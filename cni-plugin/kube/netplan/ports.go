package netplan

import (
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
)

// Ports of a switch. The first ports lead to other nodes' switches, and the last one leads to the
// node itself. All other ports are for pods.
const (
	FirstPodPort = v1alpha1.MaxNodes + 1
	LastPodPort  = nodeswitch.HostPort - 1
	PodPorts     = LastPodPort - FirstPodPort + 1
)
