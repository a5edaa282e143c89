// Package operator runs the Pipelets of a Kubernetes cluster.
//
// Several replicas of the operator may run. Each replica holds its own Lease while it is alive
// (members.go), and runs the Pipelets that are assigned to it (reconciler.go). It also validates
// Pipelets for the API server before they are stored (webhook.go). One replica is the leader, and
// assigns the Pipelets to the replicas that are alive (planner.go). A replica that is disconnected
// from the API server ends, together with its workers. If its workers overlap with those of the
// next replica, the positions in the destinations prevent duplicates.
//
// A Pipelet has the rights of its namespace. Its Secrets are in that namespace, and the operator
// may read only the Secrets that a Role in the namespace names. Its Parquet files are in a folder
// for that namespace. A Pipelet can connect to every address to which the operator's pod can
// connect.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
	"github.com/netcraq/netcraq/pipelets/synchronizer/share"
)

// Name is the name of the leader election Lease, of the webhook, and of the webhook's Service.
const Name = "netcraq-pipelets"

// Options configure an operator.
type Options struct {
	Config      *rest.Config // configuration of the connection to the API server
	Namespace   string       // the operator's own namespace
	Replica     string       // this replica's unique name
	Lake        string       // the folder for Parquet files; if empty, Parquet is not available
	WebhookPort int          // port of the webhook; 0 means no webhook
	// WebhookHosts lists further addresses of the webhook, in addition to the address of its
	// Service.
	WebhookHosts []string
	CertDir      string // the folder for the webhook's certificate
	// WebhookClients is a file with CA certificates (PEM), which sign the certificates of the
	// webhook's clients. If it is empty, clients need no certificate.
	WebhookClients string
	Metrics        string // listen address for metrics; "0" means no metrics
	Health         string // listen address for health checks; "0" means no health checks
	Alone          bool   // whether each worker reads its source separately
	Log            *slog.Logger
}

// Scheme returns a scheme with the types of objects that the operator reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), admissionregistration.AddToScheme(s), coordination.AddToScheme(s),
		pipeletapi.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("the kinds of objects: %w", err)
	}
	return s, nil
}

// requests is the maximum rate of requests to the API server, per second. Bursts may be twice as
// large. The rate is high because each Pipelet must be reassigned when its replica dies.
const requests = 200

// Run runs the operator until ctx ends. It fails if it loses its Lease, or its leadership.
func Run(ctx context.Context, o Options) error {
	libraries := slog.New(o.Log.Handler())
	ctrl.SetLogger(logr.FromSlogHandler(libraries.Handler()))
	klog.SetSlogLogger(libraries)
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	if !replicaName.MatchString(o.Replica) {
		return fmt.Errorf("the replica's name %q is to be of small letters, digits, dashes and dots", o.Replica)
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = requests, 2*requests
	ours := klabels.Set{leaseLabel: "true"}.AsSelector()
	lease, renew, retry := leaseFor, renewFor, renewRetry
	options := manager.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress:        o.Health,
		LeaderElection:                true,
		LeaderElectionID:              Name,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{},
			&admissionregistration.ValidatingWebhookConfiguration{}}}},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&coordination.Lease{}: {
			Namespaces: map[string]cache.Config{o.Namespace: {LabelSelector: ours}}}}},
	}
	if o.WebhookPort > 0 {
		server := webhook.Options{Port: o.WebhookPort, CertDir: o.CertDir}
		if o.WebhookClients != "" {
			only, err := signedBy(o.WebhookClients)
			if err != nil {
				return err
			}
			server.TLSOpts = append(server.TLSOpts, only)
		}
		options.WebhookServer = webhook.NewServer(server)
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("the API server: %w", err)
	}
	rules := &rules{lake: o.Lake}
	ready := healthz.Ping
	if o.WebhookPort > 0 {
		certs := &certificates{client: mgr.GetClient(), namespace: o.Namespace, dir: o.CertDir, also: o.WebhookHosts,
			log: o.Log}
		if err := certs.keep(ctx); err != nil {
			return err
		}
		if err := errors.Join(mgr.Add(certs), setupWebhook(mgr, rules)); err != nil {
			return fmt.Errorf("the webhook: %w", err)
		}
		ready = mgr.GetWebhookServer().StartedChecker()
	}
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("the API server: %w", err)
	}
	m := &members{leases: leases, cache: mgr.GetCache(), client: mgr.GetClient(), namespace: o.Namespace,
		self: o.Replica, log: o.Log, seen: map[string]sighting{},
		changed: make(chan event.TypedGenericEvent[*pipeletapi.Pipelet], 1)}
	r := newReconciler(mgr.GetClient(), rules, m, o.Log)
	cfg := run.Config{
		Secrets: func(namespace string) endpoint.Secrets { return secrets{mgr.GetClient(), namespace} },
		Log:     o.Log,
		Changed: r.changed,
	}
	if !o.Alone {
		cfg.Shared = share.New()
	}
	r.runner = run.NewRunner(cfg)
	m.end = r.runner.Close
	p := &planner{client: mgr.GetClient(), members: m, alone: o.Alone, log: o.Log}
	if err := errors.Join(m.watch(ctx), mgr.Add(m), p.setup(mgr), r.setup(mgr),
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("webhook", ready)); err != nil {
		return err
	}
	defer r.runner.Close()
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("the operator has to end: %w", err)
	}
	return nil
}

// secrets reads the Secrets of a namespace.
type secrets struct {
	client    client.Client
	namespace string
}

// Read implements endpoint.Secrets.
func (s secrets) Read(ctx context.Context, name string) (map[string][]byte, error) {
	var found corev1.Secret
	err := s.client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, &found)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("the operator may not read it. Who may grant that: kubectl -n %s create role %s-%s "+
			"--verb=get --resource=secrets --resource-name=%s, and bind it to the operator's service account (%w)",
			s.namespace, Name, name, name, err)
	}
	return found.Data, err
}

// rules checks whether Pipelets are valid.
type rules struct{ lake string }

// check returns an error if a Pipelet is invalid.
func (r *rules) check(ctx context.Context, p *pipeletapi.Pipelet) error {
	p = p.DeepCopy()
	p.APIVersion, p.Kind = pipeletapi.APIVersion, pipeletapi.Kind // set the fields that clients usually omit
	for field, stores := range map[string][]pipeletapi.Store{"src": p.Spec.Src, "dst": p.Spec.Dst} {
		for i, s := range stores {
			// refuse it, because the node API would treat the operator's pod as the caller
			if s.Chain != nil || s.Stream != nil {
				return fmt.Errorf("spec.%s[%d]: chains and streams are a node's: run this Pipelet there, by "+
					"netcraq-pipelets run", field, i)
			}
			if s.Parquet == nil {
				continue
			}
			at := fmt.Sprintf("spec.%s[%d].parquet.path", field, i)
			if r.lake == "" {
				return fmt.Errorf("%s: the operator has no folder for Parquet files: start it with --lake", at)
			}
			own := filepath.Join(r.lake, p.Namespace)
			if path := filepath.Clean(s.Parquet.Path); path != own && !strings.HasPrefix(path, own+"/") {
				return fmt.Errorf("%s: the files of this namespace are in %s", at, own)
			}
		}
	}
	return run.Check(ctx, p)
}
