// Command netcraq-policies enforces NetworkPolicy on a node with NetCRAQ's pod network. It combines
// three parts. SIG Network's kube-network-policies (sigs.k8s.io/kube-network-policies) judges the
// first packet of each connection. Package queue writes the kernel's rules. Package podaddresses
// gets pods' addresses from the node's agent, which Kubernetes' guarantees require.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
	"github.com/netcraq/netcraq/cni-plugin/policies/podaddresses"
	"github.com/netcraq/netcraq/cni-plugin/policies/queue"
	"github.com/netcraq/netcraq/internal/helptext"
)

type options struct {
	node       string
	namespace  string
	kubeconfig string
	agent      string
	metrics    string
	queue      int
	rate       uint32
	interfaces string
	failOpen   bool
	remove     bool
}

func main() {
	o := options{}
	cmd := &cobra.Command{
		Use:   "netcraq-policies",
		Short: "Enforce NetworkPolicy on a node",
		Long: `netcraq-policies decides about new connections of the node's pods that a NetworkPolicy selects. The
kernel passes it the first packet of each (nfnetlink_queue), and it accepts what the policies allow.
It runs in the node's network with NET_ADMIN. While it is replaced, its kernel rules stay and block
new connections. The rules are removed together with its DaemonSet.`,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.remove {
				return queue.Remove()
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.node, "node", os.Getenv("NODE_NAME"), "`NAME` of this node ($NODE_NAME)")
	f.StringVar(&o.namespace, "namespace", os.Getenv("NAMESPACE"), "`NAME` of the namespace of this process's DaemonSet, which the process watches for its removal; \"\": remove the rules whenever the process ends ($NAMESPACE)")
	f.StringVar(&o.agent, "agent", agentapi.DefaultSocket, "`SOCKET` of the node's agent, which reports the addresses of starting pods")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with the address of the API server (default: the service account's)")
	f.StringVar(&o.metrics, "metrics", "127.0.0.1:9562", "`ADDRESS` of /metrics; \"\": none")
	f.IntVar(&o.queue, "queue", 98, "`NUMBER` of the kernel's queue")
	f.Uint32Var(&o.rate, "rate", 1000, "limit of new connections of one pod of this node, in first `PACKETS` a second; other addresses have four times the limit; packets above it are dropped; 0: no limit")
	f.StringVar(&o.interfaces, "interfaces", "ncq", "`PREFIX` of the names of pods' interfaces")
	f.BoolVar(&o.failOpen, "fail-open", false, "accept new connections while this process is down or overloaded")
	f.BoolVar(&o.remove, "remove", false, "remove the rules of a process that has ended, then exit")
	helptext.Fit(cmd)
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.node == "" {
		return errors.New("give this node's name: --node, or NODE_NAME in the environment")
	}
	if o.queue < 1 || o.queue > 65535 {
		return fmt.Errorf("--queue takes a number from 1 to 65535, not %d", o.queue)
	}
	config, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return fmt.Errorf("where the API server is (--kubeconfig, or a service account): %w", err)
	}
	config.UserAgent = "netcraq-policies/" + o.node
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the API server: %w", err)
	}
	return enforce(ctx, client, agentapi.NewClient(o.agent), o)
}

// enforce judges connections until ctx ends. It gets its data from the API server and the agent.
// Afterwards the kernel's rules stay, so that nothing passes unjudged while this process is
// replaced. They are removed only if the DaemonSet was deleted.
func enforce(ctx context.Context, client kubernetes.Interface, agent podaddresses.Lister, o options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, err := podaddresses.New(factory.Core().V1().Pods(), o.node, agent)
	if err != nil {
		return fmt.Errorf("the index of pods: %w", err)
	}
	controller, err := networkpolicy.NewController(client, factory.Networking().V1().NetworkPolicies(),
		factory.Core().V1().Namespaces(), pods, nil, nil, nil, nil,
		networkpolicy.Config{FailOpen: o.failOpen, QueueID: o.queue, NodeName: o.node, NRIdisabled: true})
	if err != nil {
		return fmt.Errorf("kube-network-policies: %w", err)
	}
	rules := queue.Rules{Number: uint16(o.queue), Prefix: o.interfaces, FailOpen: o.failOpen, Rate: o.rate}
	unselected, err := newUnselected(factory, agent, o.node)
	if err != nil {
		return fmt.Errorf("watching pods and policies: %w", err)
	}
	if o.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.Handler())
		server := &http.Server{Addr: o.metrics, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		context.AfterFunc(ctx, func() { server.Close() })
		go func() {
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serving metrics: %w", err))
			}
		}()
	}
	var writing sync.WaitGroup // waits for the writer, which must end before the rules are removed
	defer writing.Wait()
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var kept <-chan struct{} // closed when rules are no longer restored; nil before restoring begins
	if ctx.Err() == nil {
		by, err := rules.Apply()
		if err == nil {
			kept, err = rules.Keep(ctx, sayRestored)
		}
		if err != nil {
			return err
		}
		writing.Go(func() { unselected.run(ctx) })
		klog.InfoS("policies are enforced", "queue", o.queue, "by", by)
	}
	select {
	case err = <-ended:
		if err == nil && ctx.Err() == nil {
			err = errors.New("kube-network-policies has ended")
		}
	case <-ctx.Done():
		err = <-ended
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	cancel(nil)
	writing.Wait()
	gone, why := removed(client, o.namespace)
	switch {
	case why != nil:
		klog.ErrorS(why, "the rules stay: where policies are being removed, netcraq-policies --remove takes them away")
	case gone:
		cancel(nil)
		if kept != nil {
			<-kept
		}
		err = errors.Join(err, queue.Remove())
		klog.InfoS("policies are no longer enforced")
	}
	return err
}

// restored counts how often deleted rules were restored.
var restored = promauto.NewCounter(prometheus.CounterOpts{Name: "netcraq_policies_restored_total",
	Help: "How often the rules in the kernel were put back after somebody had deleted them."})

// sayRestored logs and counts an attempt to restore the rules.
func sayRestored(err error) {
	if err != nil {
		klog.ErrorS(err, "somebody deleted the rules in the kernel, and they cannot be put back: policies are not enforced",
			"table", queue.Table)
		return
	}
	restored.Inc()
	klog.InfoS("somebody deleted the rules in the kernel, for example by nft flush ruleset; they are there again",
		"table", queue.Table)
}

// label selects the DaemonSet of this command.
const label = "app.kubernetes.io/name=netcraq-policies"

// removed reports whether the DaemonSet of an ending process is deleted or being deleted. If the
// process's own account or rights are gone, all of NetCRAQ is being removed. Outside of a cluster
// there is no DaemonSet.
func removed(client kubernetes.Interface, namespace string) (bool, error) {
	if namespace == "" {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sets, err := client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	switch {
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("whether this DaemonSet is being removed: %w", err)
	}
	for _, s := range sets.Items {
		if s.DeletionTimestamp == nil {
			return false, nil
		}
	}
	return true, nil
}
