package podaddresses

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/netcraq/netcraq/cni-plugin/agentapi"
)

// agent is a fake agent that has records and counts requests.
type agent struct {
	records []agentapi.Record
	err     error
	asked   int
}

func (a *agent) Attachments(context.Context) ([]agentapi.Record, error) {
	a.asked++
	return a.records, a.err
}

func record(name, address string) agentapi.Record {
	return agentapi.Record{Pod: agentapi.Pod{Namespace: "x", Name: name},
		Addresses: []agentapi.Address{{Prefix: netip.PrefixFrom(netip.MustParseAddr(address), 24)}}}
}

func pod(name string, phase corev1.PodPhase, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

const byAddress = "podIPKeyIndex" // the name of the library's index

// index returns the indexer that the library gets, with the library's index.
func index(t *testing.T, a *agent, pods ...*corev1.Pod) cache.Indexer {
	t.Helper()
	shared := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods()
	i, err := New(shared, "n1", a)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Informer().AddIndexers(cache.Indexers{byAddress: func(object any) (ips []string, _ error) {
		for _, ip := range object.(*corev1.Pod).Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		return ips, nil
	}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := shared.Informer().GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return i.Informer().GetIndexer()
}

// whose returns the name of the pod with an address, or "" if no pod has it.
func whose(t *testing.T, x cache.Indexer, address string) string {
	t.Helper()
	found, err := x.ByIndex(byAddress, address)
	if errors.Is(err, errNobody) {
		return ""
	}
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %v: the library would ask an NRI plugin that there is not", address, found, err)
	}
	return found[0].(*corev1.Pod).Name
}

func TestWhose(t *testing.T) {
	a := &agent{records: []agentapi.Record{record("new", "10.0.0.3"), record("new", "fd00::3"),
		record("again", "10.0.0.5"), record("forgotten", "10.0.0.7"), {Addresses: record("", "10.0.0.8").Addresses}}}
	x := index(t, a,
		pod("old", corev1.PodRunning, "10.0.0.2"),
		pod("new", corev1.PodPending),
		pod("done", corev1.PodSucceeded, "10.0.0.5"),
		pod("again", corev1.PodPending),
		pod("failed", corev1.PodFailed, "10.0.0.6"))
	for address, want := range map[string]string{
		"10.0.0.2":  "old",
		"10.0.0.3":  "new", // only the agent knows this address
		"fd00::3":   "new",
		"10.0.0.5":  "again", // an ended pod had this address before
		"10.0.0.6":  "",
		"10.0.0.7":  "", // the API server has no pod with this name
		"10.0.0.8":  "", // no pod has this address
		"192.0.2.1": "",
		"nonsense":  "",
	} {
		if got := whose(t, x, address); got != want {
			t.Errorf("%s is %q's, not %q's", address, got, want)
		}
	}
}

// TestAsked checks that the agent gets only few requests while no pod starts. While the agent does
// not answer, its last answer must be used.
func TestAsked(t *testing.T) { synctest.Test(t, asked) }

func asked(t *testing.T) {
	a := &agent{}
	x := index(t, a, pod("old", corev1.PodRunning, "10.0.0.2"))
	for want := 1; want <= 3; want++ {
		for range 1000 {
			whose(t, x, "10.0.0.2")
			whose(t, x, "192.0.2.1")
		}
		if a.asked != want {
			t.Errorf("it was asked %d times, not %d", a.asked, want)
		}
		time.Sleep(later)
	}
	a.records = []agentapi.Record{record("new", "10.0.0.3")}
	if err := x.Add(pod("new", corev1.PodPending)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(soon)
	if got := whose(t, x, "10.0.0.3"); got != "new" {
		t.Errorf("a pod that begins is %q", got)
	}
	a.err = errors.New("no answer")
	time.Sleep(soon)
	if got := whose(t, x, "10.0.0.3"); got != "new" {
		t.Errorf("a pod that begins is %q while the agent is silent", got)
	}
}
