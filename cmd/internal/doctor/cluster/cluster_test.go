package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
)

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// world has the objects of a cluster. The keys are the names by which a test changes an object.
type world map[string]runtime.Object

const image = "registry.example/netcraq/netcraq-agent:0.1.0"

// healthy returns a cluster without faults: one control-plane node and one worker.
func healthy() world {
	w := world{}
	for i, node := range []string{"cp", "worker"} {
		w["node "+node] = &core.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		name := fmt.Sprintf("netcraq-agent-%d", i)
		w["set "+node] = set(name, AgentName)
		w["agent "+node] = pod(NamespaceDefault, name+"-x", AgentName, node, image)
		w["policies "+node] = pod(NamespaceDefault, "policies-"+node, PoliciesName, node,
			"registry.example/netcraq/netcraq-policies:0.1.0")
	}
	w["policies"] = set("netcraq-policies", PoliciesName)
	holder, seconds, renewed := "cp", int32(5), metav1.NewMicroTime(now.Add(-time.Second))
	w["lease"] = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceDefault, Name: LeaderLease},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed}}
	w["chain"] = chainObject("main", 2, "True", "True", "True", "")
	w["gateway"] = pod(GatewayNamespace, "etcd-monitor-cp", GatewayName, "cp", "registry.example/netcraq/etcd-monitor:0.1.0")
	server := pod(GatewayNamespace, "kube-apiserver-cp", "", "cp", "registry.k8s.io/kube-apiserver:v1.34.0")
	server.Labels = map[string]string{"component": "kube-apiserver"}
	server.Spec.Containers[0].Command = []string{"kube-apiserver", "--etcd-servers=https://127.0.0.1:23790"}
	w["apiserver"] = server
	return w
}

func set(name, part string) *apps.DaemonSet {
	return &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceDefault, Name: name,
		Labels: map[string]string{NameLabel: part}},
		Status: apps.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1}}
}

func pod(namespace, name, part, node, image string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{NameLabel: part}},
		Spec:       core.PodSpec{NodeName: node, Containers: []core.Container{{Name: "c", Image: image}}},
		Status: core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}},
			ContainerStatuses: []core.ContainerStatus{{Image: image, ImageID: "sha256:of-" + image}}}}
}

// chainObject returns a chain with these condition statuses. The message is set for each condition
// that is not true.
func chainObject(name string, length int64, accepted, up, full, message string) *unstructured.Unstructured {
	condition := func(kind, status string) any {
		return map[string]any{"type": kind, "status": status, "message": message, "reason": "R"}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "netcraq.io/v1alpha1", "kind": "NetcraqChain",
		"metadata": map[string]any{"name": name, "generation": int64(2)},
		"spec":     map[string]any{"length": length},
		"status": map[string]any{"observedGeneration": int64(2), "length": int64(2), "order": "cp > worker", "slots": int64(16384),
			"placedKeys": int64(7), "conditions": []any{condition("Accepted", accepted), condition("Ready", up),
				condition("FullLength", full)}}}}
}

// client returns a fake client of the cluster. If fails is set, the client answers every request
// with that error.
func (w world) client(t *testing.T, fails error) dynamic.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	err := errors.Join(core.AddToScheme(scheme), apps.AddToScheme(scheme), coordination.AddToScheme(scheme))
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, o := range w {
		objects = append(objects, o)
	}
	c := fake.NewSimpleDynamicClientWithCustomListKinds(scheme,
		map[schema.GroupVersionResource]string{chainsResource: "NetcraqChainList"}, objects...)
	if fails != nil {
		c.PrependReactor("*", "*", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, fails })
	}
	return c
}

