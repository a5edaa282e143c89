package podapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/kube/apiobjects"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// doorVariable is an environment variable that makes this test binary the process of a pod. It
// connects to the socket after its first input line, and then forwards lines.
const doorVariable = "NETCRAQ_TEST_DOOR"

func TestMain(m *testing.M) {
	path := os.Getenv(doorVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	in := bufio.NewReader(os.Stdin)
	_, err := in.ReadString('\n')
	if err == nil {
		var nc net.Conn
		if nc, err = net.Dial("unix", path); err == nil {
			go func() {
				_, _ = io.Copy(nc, in)
				nc.Close()
			}()
			_, err = io.Copy(os.Stdout, nc)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(0)
}

// podProcess is a running process of a pod.
type podProcess struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

func (p *podProcess) ask(request, part string) {
	p.t.Helper()
	answer := make(chan string, 1)
	if _, err := io.WriteString(p.in, request+"\n"); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		text, _ := p.out.ReadString('\n')
		answer <- text
	}()
	select {
	case got := <-answer:
		if !strings.Contains(got, part) {
			p.t.Errorf("%s: %s, want %s", request, got, part)
		}
	case <-time.After(20 * time.Second):
		p.t.Fatalf("%s: there is no answer", request)
	}
}

// startPodProcess makes a control group, and starts a process in it.
func startPodProcess(t *testing.T, socket, group string) *podProcess {
	t.Helper()
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), doorVariable+"="+socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	return &podProcess{t, in, bufio.NewReader(out)}
}

// controlGroups makes a folder for control groups. It returns the folder's path, and the name by
// which the kernel knows the folder.
func controlGroups(t *testing.T) (folder, name string) {
	t.Helper()
	name = fmt.Sprintf("/netcraq-nodeapi-test-%d", os.Getpid())
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
			continue
		}
		if folder = root + name; os.Mkdir(folder, 0o755) == nil {
			t.Cleanup(func() { // remove the innermost folders first
				var all []string
				_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, _ error) error {
					if d != nil && d.IsDir() {
						all = append([]string{path}, all...)
					}
					return nil
				})
				for _, dir := range all {
					_ = os.Remove(dir)
				}
			})
			return folder, name
		}
	}
	t.Skip("this user may make no control groups: no process is in a pod")
	return "", ""
}

// accessReviews is a fake API server that answers SubjectAccessReviews.
type accessReviews struct {
	client.Client
	allowed func(authorization.SubjectAccessReviewSpec) bool
}

func (a *accessReviews) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	r := o.(*authorization.SubjectAccessReview)
	r.Status.Allowed = a.allowed(r.Spec)
	return nil
}

// TestNodeAPI tests the agent's node API. Processes are in real control groups of pods, and a fake
// API server has the pods.
func TestNodeAPI(t *testing.T) {
	folder, name := controlGroups(t)
	const blueUID, greenUID = "0b1d7c3e-5a2f-4c8e-9d10-3f6a7b8c9d0e", "a1b2c3d4-e5f6-4789-8abc-def012345678"
	scheme, err := apiobjects.Scheme()
	testutil.Must(t, err)
	informers := &informertest.FakeInformers{Scheme: scheme}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	socket := filepath.Join(t.TempDir(), "run", "node.sock")
	api := &accessReviews{allowed: func(s authorization.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "system:serviceaccount:green:reader" && a.Namespace == "blue" && a.Verb == "get" &&
			a.Group == "netcraq.io" && a.Resource == "keys"
	}}
	o := Options{Socket: socket, CgroupRoot: name}
	n, err := Serve(ctx, o, "n1", api, informers, testutil.Quiet, prometheus.NewRegistry(), cancel)
	testutil.Must(t, err)
	defer n.Close()
	for path, want := range map[string]os.FileMode{socket: 0o666, filepath.Dir(socket): 0o755} {
		if i, err := os.Stat(path); err != nil || i.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %o", path, i.Mode(), err, want)
		}
	}
	informer, err := informers.FakeInformerFor(ctx, &corev1.Pod{})
	testutil.Must(t, err)
	pod := func(namespace, name, uid, account, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
			Spec: corev1.PodSpec{NodeName: node, ServiceAccountName: account}}
	}
	blue, green := pod("blue", "a", blueUID, "default", "n1"), pod("green", "b", greenUID, "reader", "n1")

	// This process connects before the API server has reported its pod, and waits for the report.
	a := startPodProcess(t, socket, folder+"/kubepods/burstable/pod"+blueUID+"/1")
	informer.Add(blue)
	informer.Add(green)
	a.ask(`{"id":1,"func":"get","data":{"key":"k"}}`, `"code":"unavailable"`)
	memory := store.NewMemory(100)
	n.store.Set(memory, func() error { return nil })
	a.ask(`{"id":1,"func":"hello"}`, `"namespace":"blue"`)
	a.ask(`{"id":2,"func":"put","data":{"key":"k","value":"v"}}`, `"version":"1.1"`)
	a.ask(`{"id":3,"func":"get","data":{"key":"k"}}`, `"value":"v"`)
	a.ask(`{"id":4,"func":"lock","data":{"name":"l","waitMs":0}}`, `"held":true`)
	a.ask(`{"id":5,"func":"get","data":{"namespace":"green","key":"k"}}`, `(rule roles)`)

	// The service account of this pod has a role. The pod has made its own control groups.
	b := startPodProcess(t, socket, folder+"/kubepods/besteffort/pod"+greenUID+"/1/kubepods/burstable/pod"+blueUID+"/1")
	b.ask(`{"id":1,"func":"hello"}`, `"namespace":"green"`)
	b.ask(`{"id":2,"func":"get","data":{"key":"k"}}`, `"found":false`)
	b.ask(`{"id":3,"func":"get","data":{"namespace":"blue","key":"k"}}`, `"value":"v"`)
	b.ask(`{"id":4,"func":"put","data":{"namespace":"blue","key":"k","value":"w"}}`, `(rule roles)`)
	b.ask(`{"id":5,"func":"unlock","data":{"namespace":"blue","name":"l","token":"1"}}`, `(rule roles)`)
	b.ask(`{"id":6,"func":"hello","data":{"namespace":"blue"}}`, `"namespace":"blue"`)
	b.ask(`{"id":7,"func":"put","data":{"key":"k","value":"w"}}`, `(rule roles)`)

	// The first process is in no pod. The next one is in a pod of another node. The last one's pod
	// has ended.
	startPodProcess(t, socket, folder+"/system/kubepods/pod"+blueUID).ask("", `(rule host-process)`)
	const far = "11111111-2222-3333-4444-555555555555"
	informer.Add(pod("blue", "far", far, "default", "n2"))
	startPodProcess(t, socket, folder+"/kubepods/pod"+far+"/1").ask("", `(rule pod-gone)`)
	ended := blue.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	informer.Update(blue, ended)
	poll.Until(t, 20*time.Second, "the pod has ended", func() bool { _, ok := n.pods.Pod(blueUID); return !ok })
	a.ask(`{"id":6,"func":"get","data":{"key":"k"}}`, `(rule pod-gone)`)
}
