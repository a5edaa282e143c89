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

// namespaceFile is the file that contains the namespace of the pod itself.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// operate returns the command that runs the operator in a cluster.
func operate() *cobra.Command {
	o := operator.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	kubeconfig := ""
	c := &cobra.Command{
		Use:   "operator",
		Short: "Run the Pipelets of a Kubernetes cluster until SIGINT or SIGTERM",
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
	f.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` with the address of the API server (default: the pod's service account)")
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the operator's own Leases and Secret (default: the pod's)")
	f.StringVar(&o.Replica, "replica", "", "unique name of this replica (default: the host name, which in a pod is the pod's name)")
	f.StringVar(&o.Lake, "lake", "", "folder for Pipelets' Parquet files; each namespace uses the subfolder with "+
		"its name (default: no Parquet files)")
	f.IntVar(&o.WebhookPort, "webhook-port", 9443, "port of the webhook that checks Pipelets for the API server; 0: none")
	f.StringVar(&o.WebhookClients, "webhook-client-ca", "", "`FILE` with the CA certificates (PEM) that must have signed the API server's client certificate (default: no client certificate is needed)")
	f.StringVar(&o.CertDir, "cert-dir", "/tmp/netcraq-pipelets", "folder for the webhook's certificate")
	f.StringVar(&o.Metrics, "metrics", ":8080", "address of /metrics, without TLS; 0: none")
	f.StringVar(&o.Health, "health", ":8081", "address of /healthz and /readyz; 0: none")
	f.BoolVar(&o.Alone, "no-consolidation", false, "let each worker read its source separately")
	return c
}

// kubernetes returns the configuration for the API server. Like kubectl, it reads the named file,
// $KUBECONFIG, ~/.kube/config, or a pod's service account.
func kubernetes(file string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}
