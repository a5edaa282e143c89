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
	Config    *rest.Config // of the API server
	Node      string       // this node's name
	Component string       // of the agents: a label of this one's DaemonSet; "": any
	Namespace string       // of the agents: of the authority's Secret, and of the leader's Lease

	Socket    string // for the CNI plugin
	StateDir  string // for records of attachments
	Engine    string // of the switch: auto, ebpf or interp
	MTU       int    // of pods, in bytes; 0: what the node's interface leaves
	Routes    podroutes.Mode
	P4Runtime string // a loopback address at which the switch's P4Runtime is served in plain text; "": none

	Masquerade bool // pods reach addresses outside of the cluster under the node's address
	// Chained: another plugin is the pods' network. The agent puts the switch's ports at its
	// interfaces, and makes no routes to pods, addresses or masquerading.
	Chained bool
	// AfterOthers: the switch's program comes after others' at an interface, not before them.
	AfterOthers bool

	P4RuntimePort int // port at the node's address, with TLS
	AgentPort     int // ... for the leader to learn of the node's pods
	HealthPort    int // ... for /healthz, /readyz and /metrics, without

	// Fabric has the switches that are not on the nodes; nil: each node runs its own.
	Fabric *fabric.Fabric

	// Services has the chains' service addresses: that of a chain is the first, and as many on as
	// the chain's id says. Switches has the switches' own, by the nodes' numbers.
	Services, Switches netip.Prefix

	CNI     CNI
	NodeAPI podapi.Options
	Lead    *reconcilers.Lead // nil: this agent may not lead
	Log     *slog.Logger
}

// connectionsOfOne is how many connections one address may have open at a listener of the agent. A
// leader or another agent needs a few.
const connectionsOfOne = 64
