package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kubeBinaries is the environment variable with the folder of Kubernetes' commands (`make kubernetes` builds them); without it they are looked for on PATH.
const kubeBinaries = "NETCRAQ_KUBE_BIN"

// apiserver is a kube-apiserver without a watch cache, so that every read goes to its etcd endpoint.
type apiserver struct {
	url    string
	client *http.Client
}

// apiserverPath is where its binary is.
func apiserverPath(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(kubeBinaries); dir != "" {
		return filepath.Join(dir, "kube-apiserver")
	}
	path, err := exec.LookPath("kube-apiserver")
	if err != nil {
		t.Skipf("skipped: there is no kube-apiserver, neither on PATH nor in the folder that %s names", kubeBinaries)
	}
	return path
}

func startAPIServer(t *testing.T, path, etcd string) *apiserver {
	t.Helper()
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	signing := file("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	l.Close()
	var log bytes.Buffer
	cmd := exec.Command(path, "--etcd-servers="+etcd, "--watch-cache=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", address.Port), "--cert-dir="+dir,
		"--token-auth-file="+file("tokens.csv", []byte("secret,admin,admin,system:masters\n")), "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://test", "--service-account-key-file="+signing, "--service-account-signing-key-file="+signing,
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("kube-apiserver's log ends:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	a := &apiserver{"https://" + address.String(), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 20 * time.Second}}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if status, _, err := a.do(t.Context(), http.MethodGet, "/readyz", nil); err == nil && status == http.StatusOK {
			return a
		}
		if time.Now().After(end) {
			t.Fatal("kube-apiserver is not ready within two minutes")
		}
	}
}

func (a *apiserver) do(ctx context.Context, method, path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	reply, err := a.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer reply.Body.Close()
	b, err := io.ReadAll(reply.Body)
	return reply.StatusCode, b, err
}

// configMap is what the test needs of one.
type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   objectMeta        `json:"metadata"`
	Data       map[string]string `json:"data"`
}

type objectMeta struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

func (c configMap) revision() int64 {
	n, _ := strconv.ParseInt(c.Metadata.ResourceVersion, 10, 64)
	return n
}

// TestMinimumResourceVersion has two API servers at two gateways, between which keys come into the network and leave it. What is written by one is read by the other, with the revision of the write as the least
// that will do, and with none (which asks for the newest); and so is what nobody has written since. An answer may be an error to be tried again, where the gateway has not heard of the revision yet; it is never old.
func TestMinimumResourceVersion(t *testing.T) {
	binary := apiserverPath(t)
	w := newWorld(t)
	servers := []*apiserver{startAPIServer(t, binary, w.gateway()), startAPIServer(t, binary, w.gateway())}
	const path, still = "/api/v1/namespaces/default/configmaps", "still" // which nobody writes: its own revision says nothing of the newest
	if status, b, err := servers[0].do(t.Context(), http.MethodPost, path, configMap{APIVersion: "v1", Kind: "ConfigMap", Metadata: objectMeta{Name: still}}); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %v %s", status, err, b)
	}
	var mu sync.Mutex
	answers, tooLarge := 0, 0
	var wg sync.WaitGroup
	for i, writes := range servers {
		reads := servers[1-i]
		wg.Go(func() {
			var c configMap
			c.APIVersion, c.Kind, c.Metadata.Name = "v1", "ConfigMap", fmt.Sprint("counter", i)
			c.Data = map[string]string{"n": "0"}
			status, b, err := writes.do(t.Context(), http.MethodPost, path, c)
			if err != nil || status != http.StatusCreated {
				t.Errorf("%d %v %s", status, err, b)
				return
			}
			for n := 1; n <= 150 && !t.Failed(); n++ {
				c.Metadata.ResourceVersion, c.Data["n"] = "", strconv.Itoa(n)
				status, b, err := writes.do(t.Context(), http.MethodPut, path+"/"+c.Metadata.Name, c)
				var written configMap
				if err != nil || status != http.StatusOK || json.Unmarshal(b, &written) != nil {
					t.Errorf("%d %v %s", status, err, b)
					return
				}
				least := "?resourceVersion=" + written.Metadata.ResourceVersion
				for _, query := range []string{still + least, c.Metadata.Name + least, c.Metadata.Name, c.Metadata.Name + "?resourceVersion=0"} {
					for {
						status, b, err := reads.do(t.Context(), http.MethodGet, path+"/"+query, nil)
						if err == nil && status == http.StatusGatewayTimeout && bytes.Contains(b, []byte("Too large resource version")) {
							mu.Lock()
							tooLarge++
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
							continue
						}
						var got configMap
						if err != nil || status != http.StatusOK || json.Unmarshal(b, &got) != nil {
							t.Errorf("get %s: %d %v %s", query, status, err, b)
							return
						}
						if got.Metadata.Name != still && (got.revision() < written.revision() || got.Data["n"] != c.Data["n"]) {
							t.Errorf("get %s: %s of revision %d, after %d of revision %d", query, got.Data["n"], got.revision(), n, written.revision())
						}
						mu.Lock()
						answers++
						mu.Unlock()
						break
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
