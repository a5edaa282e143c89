package netplan

import (
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
)

// A switch's ports: the first ones lead to other nodes' switches, the last one to the node itself,
// and the rest to pods.
const (
	FirstPodPort = v1alpha1.MaxNodes + 1
	LastPodPort  = nodeswitch.HostPort - 1
	PodPorts     = LastPodPort - FirstPodPort + 1
)
