package operator_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/internal/testutil/kubetest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/operator"
)

const namespace = "netcraq-pipelets"

// world is an API server with the operator's manifests, and an operator. The operator has only the
// rights that the manifests grant.
type world struct {
	*kubetest.Server
	t        *testing.T
	admin    client.Client
	own      client.Client // a client with the operator's rights
	operator *rest.Config  // the operator's configuration
	lake     string
	webhook  string // address of the webhook as HOST:PORT
	metrics  string
	log      *syncbuffer.Buffer
	stop     func()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{Server: kubetest.Start(t, kubetest.Options{}), t: t, lake: t.TempDir(), webhook: testport.Free(t),
		metrics: testport.Free(t), log: &syncbuffer.Buffer{}}
	for _, name := range []string{"namespace.yaml", "crd/netcraq.io_pipelets.yaml", "rbac.yaml", "webhook.yaml"} {
		w.Kubectl(t, kubetest.Options{}, "apply", "-f", filepath.Join("../../deploy", name))
	}
	w.Kubectl(t, kubetest.Options{}, "wait", "--for=condition=Established", "--timeout=60s", "crd", "pipelets.netcraq.io")
	// This also checks the Deployment, as far as an API server without a kubelet can do so.
	w.Kubectl(t, kubetest.Options{}, "apply", "--dry-run=server", "-f", "../../deploy/operator.yaml")
	scheme, err := operator.Scheme()
	must(t, err)
	token := w.Token(t, namespace, "netcraq-pipelets", "n1")
	w.admin, err = client.New(w.Config, client.Options{Scheme: scheme})
	must(t, err)
	w.operator = w.As(token)
	w.own, err = client.New(w.operator, client.Options{Scheme: scheme})
	must(t, err)
	// This API server has no kube-proxy, so it calls the webhook by a URL instead of a Service.
	var hooks admissionregistration.ValidatingWebhookConfiguration
	must(t, w.admin.Get(t.Context(), client.ObjectKey{Name: operator.Name}, &hooks))
	url := "https://" + w.webhook + *hooks.Webhooks[0].ClientConfig.Service.Path
	hooks.Webhooks[0].ClientConfig.URL, hooks.Webhooks[0].ClientConfig.Service = &url, nil
	must(t, w.admin.Update(t.Context(), &hooks))
	_, port, err := net.SplitHostPort(w.webhook)
	must(t, err)
	n, err := strconv.Atoi(port)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, operator.Options{Config: w.As(token), Namespace: namespace, Replica: "r1", Lake: w.lake,
			WebhookPort: n, WebhookHosts: []string{"127.0.0.1"}, CertDir: t.TempDir(), Metrics: w.metrics, Health: "0",
			Log: slog.New(slog.NewTextHandler(w.log, nil))})
	}()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the operator: %v\n%s", err, w.log)
			}
		})
	}
	t.Cleanup(func() {
		w.stop()
		if t.Failed() {
			t.Log(w.log)
		}
	})
	poll.Nil(t, 30*time.Second, "the webhook", func() error {
		c, err := tls.Dial("tcp", w.webhook, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			c.Close()
		}
		return err
	})
	return w
}

func etcd(t *testing.T) (string, *clientv3.Client) {
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), LogLevel: "error"})
	must(t, err)
	t.Cleanup(s.Close)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return s.Endpoint(), c
}

func pipelet(name, from, to, flow string) *pipeletapi.Pipelet {
	return &pipeletapi.Pipelet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: pipeletapi.Spec{
			Src:  []pipeletapi.Store{{Etcd: &pipeletapi.Etcd{Endpoints: []string{from}, Prefix: "load/"}}},
			Dst:  []pipeletapi.Store{{Etcd: &pipeletapi.Etcd{Endpoints: []string{to}, Prefix: name + "/"}}},
			Flow: flow, EOIO: true,
		},
	}
}

// is waits until the status of a Pipelet has the given state and message.
func (w *world) is(name, state, message string) (p pipeletapi.Pipelet) {
	w.t.Helper()
	poll.Nil(w.t, 40*time.Second, name+" is "+state+" "+message, func() error {
		if err := w.admin.Get(w.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &p); err != nil {
			return err
		}
		text := ""
		for _, c := range p.Status.Conditions {
			text += c.Message
		}
		if p.Status.State != state || !strings.Contains(text, message) || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("it is %+v", p.Status)
		}
		return nil
	})
	return p
}

