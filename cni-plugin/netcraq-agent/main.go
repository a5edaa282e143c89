// Command netcraq-agent is NetCRAQ's agent on each node of a Kubernetes cluster. It runs the node's
// switch, attaches pods to it for the CNI plugin (netcraq-cni), and maintains the routes to the
// pods of other nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cni-plugin/agent"
	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/guards"
	"github.com/netcraq/netcraq/cni-plugin/ingressfilter"
	"github.com/netcraq/netcraq/cni-plugin/masquerade"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/cni-plugin/privileges"
	"github.com/netcraq/netcraq/internal/helptext"
)

// Exit codes.
const (
	exitOK       = 0 // ended by SIGTERM or SIGINT
	exitFailed   = 1 // something went wrong while it ran
	exitBadInput = 2 // mistake in the command line or in a file that it names
)

type options struct {
	socket    string
	stateDir  string
	mtu       int
	uplinks   []string
	peers     []string
	services  []string
	deviceID  uint64
	engine    string
	p4runtime string
	nodes     string
	node      string
	routes    podroutes.Mode
	masks     bool
	chained   bool
	after     bool
	logLevel  slog.Level
	kube      kubeOptions
}

// badInput marks an error that is due to the command line or a file that it names.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func main() {
	o := options{routes: podroutes.Auto}
	cmd := &cobra.Command{
		Use:   "netcraq-agent",
		Short: "Run a node's switch and attach pods to it",
		Long: `netcraq-agent runs the switch of a Kubernetes node, attaches pods to it for the CNI plugin
netcraq-cni, and maintains the routes to the pods of other nodes. It runs as root in the node's
network namespace. Pods keep their connectivity when the agent stops or is killed, but they
cannot use NetCRAQ until it is back.

For example, with a tunnel from the switch's port 1 to the switch of node2:

  netcraq-agent --device-id 1 --nodes nodes.json --node node1 --peer 1@node2

On SIGHUP it rereads the file of nodes.

In a Kubernetes cluster the agent reads all of this from the API server. Agents with --etcd elect
one of themselves to run the controller (docs/kubernetes.md):

  netcraq-agent --kubernetes --node node1 --etcd https://127.0.0.1:2379 ...`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if err := privileges.Limit(privileges.Numbers(privileges.Needed)); err != nil {
				fmt.Fprintf(os.Stderr, "netcraq-agent: it keeps privileges that it does not need: %v\n", err)
			}
			if err := privileges.Check(privileges.Needed); err != nil {
				return err
			}
			if o.kube.on {
				if !cmd.Flags().Changed("p4runtime") {
					// The leader uses P4Runtime with TLS. Pods in the host's network could use a
					// loopback address.
					o.p4runtime = ""
				}
				return runInCluster(ctx, &o)
			}
			return run(ctx, &o)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", agentapi.DefaultSocket, "`PATH` of the socket for the CNI plugin; only root can enter its folder")
	f.StringVar(&o.stateDir, "state-dir", "/run/netcraq/attachments", "`FOLDER` for records of attachments; empty it when the machine starts")
	f.IntVar(&o.mtu, "mtu", 0, "MTU of the pods in `BYTES`; 0: the MTU of the node's interface, less the VXLAN header unless --routes is direct")
	f.StringArrayVar(&o.uplinks, "uplink", nil, "attach an interface that leads to one other switch as a port, `PORT@IFACE`; repeat for each (ports 1 to 63)")
	f.StringArrayVar(&o.peers, "peer", nil, "attach a tunnel to another node's switch as a port, `PORT@NODE`; repeat for each (ports 1 to 63)")
	f.StringArrayVar(&o.services, "services", nil, "route the node's own processes to chains' service addresses through the switch, `PREFIX`; repeat for each. Needs --nodes")
	f.Uint64Var(&o.deviceID, "device-id", 1, "P4Runtime device `ID` of the switch")
	f.StringVar(&o.engine, "engine", "auto", "engine that runs the switch's program: `auto|ebpf|interp`")
	f.StringVar(&o.p4runtime, "p4runtime", "127.0.0.1:9559", "loopback `ADDRESS` of the switch's P4Runtime server, without TLS (default with --kubernetes: no such server)")
	f.StringVar(&o.nodes, "nodes", "", "`FILE` with the cluster's nodes: {\"nodes\": [{\"name\": ..., \"address\": ..., \"podCIDRs\": [...]}, ...]} (default: no routes to other nodes)")
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`NAME` of this node in the file, or of its Node ($NODE_NAME)")
	f.Var(&o.routes, "routes", "path to the pods of other nodes: directly if the nodes share a link, or through VXLAN; `auto|direct|vxlan`")
	f.BoolVar(&o.masks, "masquerade", true, "translate pods' addresses to the node's address on the way out of the cluster (nftables)")
	f.BoolVar(&o.chained, "chained", false, "attach the switch to the interfaces of another plugin's pod network, without making routes, addresses or masquerading (docs/kubernetes.md)")
	f.BoolVar(&o.after, "after-others", false, "run the switch's program after other programs at an interface, as a late clsact filter (default: before them, with tcx)")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "print log lines from this `LEVEL` on: debug, info, warn or error")
	o.kube.flags(f)
	cmd.AddCommand(cleanUpCommand())
	helptext.Fit(cmd)
	err := cmd.ExecuteContext(context.Background())
	switch {
	case err == nil:
		os.Exit(exitOK)
	case errors.As(err, new(badInput)):
		fmt.Fprintf(os.Stderr, "netcraq-agent: %v\n", err)
		os.Exit(exitBadInput)
	default:
		fmt.Fprintf(os.Stderr, "netcraq-agent: %v\n", err)
		os.Exit(exitFailed)
	}
}

