package gateway

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/netcraq/netcraq/internal/testutil/kubetest"
)

// apiServer starts a Kubernetes API server that uses the etcd endpoint, and returns a client of the
// API server.
func apiServer(t *testing.T, etcd string, args ...string) typed.CoreV1Interface {
	t.Helper()
	s := kubetest.Start(t, kubetest.Options{Etcd: strings.TrimPrefix(etcd, "http://"), Args: append(args, "--endpoint-reconciler-type=none")})
	return s.Client(t).CoreV1()
}

// uncached disables the API server's watch cache, so that every read goes to the etcd endpoint.
const uncached = "--watch-cache=false"

func storeRevision(c *corev1.ConfigMap) int64 {
	n, _ := strconv.ParseInt(c.ResourceVersion, 10, 64)
	return n
}

// TestMinimumResourceVersion runs two API servers at two gateways, while keys are placed and
// removed. One API server reads what the other one writes. It reads once with the write's revision
// as the minimum, and once without a minimum, which requests the newest state. It also reads a key
// without recent writes. An answer may be a retriable error if the gateway has not seen the
// revision yet. An answer must never be old.
func TestMinimumResourceVersion(t *testing.T) {
	kubetest.Binaries(t)
	w := newWorld(t)
	servers := []typed.CoreV1Interface{apiServer(t, w.gateway(), uncached), apiServer(t, w.gateway(), uncached)}
	const still = "still" // no one writes this key, so its own revision does not show the store's newest revision
	if _, err := servers[0].ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: still}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	answers, tooLarge := 0, 0
	get := func(ctx context.Context, from typed.CoreV1Interface, name, least string) (*corev1.ConfigMap, error) {
		for {
			c := &corev1.ConfigMap{}
			err := from.RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("configmaps").Name(name).
				VersionedParams(&metav1.GetOptions{ResourceVersion: least}, scheme.ParameterCodec).
				MaxRetries(0).Do(ctx).Into(c) // without this, the client would retry a second later
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
			c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("counter", i)},
				Data: map[string]string{"n": "0"}}
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
				for _, q := range []struct{ name, least string }{{still, written.ResourceVersion},
					{c.Name, written.ResourceVersion}, {c.Name, ""}, {c.Name, "0"}} {
					got, err := get(t.Context(), reads, q.name, q.least)
					if err != nil {
						t.Errorf("get %+v: %v", q, err)
						return
					}
					if got.Name != still && (storeRevision(got) < storeRevision(written) ||
						got.Data["n"] != c.Data["n"]) {
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

// far returns the URL of a proxy to a server that delays all bytes in both directions.
func far(t *testing.T, endpoint string, away time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	carry := func(to, from net.Conn) {
		type part struct {
			due   time.Time
			bytes []byte
		}
		parts := make(chan part, 1<<12)
		go func() {
			defer to.Close()
			for p := range parts {
				time.Sleep(time.Until(p.due))
				to.Write(p.bytes) // after a failure the other direction ends, and the deferred call closes from
			}
		}()
		defer close(parts)
		for {
			b := make([]byte, 1<<16)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			parts <- part{time.Now().Add(away), b[:n]}
		}
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "http://"))
			if err != nil {
				near.Close()
				continue
			}
			go carry(server, near)
			go carry(near, server)
		}
	}()
	return "http://" + l.Addr().String()
}

// TestConsistentLists runs one API server with a watch cache at a gateway that is 20 ms away from
// etcd, and another one near etcd. Before it lists objects, an API server asks etcd for the newest
// revision: it reads a key that does not exist (/registry/configmaps). It then waits until its
// cache has that revision (KEP-2340). The far server's next list must contain everything that the
// near server has created. If the switches answered that a key does not exist, the answer would
// have an old revision. So placement does not place missing keys. The second case shows what would
// happen otherwise.
func TestConsistentLists(t *testing.T) {
	kubetest.Binaries(t)
	const times = 50
	for _, c := range []struct {
		name   string
		absent []string // keys that are placed although they do not exist
	}{
		{"as placement does it", nil},
		{"if what does not exist were placed", []string{"/registry/configmaps"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.absent...)
			near, distant := apiServer(t, w.gateway()),
				apiServer(t, w.gatewayBefore(far(t, w.cluster.Endpoints()[0], 20*time.Millisecond)))
			missed := 0
			for n := range times {
				name := fmt.Sprint("listed", n)
				if _, err := near.ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				list, err := distant.ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == name }) {
					missed++
				}
			}
			t.Logf("%d of %d lists lack what had been created", missed, times)
			switch {
			case c.absent == nil && missed > 0:
				t.Error("a consistent list was old")
			case c.absent != nil && missed == 0:
				t.Error("none: this test does not see what it is for")
			}
		})
	}
}