func has(t *testing.T, c *clientv3.Client, key, want string) {
	t.Helper()
	poll.Nil(t, 30*time.Second, key, func() error {
		r, err := c.Get(t.Context(), key)
		switch {
		case err != nil:
			return err
		case len(r.Kvs) == 1 && string(r.Kvs[0].Value) == want, len(r.Kvs) == 0 && want == "":
			return nil
		}
		return fmt.Errorf("it is %v, want %q", r.Kvs, want)
	})
}

// TestLife checks the life of a Pipelet, which is created, changed, suspended and deleted. Invalid
// Pipelets must be refused.
func TestLife(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	from, source := etcd(t)
	to, dest := etcd(t)
	put := func(key, value string) {
		t.Helper()
		if _, err := source.Put(ctx, "load/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")

	// The API server must refuse invalid fields with an error that contains the path of the field.
	for _, c := range []struct {
		change func(*pipeletapi.Pipelet)
		want   string
	}{
		{func(p *pipeletapi.Pipelet) { p.Spec.Flow = "SELECT key,\n valu FROM src" }, "LINE 2"},
		{func(p *pipeletapi.Pipelet) { p.Spec.Flow = "DROP TABLE src" }, "to be a SELECT"},
		{func(p *pipeletapi.Pipelet) { p.Spec.Dst[0].Etcd.Endpoints = []string{"x"} }, "spec.dst[0]"},
		{func(p *pipeletapi.Pipelet) { p.Spec.Dst = nil }, "spec.dst"},
		{func(p *pipeletapi.Pipelet) { p.Spec.Interval = -1 }, "spec.interval"},
		{func(p *pipeletapi.Pipelet) { p.Spec.State = "SELECT key, value FROM src" }, "no flow"},
		{func(p *pipeletapi.Pipelet) {
			p.Spec.Flow, p.Spec.State = "SELECT key, value FROM state", "SELECT key,\n valu AS value FROM state"
		}, "the state: the flow: Binder Error"},
		{func(p *pipeletapi.Pipelet) { p.Spec.Dst[0].Parquet = &pipeletapi.Parquet{Path: w.lake + "/default"} }, "spec.dst"},
		{func(p *pipeletapi.Pipelet) {
			p.Spec.Dst = []pipeletapi.Store{{Parquet: &pipeletapi.Parquet{Path: "/etc"}}}
		}, w.lake + "/default"},
		{func(p *pipeletapi.Pipelet) {
			p.Spec.Dst = []pipeletapi.Store{{Parquet: &pipeletapi.Parquet{Path: w.lake + "/default/../other"}}}
		}, "of this namespace"},
		{func(p *pipeletapi.Pipelet) {
			p.Spec.Dst[0].Etcd = &pipeletapi.Etcd{Endpoints: []string{from}, Prefix: "load/x"}
		}, "feed itself"},
	} {
		p := pipelet("p1", from, to, "")
		c.change(p)
		if err := w.admin.Create(ctx, p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}

	p := pipelet("p1", from, to, "")
	must(t, w.admin.Create(ctx, p))
	has(t, dest, "p1/a", "1")
	found := w.is("p1", pipeletapi.Running, "")
	if len(found.Status.Workers) != 1 || found.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("%+v", found.Status)
	}
	change := func(f func(*pipeletapi.Spec)) error {
		t.Helper()
		was := found.DeepCopy()
		f(&found.Spec)
		return w.admin.Patch(ctx, &found, client.MergeFrom(was))
	}
	if err := change(func(s *pipeletapi.Spec) { s.Flow = "SELECT key FROM src" }); err == nil || !strings.Contains(err.Error(), "one column value") {
		t.Errorf("a change: %v", err)
	}
	must(t, change(func(s *pipeletapi.Spec) { s.Flow = "SELECT key, 10 * value::INT AS value FROM src" }))
	found = w.is("p1", pipeletapi.Running, "")
	put("b", "2")
	has(t, dest, "p1/b", "20")
	has(t, dest, "p1/a", "1") // the row is unchanged

	put("c", "x") // the flow cannot process this record, so the Pipelet stops there and reports it
	found = w.is("p1", pipeletapi.Failing, "Could not convert string 'x'")
	if found.Status.Workers[0].Reason != "FlowFails" || found.Status.LastError == "" {
		t.Errorf("%+v", found.Status)
	}
	put("d", "4")
	must(t, change(func(s *pipeletapi.Spec) { s.Flow = "SELECT key, 10 * TRY_CAST(value AS INT) AS value FROM src" }))
	has(t, dest, "p1/d", "40")

	must(t, change(func(s *pipeletapi.Spec) { s.Suspend = true }))
	found = w.is("p1", pipeletapi.Suspended, "")
	put("e", "5")
	time.Sleep(500 * time.Millisecond)
	has(t, dest, "p1/e", "")
	must(t, change(func(s *pipeletapi.Spec) { s.Suspend = false }))
	has(t, dest, "p1/e", "50")
	found = w.is("p1", pipeletapi.Running, "")
	table := w.Kubectl(t, kubetest.Options{}, "get", "pl")
	for _, want := range []string{"STATE", "LAG", "RECORDS/S", "ROWS", "Running"} {
		if !strings.Contains(table, want) {
			t.Errorf("kubectl get pl says\n%s", table)
		}
	}
	poll.Nil(t, 30*time.Second, "the metrics", func() error {
		r, err := http.Get("http://" + w.metrics + "/metrics")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		if want := `netcraq_pipelet_ready{dst="0",namespace="default",pipelet="p1",src="0"} 1`; !bytes.Contains(b, []byte(want)) {
			return fmt.Errorf("there is no %s", want)
		}
		return nil
	})
	must(t, w.admin.Delete(ctx, &found))
	poll.Until(t, 20*time.Second, "its worker has ended", func() bool {
		return strings.Count(w.log.String(), "msg=stopped") == 4
	})
	put("f", "6")
	time.Sleep(300 * time.Millisecond)
	has(t, dest, "p1/f", "")
	// A Pipelet that is created again continues at its position, which the destination has stored.
	must(t, w.admin.Create(ctx, pipelet("p1", from, to, "")))
	has(t, dest, "p1/f", "6")
	has(t, dest, "p1/a", "1")
	w.stop()
}

// TestReplicas checks that replicas share the Pipelets, and that Pipelets with the same source stay
// together. When a replica ends, it must release its Pipelets at once, and other replicas continue
// them.
func TestReplicas(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	from, source := etcd(t)
	to, dest := etcd(t)
	second := w.replica("r2")
	defer second()
	for i := range 4 {
		p := pipelet(fmt.Sprint("p", i), from, to, "")
		p.Spec.Src[0].Etcd.Prefix = fmt.Sprintf("load%d/", i/2) // p0 and p1 get the same source, and so do p2 and p3
		must(t, w.admin.Create(ctx, p))
	}
	assigned := func() (all string) {
		list, err := operator.List(ctx, w.Config)
		must(t, err)
		for _, p := range list {
			all += p.Status.Assigned + " "
		}
		return all
	}
	poll.Until(t, 30*time.Second, "both have a part", func() bool {
		got := assigned()
		return got == "r1 r1 r2 r2 " || got == "r2 r2 r1 r1 "
	}, assigned)
	put := func(value string) {
		t.Helper()
		for i := range 2 {
			if _, err := source.Put(ctx, fmt.Sprintf("load%d/a", i), value); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			has(t, dest, fmt.Sprintf("p%d/a", i), value)
		}
	}
	put("1")
	for i := range 4 {
		w.is(fmt.Sprint("p", i), pipeletapi.Running, "")
	}
	if table := w.Kubectl(t, kubetest.Options{}, "get", "pl", "-o", "wide"); !strings.Contains(table, "REPLICA") ||
		!strings.Contains(table, "r1") || !strings.Contains(table, "r2") {
		t.Errorf("kubectl get pl -o wide says\n%s", table)
	}
	begin := time.Now()
	second()
	all := func() bool { return assigned() == "r1 r1 r1 r1 " }
	poll.Until(t, 30*time.Second, "the other one has all", all, assigned)
	if d := time.Since(begin); d > 12*time.Second { // the limit is less than the time in which a Lease expires
		t.Errorf("what was given back was taken after %v", d)
	}
	put("2")
	var leases coordination.LeaseList
	if err := w.own.List(ctx, &leases); !apierrors.IsForbidden(err) {
		t.Errorf("all namespaces' Leases: %v", err)
	}
}

// replica starts another replica of the operator. The returned function ends it.
func (w *world) replica(name string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operator.Run(ctx, operator.Options{Config: w.operator, Namespace: namespace, Replica: name,
			Lake: w.lake, Metrics: "0", Health: "0", Log: slog.New(slog.NewTextHandler(w.log, nil))})
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the operator %s: %v", name, err)
			}
		})
	}
}

