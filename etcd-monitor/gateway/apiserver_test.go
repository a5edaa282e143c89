package gateway

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/netcraq/netcraq/internal/kubetest"
)

// uncached starts an API server without a watch cache, so that every read goes to its etcd endpoint, and is a client of it.
func uncached(t *testing.T, etcd string) typed.CoreV1Interface {
	t.Helper()
	s := kubetest.Start(t, kubetest.Options{Etcd: strings.TrimPrefix(etcd, "http://"), Args: []string{"--watch-cache=false", "--endpoint-reconciler-type=none"}})
	return s.Client(t).CoreV1()
}

func storeRevision(c *corev1.ConfigMap) int64 {
	n, _ := strconv.ParseInt(c.ResourceVersion, 10, 64)
	return n
}

// TestMinimumResourceVersion has two API servers at two gateways, between which keys come into the network and leave it. What is written by one is read by the other, with the revision of the write as the least
// that will do, and with none (which asks for the newest); and so is what nobody has written since. An answer may be an error to be tried again, where the gateway has not heard of the revision yet; it is never old.
func TestMinimumResourceVersion(t *testing.T) {
	kubetest.Binaries(t)
	w := newWorld(t)
	servers := []typed.CoreV1Interface{uncached(t, w.gateway()), uncached(t, w.gateway())}
	const still = "still" // which nobody writes: its own revision says nothing of the newest
	if _, err := servers[0].ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: still}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	answers, tooLarge := 0, 0
	get := func(ctx context.Context, from typed.CoreV1Interface, name, least string) (*corev1.ConfigMap, error) {
		for {
			c := &corev1.ConfigMap{}
			err := from.RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("configmaps").Name(name).VersionedParams(&metav1.GetOptions{ResourceVersion: least}, scheme.ParameterCodec).
				MaxRetries(0).Do(ctx).Into(c) // the client would try again by itself, a second later
			refused := err != nil && strings.Contains(err.Error(), "Too large resource version")
			mu.Lock()
			if refused {
				tooLarge++
			} else {
				answers++
			}
			mu.Unlock()
			if !refused {
				return c, err
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	var wg sync.WaitGroup
	for i, server := range servers {
		writes, reads := server.ConfigMaps(metav1.NamespaceDefault), servers[1-i]
		wg.Go(func() {
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("counter", i)}, Data: map[string]string{"n": "0"}}
			if _, err := writes.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
				t.Error(err)
				return
			}
			for n := 1; n <= 150 && !t.Failed(); n++ {
				c.Data["n"] = strconv.Itoa(n)
				written, err := writes.Update(t.Context(), c, metav1.UpdateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, q := range []struct{ name, least string }{{still, written.ResourceVersion}, {c.Name, written.ResourceVersion}, {c.Name, ""}, {c.Name, "0"}} {
					got, err := get(t.Context(), reads, q.name, q.least)
					if err != nil {
						t.Errorf("get %+v: %v", q, err)
						return
					}
					if got.Name != still && (storeRevision(got) < storeRevision(written) || got.Data["n"] != c.Data["n"]) {
						t.Errorf("get %+v: %s of revision %d, after %d of revision %d", q, got.Data["n"], storeRevision(got), n, storeRevision(written))
					}
				}
			}
		})
	}
	wg.Wait()
	fromNetwork := regexp.MustCompile(`etcd_monitor_reads_total\{answered="network",reason=""\} (\S+)`).FindStringSubmatch(exposed(t, w.metrics))
	t.Logf("%d reads; %d times \"Too large resource version\", tried again; of all gets of the API servers the network answered %q", answers, tooLarge, fromNetwork)
	if answers < 100 || fromNetwork == nil {
		t.Error("this says little")
	}
}
