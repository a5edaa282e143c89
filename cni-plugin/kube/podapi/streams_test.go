package podapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/client/v3"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// mounted writes files in the way in which kubelet mounts ConfigMaps and Secrets. Each file is a
// symbolic link to a file in a folder that is replaced as a whole.
func mounted(t *testing.T, mode os.FileMode, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	testutil.Must(t, os.Mkdir(filepath.Join(dir, "..2026"), 0o755))
	testutil.Must(t, os.Symlink("..2026", filepath.Join(dir, "..data")))
	for name, text := range files {
		path := filepath.Join(dir, "..2026", name)
		testutil.Must(t, os.WriteFile(path, []byte(text), mode))
		testutil.Must(t, os.Chmod(path, mode))
		testutil.Must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	return dir
}

// TestStreamsOfEtcd checks that pods get only streams of etcd keys that the operator's file permits
// for their namespace. The credentials for etcd are mounted from a Secret.
func TestStreamsOfEtcd(t *testing.T) {
	folder, name := controlGroups(t)
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	etcd := etcdtest.Client(t, cluster.Endpoints()...)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	soon, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for _, do := range []func() error{
		func() error { _, err := etcd.Put(soon, "/prices/a", "17"); return err },
		func() error { _, err := etcd.Put(soon, "/secrets/a", "hidden"); return err },
		func() error { _, err := etcd.UserAdd(soon, "root", "r"); return err },
		func() error { _, err := etcd.UserGrantRole(soon, "root", "root"); return err },
		func() error { _, err := etcd.RoleAdd(soon, "prices"); return err },
		func() error {
			_, err := etcd.RoleGrantPermission(soon, "prices", "/prices/", clientv3.GetPrefixRangeEnd("/prices/"),
				clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := etcd.UserAdd(soon, "streams", "opensesame"); return err },
		func() error { _, err := etcd.UserGrantRole(soon, "streams", "prices"); return err },
		func() error { _, err := etcd.AuthEnable(soon); return err },
	} {
		testutil.Must(t, do())
	}
	secret := mounted(t, 0o400, map[string]string{"password": "opensesame\n"})
	config := mounted(t, 0o644, map[string]string{"etcd.yaml": fmt.Sprintf(`
endpoints: [%q]
user: streams
passwordFile: %s
prefixes:
  blue: [/prices/]
  green: [/secrets/]
`, cluster.Endpoints()[0], filepath.Join(secret, "password"))})

	const blueUID, greenUID = "0b1d7c3e-5a2f-4c8e-9d10-3f6a7b8c9d0e", "a1b2c3d4-e5f6-4789-8abc-def012345678"
	scheme, err := apiobjects.Scheme()
	testutil.Must(t, err)
	informers := &informertest.FakeInformers{Scheme: scheme}
	api := &accessReviews{allowed: func(authorization.SubjectAccessReviewSpec) bool { return false }}
	o := Options{Socket: filepath.Join(t.TempDir(), "run", "node.sock"),
		CgroupRoot: name, StreamsMiB: 64, StreamsEtcd: filepath.Join(config, "etcd.yaml")}
	n, err := Serve(ctx, o, "n1", api, informers, testutil.Quiet, prometheus.NewRegistry(), cancel)
	testutil.Must(t, err)
	defer n.Close()
	informer, err := informers.FakeInformerFor(ctx, &corev1.Pod{})
	testutil.Must(t, err)
	in := func(namespace, uid string) *podProcess {
		informer.Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace, UID: types.UID(uid)},
			Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "default"}})
		return startPodProcess(t, o.Socket, folder+"/kubepods/burstable/pod"+uid+"/1")
	}
	open := func(id int, prefix string) string {
		return fmt.Sprintf(`{"id":%d,"func":"openStream","data":{"stream":"s%d","config":{"source":{"etcd":{"prefix":%q}}}}}`,
			id, id, prefix)
	}
	blue, green := in("blue", blueUID), in("green", greenUID)
	blue.ask(open(1, "/prices/"), `"made":true`)
	// A read that is two records ahead is refused. So the test waits for the first record before it
	// reads the second one.
	blue.ask(`{"id":2,"func":"read","data":{"stream":"s1","from":"earliest","waitMs":15000}}`, `"offset":0`)
	blue.ask(`{"id":2,"func":"read","data":{"stream":"s1","offset":1,"waitMs":15000}}`, `\"key\":\"/prices/a\"`)
	blue.ask(open(3, "/secrets/"), `"code":"permission_denied"`)
	blue.ask(open(4, "/price"), `"code":"permission_denied"`)
	blue.ask(open(5, ""), `"code":"permission_denied"`)
	green.ask(open(1, "/prices/"), `"code":"permission_denied"`)
	green.ask(`{"id":2,"func":"read","data":{"namespace":"blue","stream":"s1","offset":1}}`, `(rule roles)`)
	// Keys that etcd itself does not permit must never appear, even if the operator permits them.
	green.ask(open(3, "/secrets/"), `"made":true`)
	green.ask(`{"id":4,"func":"read","data":{"stream":"s3","from":"earliest","waitMs":2000}}`, `"records":[]`)
}

// TestStreamsOfEtcdFile checks that an agent does not start with a wrong file, and that the error
// names the file.
func TestStreamsOfEtcdFile(t *testing.T) {
	scheme, err := apiobjects.Scheme()
	testutil.Must(t, err)
	for text, mode := range map[string]os.FileMode{
		"prefixes: {blue: [/prices/]}": 0o644,
		"endpoints: [http://x]":        0o666,
	} {
		config := filepath.Join(mounted(t, mode, map[string]string{"etcd.yaml": text}), "etcd.yaml")
		o := Options{Socket: filepath.Join(t.TempDir(), "run", "node.sock"), StreamsMiB: 64, StreamsEtcd: config}
		ctx, cancel := context.WithCancelCause(t.Context())
		informers := &informertest.FakeInformers{Scheme: scheme}
		n, err := Serve(ctx, o, "n1", nil, informers, testutil.Quiet, prometheus.NewRegistry(), cancel)
		if err == nil {
			n.Close()
			t.Errorf("it begins with %q, which has the mode %o", text, mode)
		} else if !strings.Contains(err.Error(), config) {
			t.Error(err)
		}
		cancel(nil)
	}
}
