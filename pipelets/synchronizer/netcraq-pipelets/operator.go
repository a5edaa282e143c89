package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/netcraq/netcraq/pipelets/synchronizer/operator"
)

// namespaceFile is where a pod's own namespace is said.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// operate is the command for clusters.
func operate() *cobra.Command {
	o := operator.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	kubeconfig := ""
	c := &cobra.Command{
		Use:   "operator",
		Short: "runs the Pipelets of a Kubernetes cluster until it is told to end",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Namespace == "" {
				b, err := os.ReadFile(namespaceFile)
				if err != nil {
					return err
				}
				o.Namespace = strings.TrimSpace(string(b))
			}
			if kubeconfig == "" {
				o.Config, err = rest.InClusterConfig()
			} else {
				o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
			}
			if err != nil {
				return err
			}
			if o.Replica == "" {
				if o.Replica, err = os.Hostname(); err != nil {
					return err
				}
				o.Replica = strings.ToLower(o.Replica)
			}
			return operator.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server; without it, as a pod does")
	f.StringVar(&o.Namespace, "namespace", "", "where the operator's own Leases and Secret are (default: the pod's)")
	f.StringVar(&o.Replica, "replica", "", "what this replica is called, of which there may be one (default: the "+
		"host's name, which is a pod's)")
	f.StringVar(&o.Lake, "lake", "", "the folder below which a namespace's Pipelets may have Parquet files, in a "+
		"folder of the namespace's name; without it there are none")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "where Pipelets are checked for the API server; 0: nowhere")
	f.StringVar(&o.CertDir, "cert-dir", "/tmp/netcraq-pipelets", "where the webhook's certificate is put")
	f.StringVar(&o.Metrics, "metrics", ":8080", "where /metrics is, in plain text; 0: nowhere")
	f.StringVar(&o.Health, "health", ":8081", "where /healthz and /readyz are; 0: nowhere")
	f.BoolVar(&o.Alone, "no-consolidation", false, "have each worker read its source for itself")
	return c
}

// kubernetes is how an API server is reached, as kubectl does it: by the file that is named, by
// $KUBECONFIG, by ~/.kube/config, or as a pod.
func kubernetes(file string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}