// found runs one check of the cluster, and returns one line for each finding.
func (w world) found(t *testing.T, check string, fails error) (lines []string) {
	t.Helper()
	r, err := run(t.Context(), w.client(t, fails), "https://cluster", Options{Checks: []string{check},
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Check != check {
			t.Errorf("a finding of %s in a run of %s", f.Check, check)
		}
		if bad := f.Level == doctor.Problem || f.Level == doctor.Warning; bad && f.Advice == "" {
			t.Errorf("without advice: %s", f.Message)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s -> %s", f.Level, f.Subject, f.Message, f.Advice))
	}
	return lines
}

// In a healthy cluster each check has one line, which says that all is well.
func TestHealthy(t *testing.T) {
	for check, want := range map[string]string{
		"agents":   "ok : ready on 2 nodes",
		"leader":   "ok cp: the agent of this node leads",
		"chains":   "ok main: cp > worker; 7 of 16384 slots are taken",
		"gateways": "ok : 1 gateway ready; used by 1 API server",
		"policies": "ok : ready on 2 nodes",
		"images":   "ok : registry.example/netcraq/etcd-monitor:0.1.0, registry.example/netcraq/netcraq-agent:0.1.0, ",
	} {
		if got := healthy().found(t, check, nil); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s: %q, want %q", check, got, want)
		}
	}
	r, err := run(t.Context(), healthy().client(t, nil), "https://cluster",
		Options{Now: func() time.Time { return now }})
	if err != nil || len(r.Findings) != len(checks) || r.Count(doctor.OK) != len(checks) || r.Host != "https://cluster" {
		t.Errorf("all checks: %+v, %v", r, err)
	}
}

// waits gives a pod the status of waiting for a reason.
func waits(o runtime.Object, reason, message string) {
	p := o.(*core.Pod)
	p.Status.Conditions[0].Status = core.ConditionFalse
	p.Status.ContainerStatuses[0].State.Waiting = &core.ContainerStateWaiting{Reason: reason, Message: message}
}

// TestFaults checks that each fault is found, and that the advice names the remedy.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		check  string
		change func(w world)
		want   string // expected text of one line
		lines  int
	}{
		{"agents", func(w world) { delete(w, "set cp"); delete(w, "set worker") },
			"problem : NetCRAQ is not in the namespace netcraq-system: there is no DaemonSet of agents -> install it", 1},
		{"agents", func(w world) { delete(w, "agent worker") }, "problem worker: no pod of netcraq-agent is on this node", 1},
		{"agents", func(w world) { waits(w["agent worker"], "ImagePullBackOff", "no such image\nmore") },
			"problem worker: the pod netcraq-agent-1-x is not ready: ImagePullBackOff: no such image -> make " + image + " available", 1},
		{"agents", func(w world) {
			waits(w["agent cp"], "CrashLoopBackOff", "")
			w["agent cp"].(*core.Pod).Status.ContainerStatuses[0].LastTerminationState = core.ContainerState{
				Terminated: &core.ContainerStateTerminated{ExitCode: 3}}
		}, "not ready: CrashLoopBackOff after exit code 3 -> kubectl -n netcraq-system logs netcraq-agent-0-x", 1},
		{"agents", func(w world) { w["set cp"].(*apps.DaemonSet).Status.UpdatedNumberScheduled = 0 },
			"warning netcraq-agent-0: an update is under way: 0 of 1 pods are new -> wait", 2},
		{"leader", func(w world) { delete(w, "lease") }, "problem : no agent has ever led", 1},
		{"leader", func(w world) {
			renewed := metav1.NewMicroTime(now.Add(-time.Minute))
			w["lease"].(*coordination.Lease).Spec.RenewTime = &renewed
		}, "problem cp: the agent of this node led, and has not said so for 1m0s -> kubectl", 1},
		{"leader", func(w world) { *w["lease"].(*coordination.Lease).Spec.HolderIdentity = "" }, "problem : no agent leads", 1},
		{"chains", func(w world) { delete(w, "chain") }, "warning : there is no chain", 1},
		{"chains", func(w world) { w["chain"] = chainObject("main", 2, "False", "False", "False", "no profile") },
			"problem main: its spec is not possible: no profile", 1},
		{"chains", func(w world) { w["chain"] = chainObject("main", 2, "True", "False", "True", "n1 has no live lease") },
			"problem main: it is not ready: n1 has no live lease -> kubectl describe netcraqchain main", 1},
		{"chains", func(w world) { w["chain"] = chainObject("main", 3, "True", "True", "False", "needs a node") },
			"warning main: it has 2 of 3 members: needs a node", 1},
		{"chains", func(w world) {
			_ = unstructured.SetNestedField(w["chain"].(*unstructured.Unstructured).Object, int64(1), "status", "observedGeneration")
		}, "warning main: the leader has not seen the newest spec", 1},
		{"chains", func(w world) {
			_ = unstructured.SetNestedField(w["chain"].(*unstructured.Unstructured).Object, int64(16384), "status", "placedKeys")
		}, "warning main: all 16384 slots are taken", 1},
		{"chains", func(w world) {
			unstructured.RemoveNestedField(w["chain"].(*unstructured.Unstructured).Object, "status")
		},
			"problem main: it is not ready: the leader has not reported it", 1},
		{"gateways", func(w world) { delete(w, "gateway") }, "problem cp: the API server asks etcd through a gateway, and there is none", 1},
		{"gateways", func(w world) { waits(w["gateway"], "CrashLoopBackOff", "") }, "problem cp: the gateway is not ready", 1},
		{"gateways", func(w world) { w["apiserver"].(*core.Pod).Spec.Containers[0].Command = nil },
			"note cp: the API server does not use the gateway of its node", 2},
		{"gateways", func(w world) { delete(w, "gateway"); delete(w, "apiserver") }, "note : no gateway is before etcd", 1},
		{"policies", func(w world) { delete(w, "policies") }, "note : NetCRAQ does not enforce NetworkPolicy here", 1},
		{"policies", func(w world) { delete(w, "policies cp") }, "problem cp: no pod of netcraq-policies is on this node", 1},
		{"images", func(w world) { w["agent cp"].(*core.Pod).Spec.Containers[0].Image = "r/netcraq-agent:0.3.0" },
			"problem : the versions 0.1.0 and 0.3.0 run together", 1},
		{"images", func(w world) { w["agent cp"].(*core.Pod).Spec.Containers[0].Image = "r/netcraq-agent:v0.2.1" },
			"warning : the versions 0.1.0 and 0.2.1 run together", 1},
		{"images", func(w world) { w["agent cp"].(*core.Pod).Status.ContainerStatuses[0].ImageID = "sha256:other" },
			"warning " + image + ": nodes have 2 different images of this name", 2},
	} {
		w := healthy()
		c.change(w)
		got := w.found(t, c.check, nil)
		if text := strings.Join(got, "\n"); len(got) != c.lines || !strings.Contains(text, c.want) {
			t.Errorf("%s finds\n%s\nwant %d lines, with %s", c.check, text, c.lines, c.want)
		}
	}
}

