package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// TestWaitForAPIServer starts an agent whose API server does not answer yet. The agent must log
// that it waits. For kubelet it must be alive but not ready. It must continue when the API server
// answers.
func TestWaitForAPIServer(t *testing.T) {
	port := func() int { // port returns a free port
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	server := fmt.Sprintf("127.0.0.1:%d", port())
	var said syncbuffer.Buffer
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o := Options{Config: &rest.Config{Host: "http://" + server}, Node: "node1", HealthPort: port(),
		Log: slog.New(slog.NewTextHandler(&said, nil))}
	go func() { ended <- Run(ctx, o) }()
	logged := func(what string) {
		t.Helper()
		poll.Until(t, 10*time.Second, "it says "+what, func() bool { return strings.Contains(said.String(), what) }, said.String)
	}
	logged("waiting for the API server")
	logged("connection refused")
	for path, want := range map[string]int{"healthz": http.StatusOK, "readyz": http.StatusServiceUnavailable} {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", o.HealthPort, path))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("/%s says %s, not %d", path, r.Status, want)
		}
	}
	l, err := net.Listen("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux() // this API server has no nodes
	for path, answer := range map[string]any{"/api": metav1.APIVersions{Versions: []string{"v1"}}, "/apis": metav1.APIGroupList{},
		"/api/v1": metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Namespaced: true, Kind: "Pod"}, {Name: "nodes", Kind: "Node"}}}} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	api := &http.Server{Handler: mux}
	defer api.Close()
	go func() { _ = api.Serve(l) }()
	logged("waiting for this node")
	stop()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it does not end when it is told to")
	}
}
