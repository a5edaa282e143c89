package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/cni-plugin/fabric"
	"github.com/netcraq/netcraq/cni-plugin/kube"
	"github.com/netcraq/netcraq/cni-plugin/kube/podapi"
	"github.com/netcraq/netcraq/cni-plugin/kube/reconcilers"
	"github.com/netcraq/netcraq/controlplane/leadership"
	"github.com/netcraq/netcraq/controlplane/topology"
)

// kubeOptions are the options of an agent in a Kubernetes cluster.
type kubeOptions struct {
	on         bool
	kubeconfig string
	namespace  string
	component  string
	switches   string
	fabric     string
	ports      [3]int // the ports of P4Runtime, of the agent, and for health checks
	cni        kube.CNI
	etcd       leadership.Etcd
	lead       reconcilers.Lead
	nodeAPI    podapi.Options
}

func (o *kubeOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "kubernetes", false, "read nodes and chains from the API server")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with the address of the API server (default: the service account's)")
	f.StringVar(&o.namespace, "namespace", defaultNamespace(), "`NAMESPACE` of the agents ($NAMESPACE)")
	f.StringVar(&o.component, "component", os.Getenv("COMPONENT"), "with --chained: `VALUE` of the label app.kubernetes.io/component of this agent's DaemonSet, which the agent watches for its removal ($COMPONENT)")
	f.StringVar(&o.switches, "switches", "10.0.255.0/24", "`PREFIX` of the switches' own addresses in the data plane; each node's number selects one")
	f.StringVar(&o.fabric, "fabric", "", "`FILE` with the top-of-rack switches that run the program instead of a switch on each node (docs/kubernetes.md); the same on all nodes")
	f.IntVar(&o.ports[0], "p4runtime-port", 9559, "`PORT` of the node's address for P4Runtime with TLS, for the leading agent")
	f.IntVar(&o.ports[1], "agent-port", 9560, "`PORT` of the node's address for the other agents, with TLS")
	f.IntVar(&o.ports[2], "health-port", 9561, "`PORT` of the node's address for /healthz, /readyz and /metrics")
	f.StringVar(&o.cni.ConfDir, "cni-conf-dir", "/etc/cni/net.d", "`FOLDER` with the container runtime's network configuration; \"\": do not change it")
	f.StringVar(&o.cni.BinDir, "cni-bin-dir", "/opt/cni/bin", "`FOLDER` with the container runtime's network plugins")
	f.StringVar(&o.cni.From, "cni-plugins", "", "install the plugins of this `FOLDER` into --cni-bin-dir")
	f.StringVar(&o.cni.Version, "cni-version", "1.0.0", "`VERSION` of the CNI specification that the container runtime supports: 1.0.0, or 1.1.0 (containerd from 2.0 on)")
	f.StringVar(&o.nodeAPI.Socket, "node-api", podapi.DefaultSocket, "`PATH` of the socket for this node's pods (docs/node-api.md); \"\": none")
	f.Int64Var(&o.nodeAPI.StreamsMiB, "node-api-streams", 0, "memory for streams in `MIB`; one namespace may use a quarter of it (0: no streams)")
	f.StringVar(&o.nodeAPI.StreamsDir, "node-api-streams-dir", "", "`DIR` in memory (tmpfs) for streams that survive the agent; only root may have access (default: all streams are volatile)")
	f.StringVar(&o.nodeAPI.StreamsEtcd, "node-api-streams-etcd", "", "`FILE` (YAML) with an etcd whose keys may fill streams, and the keys that each namespace may use (docs/streams.md; default: none)")
	f.BoolVar(&o.nodeAPI.NoPush, "node-api-no-push", false, "poll watched keys instead of letting the switch report their commits")
	f.StringVar(&o.nodeAPI.Policy, "node-api-policy", "", "`FILE` with the permissions of processes outside pods, and the namespaces' quotas")
	f.StringVar(&o.nodeAPI.CgroupRoot, "cgroup-root", "", "`PATH` before \"kubepods\" in the names of pods' control groups (default: as in the agent's own)")
	f.StringSliceVar(&o.etcd.Endpoints, "etcd", nil, "client `URLS` of the etcd with the chains' state; they allow this agent to lead")
	f.StringVar(&o.etcd.Prefix, "etcd-prefix", "/netcraq/", "`PREFIX` of all keys of this state")
	f.StringVar(&o.etcd.CA, "etcd-cacert", "", "`FILE` with the CA certificates that must have signed etcd's certificate (PEM)")
	f.StringVar(&o.etcd.Cert, "etcd-cert", "", "`FILE` with the certificate to present to etcd (PEM)")
	f.StringVar(&o.etcd.Key, "etcd-key", "", "`FILE` with the private key of --etcd-cert (PEM)")
	f.StringSliceVar(&o.lead.Durable.Endpoints, "gateway", nil, "client `URLS` of etcd-monitor, for durable keys of the node API (docs/node-api.md); the agent presents --etcd-cert there (default: no durable keys)")
	o.lead.Admin.Flags(f)
	f.StringVar(&o.lead.Prometheus, "prometheus", "", "place the most-read etcd keys in the switches; `URL` of a Prometheus that scrapes the gateways")
	f.StringVar(&o.lead.GatewayPrefix, "gateway-prefix", placement.DefaultPrefix, "`PREFIX` of the gateways' own keys in etcd")
	f.IntVar(&o.lead.PodRate, "pod-rate", 20000, "`PACKETS` a second that a pod with the fast path may send to the chains (docs/kubernetes.md); 0: any number")
	f.DurationVar(&o.lead.HeatWindow, "heat-window", time.Minute, "`DURATION` over which rates are averaged, at least twice Prometheus' scrape interval")
}

