// Package kubetest starts a real Kubernetes API server, and its etcd, for tests. There are no
// kubelets and no controllers, so tests write the objects that those would write.
package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// EnvBinaries names the folder with kube-apiserver, etcd and kubectl. The default is the folder of
// `make e2e-k8s`.
const EnvBinaries = "NETCRAQ_KUBE_BIN"

// Options configure the servers.
type Options struct {
	// Command begins the servers' command lines, for example "ip", "netns", "exec", NAME.
	Command []string
	// Address is the address at which the servers listen. If it is "", they listen at 127.0.0.1.
	Address string
	// Dial connects to Address from the test. If it is nil, the test connects directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Etcd is the HOST:PORT of an existing etcd, in plain text. If it is "", Start starts an etcd.
	Etcd string
	// Args are additional arguments of the API server.
	Args []string
}

// Server is a running API server.
type Server struct {
	Config *rest.Config // a configuration with all rights
	Etcd   string       // HOST:PORT of the server's etcd, in plain text
	Bin    string       // the folder with the binaries

	dir string
	api *os.Process
}

// Stop suspends the API server, and Continue resumes it.
func (s *Server) Stop() error     { return s.api.Signal(syscall.SIGSTOP) }
func (s *Server) Continue() error { return s.api.Signal(syscall.SIGCONT) }

// Start starts an empty API server, which ends with the test. It skips the test if the binaries are
// missing.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{Bin: Binaries(t), dir: t.TempDir()}
	if o.Address == "" {
		o.Address = "127.0.0.1"
	}
	// In a network namespace of their own, the servers use their usual ports.
	at := func(usual string) string {
		if len(o.Command) == 0 {
			return testport.Free(t)
		}
		return net.JoinHostPort(o.Address, usual)
	}
	api := at("6443")
	if s.Etcd = o.Etcd; s.Etcd == "" {
		s.Etcd = at("2379")
		client, between := "http://"+s.Etcd, "http://"+at("2380")
		s.launch(t, o, "etcd", "--data-dir", filepath.Join(s.dir, "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", between,
			"--initial-advertise-peer-urls", between, "--initial-cluster", "default="+between, "--unsafe-no-fsync")
	}
	const token = "netcraq-test-admin"
	tokens, key := filepath.Join(s.dir, "tokens.csv"), filepath.Join(s.dir, "sa.key")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	writeKey(t, key)
	certs := filepath.Join(s.dir, "certs")
	var ended <-chan struct{}
	_, port, err := net.SplitHostPort(api)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--etcd-servers", "http://" + s.Etcd, "--bind-address", o.Address, "--secure-port", port, "--cert-dir", certs, "--advertise-address", o.Address,
		"--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-account-issuer", "https://test", "--service-account-key-file", key,
		"--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount"}
	s.api, ended = s.launch(t, o, "kube-apiserver", append(args, o.Args...)...)
	s.Config = &rest.Config{Host: "https://" + api, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Dial: o.Dial, QPS: -1}
	c := s.Client(t)
	poll.Nil(t, 90*time.Second, "the API server is ready", func() error {
		select {
		case <-ended:
			t.Fatal("the API server has ended")
		default:
		}
		return c.RESTClient().Get().AbsPath("/readyz").Do(context.Background()).Error()
	})
	return s
}

// Client returns a client for Kubernetes' built-in kinds.
func (s *Server) Client(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// As returns a configuration with another token.
func (s *Server) As(token string) *rest.Config {
	c := rest.CopyConfig(s.Config)
	c.BearerToken = token
	return c
}

// Token returns a token of a service account that is bound to a pod on a node, like the tokens that
// a kubelet gives to containers. Token creates the pod, but the pod does not run.
func (s *Server) Token(t testing.TB, namespace, account, node string) string {
	t.Helper()
	ctx, k := context.Background(), s.Client(t)
	pod, err := k.CoreV1().Pods(namespace).Create(ctx,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-", Namespace: namespace},
			Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node,
				SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				// This lets namespaces with Pod Security accept the pod.
				Containers: []corev1.Container{{Name: "main", Image: "none", SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := k.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account,
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
			BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
				UID: pod.UID}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// Kubeconfig writes the configuration c to a file, for a program in the servers' network.
func (s *Server) Kubeconfig(t testing.TB, c *rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, InsecureSkipTLSVerify: true}
	k.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	k.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	k.CurrentContext = "test"
	f, err := os.CreateTemp(s.dir, "kubeconfig-*")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := clientcmd.WriteToFile(*k, f.Name()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// Kubectl runs kubectl in the servers' network, with all rights.
func (s *Server) Kubectl(t testing.TB, o Options, args ...string) string {
	t.Helper()
	line := slices.Concat(o.Command, []string{filepath.Join(s.Bin, "kubectl"), "--kubeconfig", s.Kubeconfig(t, s.Config)}, args)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// launch starts a server. The server ends with the test or with the test's process.
func (s *Server) launch(t testing.TB, o Options, name string, args ...string) (*os.Process, <-chan struct{}) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line := slices.Concat(o.Command, []string{filepath.Join(s.Bin, name)}, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel sends the death signal when the thread that started the process ends
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // if the server fails, its log has the reason
		close(done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the server may have ended
		<-done
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("%s's log ends:\n%s", name, b[max(0, len(b)-2000):])
		}
	})
	return cmd.Process, done
}

// Binaries returns the folder with the servers' binaries. It skips the test if the binaries are
// missing.
func Binaries(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(EnvBinaries)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("skipped: %s is not set", EnvBinaries)
		}
		found, _ := filepath.Glob(filepath.Join(cache, "netcraq", "kubernetes-*", "bin"))
		if len(found) == 0 {
			t.Skipf("skipped: there is no kube-apiserver: make e2e-k8s builds one, or %s names a folder with it", EnvBinaries)
		}
		dir = found[len(found)-1]
	}
	for _, name := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	return dir
}

func writeKey(t testing.TB, path string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
