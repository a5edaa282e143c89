package reconcilers

import (
	"crypto/tls"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeclaims"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/leader"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/nodeapi/durable"
)

// Options configure an agent that may lead.
type Options struct {
	Lead
	Config    *rest.Config // how to connect to the API server
	Self      podroutes.Node
	Namespace string // namespace of the agents
	Dir       string // folder for the program that the controller loads

	P4RuntimePort, AgentPort, HealthPort int // ports of all agents (see kube.Options)

	// Fabric lists the switches that are not on the nodes. If it is nil, each node runs its own
	// switch.
	Fabric *fabric.Fabric
	// Addresses computes the addresses of the chains and the switches in the data plane.
	Addresses nodeview.Addressing
	Chained   bool // whether another plugin makes the pods' network

	TLS    *tls.Config        // TLS configuration of the agent as a controller
	Claims *nodeclaims.Claims // claims of the nodes to addresses and prefixes
	// Quota returns the maximum number of keys of a namespace, whatever a node requests.
	Quota func(namespace string) int

	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Leads is called with the controller's metrics when this agent begins to lead. It is called
	// with nil when the agent stops leading.
	Leads func(prometheus.Gatherer)
	// Mux gets the handlers of the checks by which other agents see that this agent is alive. It
	// serves without TLS.
	Mux *http.ServeMux
}

// Lead has the options that only an agent that may lead needs.
type Lead struct {
	leader.Config
	Admin adminserver.Config // how to serve the admin API to netcraqctl and the node's gateway
	// PodRate is the maximum rate of NetCRAQ packets at a pod's port, per second. 0 means no limit.
	PodRate int
	// Durable says how to reach the gateways for the node API's durable keys. If it is empty, there
	// are no durable keys.
	Durable durable.Access
}