func defaultNamespace() string {
	if n := os.Getenv("NAMESPACE"); n != "" {
		return n
	}
	return "netcraq-system"
}

// runInCluster runs an agent of a Kubernetes cluster until ctx ends.
func runInCluster(ctx context.Context, o *options) error {
	out, err := inCluster(o)
	if err != nil {
		return badInput{err}
	}
	return kube.Run(ctx, *out)
}

// inCluster checks the command line of an agent in a cluster.
func inCluster(o *options) (*kube.Options, error) {
	k := &o.kube
	switch {
	case o.nodes != "" || len(o.peers) > 0 || len(o.uplinks) > 0 || o.deviceID != 1:
		return nil, errors.New("with --kubernetes nodes and ports are the API server's: leave --nodes, --peer, --uplink and --device-id out")
	case o.node == "":
		return nil, errors.New("give this node's name: --node, or NODE_NAME in the environment")
	case o.chained && o.mtu != 0:
		return nil, errors.New("with --chained the pods' MTU is the other plugin's: leave --mtu out")
	case k.lead.Prometheus != "" && len(k.etcd.Endpoints) == 0:
		return nil, errors.New("--prometheus is for agents that may lead: give --etcd, too")
	case k.lead.Durable.Given() && len(k.etcd.Endpoints) == 0:
		return nil, errors.New("--gateway is for agents that may lead: give --etcd, too")
	case k.nodeAPI.StreamsEtcd != "" && k.nodeAPI.StreamsMiB <= 0:
		return nil, errors.New("--node-api-streams-etcd is for streams: give --node-api-streams, too")
	case k.lead.PodRate < 0 || k.lead.PodRate > topology.MaxRate:
		return nil, fmt.Errorf("--pod-rate takes packets a second, at most %d, or 0 for no bound, not %d", topology.MaxRate, k.lead.PodRate)
	case len(o.services) > 1:
		return nil, errors.New("with --kubernetes there is one prefix of --services")
	}
	if len(o.services) == 0 {
		o.services = []string{"10.0.254.0/24"}
	}
	services, err := parsePrefix("--services", o.services[0])
	if err != nil {
		return nil, err
	}
	switches, err := parsePrefix("--switches", k.switches)
	if err != nil {
		return nil, err
	}
	if services.Overlaps(switches) {
		return nil, fmt.Errorf("--services %s and --switches %s overlap", services, switches)
	}
	var switchesElsewhere *fabric.Fabric
	if k.fabric != "" {
		if switchesElsewhere, err = fabric.Read(k.fabric); err != nil {
			return nil, fmt.Errorf("--fabric: %w", err)
		}
	}
	var config *rest.Config
	if k.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	} else {
		config, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("where the API server is (--kubeconfig, or a service account): %w", err)
	}
	config.UserAgent, config.Dial = "netcraq-agent/"+o.node, kube.DialAPIServer
	out := &kube.Options{Config: config, Node: o.node, Namespace: k.namespace, Component: k.component,
		Chained: o.chained, AfterOthers: o.after, Socket: o.socket, StateDir: o.stateDir,
		Engine: o.engine, MTU: o.mtu, Routes: o.routes, Masquerade: o.masks,
		P4Runtime: o.p4runtime, P4RuntimePort: k.ports[0], AgentPort: k.ports[1], HealthPort: k.ports[2],
		Services: services, Switches: switches, Fabric: switchesElsewhere, CNI: k.cni, NodeAPI: k.nodeAPI,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.logLevel}))}
	if len(k.etcd.Endpoints) > 0 {
		lead := k.lead
		lead.Etcd = k.etcd
		if lead.Durable.Given() {
			lead.Durable.CA, lead.Durable.Cert, lead.Durable.Key = k.etcd.CA, k.etcd.Cert, k.etcd.Key
		}
		if !strings.HasSuffix(lead.GatewayPrefix, "/") {
			return nil, fmt.Errorf("--gateway-prefix %s: it has to end in a slash", lead.GatewayPrefix)
		}
		out.Lead = &lead
	}
	return out, nil
}

// parsePrefix parses an IPv4 prefix. The prefix must have enough addresses.
func parsePrefix(option, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() > 30 || p.Bits() < 8 {
		return p, fmt.Errorf("%s takes an IPv4 prefix of 8 to 30 bits, such as 10.0.254.0/24, not %q", option, s)
	}
	return p.Masked(), nil
}
