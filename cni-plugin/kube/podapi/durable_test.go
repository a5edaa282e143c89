package podapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/leaderlink"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/nodeapi/durable/door"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestDurableKeys uses an agent that has no certificate for etcd. The agent stores the keys of an
// annotated namespace in etcd through the leading agent, over two terms. It must have no access to
// other keys of etcd.
func TestDurableKeys(t *testing.T) {
	ctx := t.Context()
	ca := testutil.NewAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.Identity(t, "n1", identity.Switch).Server())
	testutil.Must(t, err)
	link := leaderlink.New()
	defer link.Close()
	mux := http.NewServeMux()
	mux.Handle("GET "+leaderlink.Path, link)
	agent := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = agent.Serve(l) }() // the server ends with the test
	defer agent.Close()

	scheme, err := apiobjects.Scheme()
	testutil.Must(t, err)
	informers := &informertest.FakeInformers{Scheme: scheme}
	quotas := authority.NewQuotas(func(string) authority.Quota { return authority.DefaultQuota }, nil)
	d, err := newDurableKeys(ctx, link, informers, quotas, nil, testutil.Quiet, nil)
	testutil.Must(t, err)
	defer d.close()
	informer, err := informers.FakeInformerFor(ctx, &corev1.Namespace{})
	testutil.Must(t, err)
	says := func(name, kind string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if kind != "" {
			n.Annotations = map[string]string{KeysAnnotation: kind}
		}
		return n
	}
	informer.Synced = true // the API server has now listed all objects
	vault, shop := says("vault", KeysDurable), says("shop", "")
	informer.Add(vault)
	informer.Add(shop)
	informer.Add(says("odd", "eternal"))
	poll.Until(t, 20*time.Second, "the annotation is known", func() bool { return d.durable("vault") })
	if d.durable("shop") || d.durable("odd") || d.durable("none") {
		t.Error("other namespaces are durable")
	}
	st := d.with(ctx, store.NewMemory(100))
	put := func(ns, key string, want bool) error {
		in, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		v, err := st.Put(in, store.Key{Namespace: ns, Name: key}, []byte("v"))
		if err == nil && durable.IsVersion(v) != want {
			t.Errorf("%s/%s has version %v", ns, key, v)
		}
		return err
	}
	testutil.Must(t, put("shop", "a", false))
	if err := put("vault", "a", true); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
		t.Errorf("with no leader: %v", err)
	}

	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	etcd := etcdtest.Client(t, cluster.Endpoints()...)
	keys := door.New(door.Options{Etcd: durable.Over(etcd)})
	nodes := []nodeview.Node{{Node: podroutes.Node{Name: "n1", Address: netip.MustParseAddr("192.0.2.7")}, There: true,
		Status: v1alpha1.NetcraqNodeStatus{Agent: l.Addr().String()}}}
	for range 2 { // each iteration is one term of a leader
		during, end := context.WithCancel(ctx)
		defer end()
		leaderlink.NewAnswerer(ca.Identity(t, "leader", identity.Controller).Client(), adminrights.DefaultKeys,
			http.NotFoundHandler(), keys, testutil.Quiet).Follow(during, nodes, testutil.OwnAddress)
		poll.Nil(t, 20*time.Second, "a durable key is written", func() error { return put("vault", "a", true) })
		got, err := etcd.Get(ctx, "/netcraq.io/keys/vault/a")
		if err != nil || len(got.Kvs) != 1 {
			t.Errorf("etcd has %+v, %v", got, err)
		}
		conn := d.connection
		client, err := conn.Wait(ctx, 20*time.Second)
		testutil.Must(t, err)
		all := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
		_, err = pb.NewKVClient(client.ActiveConnection()).Range(ctx, all)
		if grpcstatus.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "node n1: ") {
			t.Errorf("all keys of etcd's: %v", err)
		}
		end()
		poll.Until(t, 20*time.Second, "a term that has ended serves nothing", func() bool {
			return put("vault", "a", true) != nil
		})
		testutil.Must(t, put("shop", "a", false))
	}

	// Without a gateway, requests for durable keys fail. Volatile keys must still work.
	during, end := context.WithCancel(ctx)
	defer end()
	leaderlink.NewAnswerer(ca.Identity(t, "leader", identity.Controller).Client(), adminrights.DefaultKeys,
		http.NotFoundHandler(), nil, testutil.Quiet).Follow(during, nodes, testutil.OwnAddress)
	poll.Until(t, 20*time.Second, "the leader says that it has no gateway", func() bool {
		nc, err := link.DialDurable(ctx, "")
		if err == nil {
			nc.Close()
		}
		return err != nil && strings.Contains(err.Error(), "403")
	})
	testutil.Must(t, put("shop", "a", false))

	// A changed annotation ends watches, because existing watches do not see keys of the other
	// kind.
	ended := make(chan error, 1)
	told := make(chan wire.Version, 10)
	go func() {
		prefix := ""
		ended <- st.Watch(ctx, store.Watch{Namespace: "shop", Prefix: &prefix}, func(c []store.Change) {
			told <- c[0].Version
		})
	}()
	<-told
	informer.Update(shop, says("shop", KeysDurable))
	select {
	case err := <-ended:
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch goes on")
	}
	informer.Delete(vault)
	poll.Until(t, 20*time.Second, "the namespace has gone", func() bool { return !d.durable("vault") })
}
