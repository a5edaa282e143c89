// Package cluster checks NetCRAQ in a Kubernetes cluster through the API server, and explains what
// is wrong there and what to do. It changes nothing in the cluster.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
)

// Names of NetCRAQ's components in a cluster. TestNames compares them with the manifests.
const (
	NamespaceDefault = "netcraq-system"
	NameLabel        = "app.kubernetes.io/name"
	AgentName        = "netcraq-agent"
	PoliciesName     = "netcraq-policies"
	GatewayName      = "etcd-monitor"
	LeaderLease      = "netcraq-leader"
	// GatewayNamespace is the namespace of the control-plane nodes' static pods.
	GatewayNamespace = "kube-system"
)

// Options say what to check, and how to reach the cluster.
type Options struct {
	Checks     []string // names of the checks to run; empty means all
	Namespace  string   // namespace of the agents
	Kubeconfig string   // path of the kubeconfig; if empty, kubectl's rules apply
	Context    string   // context in the kubeconfig; if empty, its current context
	Timeout    time.Duration
	Now        func() time.Time
}

var checks = []doctor.Check[*look]{
	{Name: "agents", What: "whether an agent is ready on each node", Run: agents},
	{Name: "leader", What: "whether one of the agents leads", Run: leader},
	{Name: "chains", What: "whether each chain is ready, and as long as it should be", Run: chains},
	{Name: "gateways", What: "whether etcd's gateways are ready, and used", Run: gateways},
	{Name: "policies", What: "whether NetworkPolicy is enforced on each node", Run: policies},
	{Name: "images", What: "whether all parts are of versions that work together", Run: images},
}

// Checks lists the names and descriptions of the checks.
func Checks() [][2]string { return doctor.Describe(checks) }

// The resources that the checks read. The checks use the dynamic client, because the typed client
// would make the command half as large again.
var (
	podsResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesResource      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	daemonSetsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	leasesResource     = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	chainsResource     = schema.GroupVersionResource{Group: "netcraq.io", Version: "v1alpha1", Resource: "netcraqchains"}
)

// look is one run of the checks.
type look struct {
	Options
	client dynamic.Interface
	report doctor.Report
	check  string
}

// Run connects to a cluster and runs the checks. It returns an error if an option is invalid or if
// it finds no address of the cluster. It reports all other errors as findings.
func Run(ctx context.Context, o Options) (*doctor.Report, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.Context})
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("which cluster to check is not known: %w. Pass --kubeconfig FILE, or set KUBECONFIG", err)
	}
	config.Timeout = o.Timeout
	config.WarningHandler = nil
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig for the API server at %s is not usable: %w", config.Host, err)
	}
	return run(ctx, c, config.Host, o)
}

// run checks a cluster. The report's host is the API server's address.
func run(ctx context.Context, c dynamic.Interface, host string, o Options) (*doctor.Report, error) {
	chosen, err := doctor.Select(checks, o.Checks, " of a cluster")
	if err != nil {
		return nil, err
	}
	if o.Namespace == "" {
		o.Namespace = NamespaceDefault
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &look{Options: o, client: c}
	l.report.Host, l.report.Time = host, o.Now()
	for _, check := range chosen {
		l.check = check.Name
		check.Run(ctx, l)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return &l.report, nil
}

func (l *look) add(level doctor.Level, subject, advice, format string, args ...any) {
	l.report.Findings = append(l.report.Findings, doctor.Finding{Check: l.check, Subject: subject, Level: level,
		Message: fmt.Sprintf(format, args...), Advice: advice})
}

func (l *look) ok(subject, format string, args ...any) {
	l.add(doctor.OK, subject, "", format, args...)
}

func (l *look) note(subject, format string, args ...any) {
	l.add(doctor.Note, subject, "", format, args...)
}

func (l *look) warn(subject, advice, format string, args ...any) {
	l.add(doctor.Warning, subject, advice, format, args...)
}

func (l *look) problem(subject, advice, format string, args ...any) {
	l.add(doctor.Problem, subject, advice, format, args...)
}

// list reads the objects of a namespace that have a label. An empty namespace means all namespaces,
// or objects without a namespace. An empty label means all objects. If list cannot read them, it
// reports why and returns false.
func list[T any](ctx context.Context, l *look, of schema.GroupVersionResource, namespace, label string) ([]T, bool) {
	found, err := l.client.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if !l.was(of.Resource, err) {
		return nil, false
	}
	out := make([]T, len(found.Items))
	for i, item := range found.Items {
		if !l.was(of.Resource, convert(item.Object, &out[i])) {
			return nil, false
		}
	}
	return out, true
}

// errForeign means that the API server returned an object that this command cannot parse.
var errForeign = errors.New("this command does not understand the object. Use one of the cluster's version")

func convert(object map[string]any, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err != nil {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return nil
}

// was reports the error of reading something from the API server. It returns true if err is nil.
func (l *look) was(what string, err error) bool {
	switch {
	case err == nil:
		return true
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		l.add(doctor.Unseen, what, "use a kubeconfig whose user may list "+what, "the API server does not show them: %v", err)
	case errors.Is(err, errForeign):
		l.problem(what, "install the command of the cluster's release", "%v", err)
	case apierrors.IsNotFound(err):
		l.problem(what, "install the chart, whose crds folder has them: helm install netcraq", "the cluster does not know this kind of object")
	default:
		l.problem(what, "check the cluster with kubectl get --raw /readyz, and the --context that you pass", "the API server does not answer: %v", err)
	}
	return false
}

// pods reads the pods of a component.
func (l *look) pods(ctx context.Context, namespace, name string) ([]core.Pod, bool) {
	return list[core.Pod](ctx, l, podsResource, namespace, NameLabel+"="+name)
}

// ready reports whether a pod is ready. If it is not, the string is the reason that the pod's
// status gives.
func ready(p *core.Pod) (bool, string) {
	why := "not ready"
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == core.PodReady && c.Status == core.ConditionTrue:
			return true, ""
		case c.Type == core.PodScheduled && c.Status == core.ConditionFalse:
			return false, "not scheduled: " + c.Message
		case c.Type == core.PodReady && c.Message != "":
			why = c.Message
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			why = c.State.Waiting.Reason
			if last := c.LastTerminationState.Terminated; last != nil {
				why += fmt.Sprintf(" after exit code %d", last.ExitCode)
			}
			if text := firstLine(c.State.Waiting.Message); text != "" {
				why += ": " + text
			}
		case c.State.Terminated != nil:
			why = fmt.Sprintf("ended with exit code %d", c.State.Terminated.ExitCode)
		}
	}
	return false, why
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// adviceFor returns advice for a pod that is not ready.
func adviceFor(p *core.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "ImagePullBackOff" || w.Reason == "ErrImagePull" || w.Reason == "ErrImageNeverPull") {
			return fmt.Sprintf("make %s available to the node: push it, load it there, or set the chart's image and imagePullSecrets", c.Image)
		}
	}
	return fmt.Sprintf("kubectl -n %s logs %s, and kubectl -n %[1]s describe pod %[2]s", p.Namespace, p.Name)
}