// run runs the agent until ctx ends. It makes the socket first, so that callers learn that the
// agent is not ready yet.
func run(ctx context.Context, o *options) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.logLevel}))
	fabric, err := parseFabric(o.uplinks, o.peers)
	if err != nil {
		return badInput{err}
	}
	var cluster *cluster
	if o.nodes != "" {
		if cluster, err = readCluster(o.nodes, o.node, o.chained); err != nil {
			return badInput{err}
		}
	}
	if err := cluster.resolve(fabric); err != nil {
		return badInput{err}
	}
	services, err := parseServices(o.services, cluster)
	if err != nil {
		return badInput{err}
	}
	mtu := 0
	if !o.chained {
		if mtu, err = podMTU(o, cluster); err != nil {
			return err
		}
	}
	listener, err := agent.Listen(o.socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	report := guards.Saying(log)
	sw, err := nodeswitch.Start(nodeswitch.Options{Engine: o.engine, DeviceID: o.deviceID,
		P4Runtime: o.p4runtime, AfterOthers: o.after, Log: log,
		Restored: func(iface string, err error) { report(guards.SwitchProgram, iface, err) }})
	if err != nil {
		return err
	}
	defer sw.Close()
	a, err := agent.New(agent.Options{Dir: o.stateDir, Switch: sw, FirstPort: lastUplink + 1,
		LastPort: lastPort, AfterOthers: o.after, Services: services, MTU: mtu, Log: log})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Close()

	if !o.chained {
		if err := agent.EnableForwarding(); err != nil {
			return err
		}
	}
	route := func() {
		if cluster == nil {
			return
		}
		if o.chained {
			err := errors.Join(podroutes.ApplyTunnels(cluster.self, cluster.others), masquerade.Remove())
			if err != nil {
				log.Error("the switches of other nodes are not reached", "err", err)
			}
			return
		}
		// This node becomes ready nevertheless. A single unreachable node must not disable all
		// other nodes.
		if err := podroutes.Apply(cluster.self, cluster.others, o.routes); err != nil {
			log.Error("pods of some other nodes are not reached", "err", err)
		}
		if err := masquerade.KeepRules(o.masks, cluster.self, cluster.others); err != nil {
			log.Error("pods do not reach what is outside of the cluster", "err", err)
		}
	}
	route() // comes first, because it sets which nodes may send in tunnels
	if err := errors.Join(nodeswitch.FilterStack(), connect(sw, cluster, fabric),

		ingressfilter.KeepRules(ctx, func(name string, err error) { report(guards.Table, name, err) })); err != nil {
		return err
	}
	if len(services) > 0 {
		if err := sw.ConnectHost(cluster.self.In(false), services); err != nil {
			return err
		}
	}
	if err := a.Reconcile(); err != nil {
		log.Error("pods whose interfaces are not attached to the switch keep their connectivity, but cannot use NetCRAQ", "err", err)
	}
	if err := guards.Watch(ctx, log, func() {
		if !o.chained {
			agent.RestoreForwarding(report)
		}
		a.Restore(report)
		sw.Restore(report)
	}); err != nil {
		return err
	}
	a.SetReady(true, "")
	log.Info("ready", "socket", o.socket, "device", o.deviceID, "p4runtime", o.p4runtime, "engine", sw.Engine(), "attachments", len(a.Attachments()), "mtu", mtu)

	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	for {
		select {
		case <-ctx.Done():
			log.Info("ending")
			return nil
		case err := <-ended:
			return fmt.Errorf("serving the CNI plugin: %w", err)
		case err := <-sw.Failed():
			return fmt.Errorf("serving P4Runtime: %w", err)
		case <-reload:
			if o.nodes == "" {
				continue
			}
			next, err := readCluster(o.nodes, o.node, o.chained)
			if err != nil {
				log.Error("the file of nodes is not taken", "err", err)
				continue
			}
			cluster = next
			route()
		}
	}
}
