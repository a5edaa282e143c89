// Command netcraq-agent is NetCRAQ's part on each node of a Kubernetes cluster: it runs the node's
// switch, attaches pods to it as the CNI plugin (netcraq-cni) asks, and keeps the routes to the
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
	exitBadInput = 2 // the command line or a file that it names
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

// badInput marks an error that is the caller's.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func main() {
	o := options{routes: podroutes.Auto}
	cmd := &cobra.Command{
		Use:   "netcraq-agent",
		Short: "Run a node's switch and attach pods to it",
		Long: `netcraq-agent runs the switch of a Kubernetes node, attaches pods to it as the CNI plugin
netcraq-cni asks, and keeps the routes to the pods of other nodes. It runs in the node's
network namespace, as root. Pods keep their connectivity when it ends or is killed, but
for NetCRAQ itself.

For example, with a tunnel from the switch's port 1 to the switch of node2:

  netcraq-agent --device-id 1 --nodes /etc/netcraq/nodes.json --node node1 --peer 1@node2

SIGHUP has it read the file of nodes again.

In a Kubernetes cluster it learns all of this from the API server, and agents with --etcd
choose one of themselves that runs the controller (docs/kubernetes.md):

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
					// with TLS it is served for the leader; pods in the node's network share its
					// loopback
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
	f.StringVar(&o.stateDir, "state-dir", "/run/netcraq/attachments", "`FOLDER` for records of attachments; it should be emptied when the machine starts")
	f.IntVar(&o.mtu, "mtu", 0, "`BYTES` of the pods' MTU; 0: that of the node's own interface, less what VXLAN takes unless --routes is direct")
	f.StringArrayVar(&o.uplinks, "uplink", nil, "make an interface of the node that leads to one other switch a port, `PORT@IFACE`; repeat for each (ports 1 to 63)")
	f.StringArrayVar(&o.peers, "peer", nil, "make a tunnel to another node's switch a port, `PORT@NODE`; repeat for each (ports 1 to 63)")
	f.StringArrayVar(&o.services, "services", nil, "chains' service addresses, `PREFIX`, that the node's own processes reach by the switch; repeat for each. It needs --nodes")
	f.Uint64Var(&o.deviceID, "device-id", 1, "P4Runtime device `ID` of the switch")
	f.StringVar(&o.engine, "engine", "auto", "what runs the switch's program: `auto|ebpf|interp`")
	f.StringVar(&o.p4runtime, "p4runtime", "127.0.0.1:9559", "loopback `ADDRESS` of the switch's P4Runtime server, in plain text; with --kubernetes there is none unless it is given")
	f.StringVar(&o.nodes, "nodes", "", "`FILE` with the cluster's nodes: {\"nodes\": [{\"name\": ..., \"address\": ..., \"podCIDRs\": [...]}, ...]}; without it there are no routes to other nodes")
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`NAME` of this node in the file, or of its Node ($NODE_NAME)")
	f.Var(&o.routes, "routes", "how pods of other nodes are reached: directly where nodes share a link, or through VXLAN; `auto|direct|vxlan`")
	f.BoolVar(&o.masks, "masquerade", true, "have pods reach what is outside of the cluster under the node's address (nftables)")
	f.BoolVar(&o.chained, "chained", false, "another plugin makes the pods' network: put the switch's ports at its interfaces, and make no routes to pods, addresses or masquerading (docs/kubernetes.md)")
	f.BoolVar(&o.after, "after-others", false, "the switch's program comes after other programs at an interface (a late filter of clsact), which see its packets first; without it, before them (tcx)")
	f.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error; `LEVEL`")
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

// run runs the agent until ctx ends. The socket is there first, so that whoever asks hears that the
// agent is not ready rather than nothing.
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
		// This node is ready all the same: else one node that is not would take all others with it.
		if err := podroutes.Apply(cluster.self, cluster.others, o.routes); err != nil {
			log.Error("pods of some other nodes are not reached", "err", err)
		}
		if err := masquerade.KeepRules(o.masks, cluster.self, cluster.others); err != nil {
			log.Error("pods do not reach what is outside of the cluster", "err", err)
		}
	}
	route() // first, since it says who may send in tunnels
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
		log.Error("pods whose interfaces are no ports keep their connectivity, but for NetCRAQ", "err", err)
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
