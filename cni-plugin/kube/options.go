package kube

import (
	"log/slog"
	"net/netip"

	"k8s.io/client-go/rest"

	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/kube/podapi"
	"github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// Options configure an agent.
type Options struct {
	Config    *rest.Config // how to reach the API server
	Node      string       // this node's name
	Component string       // a label of this agent's DaemonSet; "": any
	Namespace string       // the agents' namespace, with the authority's Secret and the leader's Lease

	Socket    string // the socket for the CNI plugin
	StateDir  string // the folder for records of attachments
	Engine    string // the switch's engine: auto, ebpf or interp
	MTU       int    // MTU of pods, in bytes; 0: the maximum that the node's interface permits
	Routes    podroutes.Mode
	P4Runtime string // loopback address where the switch serves P4Runtime in plain text; "": none

	Masquerade bool // pods reach addresses outside of the cluster under the node's address
	// Chained means that another plugin makes the pods' network. The agent puts the switch's ports
	// at that plugin's interfaces, and makes no routes to pods, addresses or masquerading.
	Chained bool
	// AfterOthers puts the switch's program after other programs at an interface, not before them.
	AfterOthers bool

	P4RuntimePort int // port at the node's address, with TLS
	AgentPort     int // port at the node's address for the leader's connections, with TLS
	HealthPort    int // port at the node's address for /healthz, /readyz and /metrics, without TLS

	// Fabric lists the switches that are not on the nodes; nil: each node runs its own.
	Fabric *fabric.Fabric

	// Services is the prefix of the chains' service addresses: the chain with id n has the address
	// n after the first one. Switches is the prefix of the switches' own addresses, by the nodes'
	// numbers.
	Services, Switches netip.Prefix

	CNI     CNI
	NodeAPI podapi.Options
	Lead    *reconcilers.Lead // nil: this agent may not lead
	Log     *slog.Logger
}

// connectionsOfOne is the maximum number of connections of one remote address at a listener of the
// agent. A leader or another agent needs a few.
const connectionsOfOne = 64
