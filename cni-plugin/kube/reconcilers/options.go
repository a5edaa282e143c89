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
	Config    *rest.Config // of the API server
	Self      podroutes.Node
	Namespace string // of the agents
	Dir       string // for the controller's program

	P4RuntimePort, AgentPort, HealthPort int // see the agent's options

	// Fabric has the switches that are not on the nodes; nil: each node runs its own.
	Fabric *fabric.Fabric
	// Addresses are those of the chains and the switches in the data plane.
	Addresses nodeview.Addressing
	Chained   bool // another plugin is the pods' network

	TLS    *tls.Config        // of the agent as a controller
	Claims *nodeclaims.Claims // of the nodes
	// Quota is how many keys a namespace may have, whatever a node says.
	Quota func(namespace string) int

	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Leads gets a controller's metrics when this agent begins to lead, and nil when that ends.
	Leads func(prometheus.Gatherer)
	// Mux is where other agents ask whether this one is alive, without TLS.
	Mux *http.ServeMux
}

// Lead configures leading.
type Lead struct {
	leader.Config
	Admin adminserver.Config // where the admin API is served, for netcraqctl and the node's gateway
	// PodRate is how many NetCRAQ packets a second a pod's port takes; 0: any number.
	PodRate int
	// Durable has the gateways for the durable keys of the node API; none: there are no such keys.
	Durable durable.Access
}
