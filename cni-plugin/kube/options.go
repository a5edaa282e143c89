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
	Config    *rest.Config // how to connect to the API server
	Node      string       // name of this node
	Component string       // value of a label of this agent's DaemonSet; "" means any
	Namespace string       // namespace of the agents, with the authority's Secret and the leader's Lease

	Socket    string // path of the socket for the CNI plugin
	StateDir  string // folder for the records of attachments
	Engine    string // engine of the switch: auto, ebpf or interp
	MTU       int    // MTU of pods, in bytes; 0 means the maximum that the node's interface permits
	Routes    podroutes.Mode
	P4Runtime string // loopback address at which the switch serves P4Runtime in plain text; "" means none

	Masquerade bool // whether pods reach addresses outside of the cluster under the node's address
	// Chained means that another plugin makes the pods' network. The agent makes that plugin's
	// interfaces ports of the switch. It makes no routes to pods, no addresses and no masquerading.
	Chained bool
	// AfterOthers puts the switch's program after other programs at an interface. Otherwise the
	// program comes before them.
	AfterOthers bool

	P4RuntimePort int // port at the node's address, with TLS
	AgentPort     int // port at the node's address for the leader's connections, with TLS
	HealthPort    int // port at the node's address for /healthz, /readyz and /metrics, without TLS

	// Fabric lists the switches that are not on the nodes. If it is nil, each node runs its own
	// switch.
	Fabric *fabric.Fabric

	// Services is the prefix of the chains' service addresses. The chain with the ID n has the
	// address n after the first one. Switches is the prefix of the switches' own addresses, which
	// follow from the nodes' numbers.
	Services, Switches netip.Prefix

	CNI     CNI
	NodeAPI podapi.Options
	Lead    *reconcilers.Lead // nil if this agent may not lead
	Log     *slog.Logger
}

// connectionsOfOne is the maximum number of connections from one remote address at a listener of
// the agent. A leader or another agent needs only a few connections.
const connectionsOfOne = 64