// TestSecrets checks that the operator reads only the Secrets for which it has a grant, and reports
// a missing grant.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	from, source := etcd(t)
	to, dest := etcd(t)
	if _, err := source.Put(ctx, "load/a", "1"); err != nil {
		t.Fatal(err)
	}
	p := pipelet("p1", from, to, "")
	p.Spec.Dst[0].Etcd.Secret = "second"
	must(t, w.admin.Create(ctx, p))
	w.is("p1", pipeletapi.Failing, "kubectl -n default create role")
	must(t, w.admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}))
	must(t, w.admin.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"},
		StringData: map[string]string{"ca.crt": "no certificate"}}))
	w.Kubectl(t, kubetest.Options{}, "create", "role", "pipelets-second", "--verb=get", "--resource=secrets", "--resource-name=second")
	w.Kubectl(t, kubetest.Options{}, "create", "rolebinding", "pipelets-second", "--role=pipelets-second",
		"--serviceaccount=netcraq-pipelets:netcraq-pipelets")
	w.is("p1", pipeletapi.Failing, "ca.crt has no certificate")
	var s corev1.Secret
	must(t, w.admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "second"}, &s))
	s.Data = nil
	must(t, w.admin.Update(ctx, &s))
	has(t, dest, "p1/a", "1")
	w.is("p1", pipeletapi.Running, "")

	// forbidden checks that an action failed because the operator lacks the right for it.
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	forbidden("another Secret", w.own.Get(ctx, client.ObjectKey{Namespace: "default", Name: "other"}, &s))
	forbidden("all Secrets", w.own.List(ctx, &corev1.SecretList{}))
	forbidden("its namespace's Secrets", w.own.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)))
	forbidden("making a Pipelet", w.own.Create(ctx, pipelet("p2", from, to, "")))
	must(t, w.own.Get(ctx, client.ObjectKeyFromObject(p), p))
	p.Spec.Suspend = true
	forbidden("changing a Pipelet", w.own.Update(ctx, p))
	forbidden("other webhooks", w.own.Get(ctx, client.ObjectKey{Name: "other"}, &admissionregistration.ValidatingWebhookConfiguration{}))
	forbidden("pods", w.own.List(ctx, &corev1.PodList{}))
}

