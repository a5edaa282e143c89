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
	Config    *rest.Config // how to reach the API server
	Self      podroutes.Node
	Namespace string // the agents' namespace
	Dir       string // folder for the controller's program

	P4RuntimePort, AgentPort, HealthPort int // see the agent's options

	// Fabric lists the switches that are not on the nodes; nil: each node runs its own.
	Fabric *fabric.Fabric
	// Addresses are the addresses of the chains and the switches in the data plane.
	Addresses nodeview.Addressing
	Chained   bool // another plugin makes the pods' network

	TLS    *tls.Config        // the agent's configuration as a controller
	Claims *nodeclaims.Claims // the nodes' claims to addresses and prefixes
	// Quota is the maximum number of keys of a namespace, whatever a node requests.
	Quota func(namespace string) int

	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Leads is called with a controller's metrics when this agent begins to lead, and with nil at
	// the end.
	Leads func(prometheus.Gatherer)
	// Mux serves, without TLS, other agents' checks that this one is alive.
	Mux *http.ServeMux
}

// Lead configures leading.
type Lead struct {
	leader.Config
	Admin adminserver.Config // where the admin API is served, for netcraqctl and the node's gateway
	// PodRate is the maximum rate of NetCRAQ packets at a pod's port, per second; 0: no limit.
	PodRate int
	// Durable names the gateways for the node API's durable keys; if it is empty, there are no
	// durable keys.
	Durable durable.Access
}