// The report says which objects the user may not read. A failing API server is reported as a
// problem.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")), "unseen "},
		{errors.New("connection refused"), "problem "},
		{apierrors.NewNotFound(schema.GroupResource{Resource: "x"}, ""), "problem "},
	} {
		for _, check := range Checks() {
			got := healthy().found(t, check[0], c.err)
			if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("%s with %v: %q", check[0], c.err, got)
			}
		}
	}
}

// Run contacts the API server of a kubeconfig. Without a kubeconfig the error says what is missing.
func TestRun(t *testing.T) {
	if _, err := Run(t.Context(), Options{Kubeconfig: filepath.Join(t.TempDir(), "none")}); err == nil ||
		!strings.Contains(err.Error(), "Pass --kubeconfig FILE") {
		t.Errorf("without a kubeconfig: %v", err)
	}
	if _, err := run(t.Context(), nil, "", Options{Checks: []string{"sorcery"}}); err == nil ||
		!strings.Contains(err.Error(), `there is no check "sorcery" of a cluster; there are agents, leader`) {
		t.Errorf("a check that is not there: %v", err)
	}
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`, http.StatusForbidden)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c","cluster":{"server":"` + server.URL +
		`"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Kubeconfig: file, Timeout: 10 * time.Second})
	if err != nil || r.Host != server.URL || r.Count(doctor.OK) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	close(asked)
	for what := range asked {
		if !strings.HasPrefix(what, "GET ") {
			t.Errorf("it does more than read: %s", what)
		}
	}
	if _, err := Run(t.Context(), Options{Kubeconfig: file, Context: "y"}); err == nil {
		t.Error("a context that is not there is accepted")
	}
}

// The names in this package equal those in the manifests and in the agents.
func TestNames(t *testing.T) {
	const plugin = "../../../../cni-plugin/"
	for file, texts := range map[string][]string{
		"deploy/agent/base/daemonset.yaml":              {NameLabel + ": " + AgentName + "}"},
		"deploy/policies/policies.yaml":                 {NameLabel + ": " + PoliciesName + "}", "namespace: " + NamespaceDefault},
		"deploy/etcd-monitor/etcd-monitor.yaml":         {NameLabel + ": " + GatewayName + ",", "namespace: " + GatewayNamespace, gatewayPort},
		"leader/leader.go":                              {`LeaseName = "` + LeaderLease + `"`},
		"deploy/crd/netcraq.io_netcraqchains.yaml":      {"group: netcraq.io", "plural: netcraqchains", "name: v1alpha1"},
		"deploy/crd/netcraq.io_netcraqnodes.yaml":       {"group: netcraq.io"},
		"deploy/agent/control-plane/kustomization.yaml": {"app.kubernetes.io/component: control-plane"},
	} {
		text, err := os.ReadFile(plugin + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range texts {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", file, want)
			}
		}
	}
	// The check of chains can read the status that the agents write.
	status := v1alpha1.NetcraqChainStatus{ObservedGeneration: 3, Length: 2, Order: "a > b", PlacedKeys: 4, Slots: 5,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Message: "m"},
			{Type: v1alpha1.ConditionFullLength, Status: metav1.ConditionFalse}}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.NetcraqChain{
		ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.NetcraqChainSpec{Length: 6}, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	var c chain
	if err := convert(object, &c); err != nil {
		t.Fatal(err)
	}
	if s := c.Status; c.Name != "main" || c.Spec.Length != 6 || s.ObservedGeneration != 3 || s.Length != 2 || s.Order != "a > b" ||
		s.PlacedKeys != 4 || s.Slots != 5 || c.condition("Accepted").Status != metav1.ConditionTrue ||
		c.condition("Ready").Message != "m" || c.condition("FullLength").Status != metav1.ConditionFalse {
		t.Errorf("it reads %+v", c)
	}
}