// TestHostileWebhook checks that any request to the webhook gets an answer or a closed connection.
// No request may crash the operator.
func TestHostileWebhook(t *testing.T) {
	w := newWorld(t)
	c := &http.Client{Timeout: 20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	url := "https://" + w.webhook + "/validate-netcraq-io-v1alpha1-pipelet"
	for _, body := range []string{"", "{", "null", `{"request":null}`, `{"request":{"uid":"1"}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":{"spec":{"src":[null]}}}}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","object":{"spec":{"src":[{"etcd":null}],"dst":[{}]}}}}`,
		strings.Repeat("[", 1<<20), strings.Repeat(" ", 16<<20)} {
		r, err := c.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			continue // the webhook may close a connection
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if strings.Contains(string(b), `"allowed":true`) {
			t.Errorf("%.100s is allowed", body)
		}
	}
	// Flows that compute endlessly delay other flows for seconds, but a valid flow must still be
	// accepted.
	const heavy = "SELECT 'a' AS key, (SELECT sum(a.range * b.range % 7) FROM range(1000000) a, range(1000000) b) AS value"
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			err := w.admin.Create(t.Context(), pipelet(fmt.Sprint("heavy", i), "http://127.0.0.1:1", "http://127.0.0.1:2", heavy))
			if err == nil {
				t.Error("a flow that computes without end is taken")
			}
		})
	}
	group.Wait()
	// A flow that overflows DuckDB's stack must not crash the operator. It must be refused with a
	// clear error.
	const deep = "SELECT 'a' AS key, json_structure(repeat('[', 400000) || repeat(']', 400000)) AS value"
	err := w.admin.Create(t.Context(), pipelet("deep", "http://127.0.0.1:1", "http://127.0.0.1:2", deep))
	if err == nil || !strings.Contains(err.Error(), "its process ended") {
		t.Errorf("a flow that overflows a stack: %v", err)
	}
	begin := time.Now()
	must(t, w.admin.Create(t.Context(), pipelet("good", "http://127.0.0.1:1", "http://127.0.0.1:2", "SELECT key, value FROM src")))
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("a good one takes %v behind them", d)
	}
	w.is("good", pipeletapi.Failing, "")
}

// TestDefinition checks that the CRD in the manifests matches the Go types. If it fails, run make
// generate.
func TestDefinition(t *testing.T) {
	b, err := os.ReadFile("../../deploy/crd/netcraq.io_pipelets.yaml")
	must(t, err)
	for _, want := range []string{"postgresql:", "parquet:", "chain:", "stream:", "suspend:", "lastError:", "jsonPath: .status.lag"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("it has no %s", want)
		}
	}
}
