package leaderlink

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/adminrights"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/nodeview"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
	"github.com/netcraq/netcraq/controlplane/adminserver"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestControllerLink makes an agent send requests over a leader's connection. It does so in two
// terms of a leader, and checks the nodes' rights.
func TestControllerLink(t *testing.T) {
	ca := testutil.NewAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.Identity(t, "n1", identity.Switch).Server())
	if err != nil {
		t.Fatal(err)
	}
	link := New()
	defer link.Close()
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, link)
	agent := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = agent.Serve(l) }() // the server ends with the test
	defer agent.Close()

	type seen struct {
		method, path, body string
		caller             adminserver.Caller
	}
	asked := make(chan seen, 100)
	controller := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		caller, _ := adminserver.CallerFrom(r.Context())
		asked <- seen{r.Method, r.URL.EscapedPath(), string(b), caller}
		_, _ = w.Write([]byte(`{}`))
	})
	leader := NewAnswerer(ca.Identity(t, "leader", identity.Controller).Client(), adminrights.DefaultKeys, controller, nil,
		slog.New(slog.DiscardHandler))
	c := admin.NewClient("127.0.0.1", admin.Through(link))
	ctx := t.Context()
	if _, err := c.Lookup(ctx, "node/blue/a"); !errors.Is(err, errNoLeader) {
		t.Errorf("with no leader: %v", err)
	}
	nodes := []nodeview.Node{{Node: podroutes.Node{Name: "n1", Address: netip.MustParseAddr("192.0.2.7")}, There: true,
		Status: v1alpha1.NetcraqNodeStatus{Agent: l.Addr().String()}}}
	for term := range 2 {
		during, end := context.WithCancel(ctx)
		leader.Follow(during, nodes, testutil.OwnAddress)
		leader.Follow(during, nodes, testutil.OwnAddress)
		poll.Nil(t, 20*time.Second, "the agent is answered", func() error {
			_, err := c.Lookup(ctx, "node/blue/a/b")
			return err
		})
		got := <-asked
		if got.method != "GET" || got.path != "/v1/keys/node%2Fblue%2Fa%2Fb" || got.caller.Node != "n1" || got.caller.ReadOnly {
			t.Errorf("term %d: asked %+v", term, got)
		}
		if term == 0 {
			end()
			poll.Until(t, 20*time.Second, "a term that has ended answers nothing", func() bool {
				_, err := c.Lookup(ctx, "node/blue/a")
				return err != nil
			})
			for len(asked) > 0 {
				<-asked
			}
			continue
		}
		defer end()
	}

	if _, err := c.NewSessions(ctx, admin.SessionsRequest{Count: 2, Owner: "x", Address: "192.0.2.99"}); err != nil {
		t.Error(err)
	}
	var s admin.SessionsRequest
	if err := json.Unmarshal([]byte((<-asked).body), &s); err != nil || s.Address != "192.0.2.7" || s.Count != 2 {
		t.Errorf("sessions for another node: %+v, %v", s, err)
	}
	if _, err := c.Watch(ctx, admin.WatchRequest{Address: "192.0.2.99", Port: 9, KeyIDs: []uint32{7}}); err != nil {
		t.Error(err)
	}
	var w admin.WatchRequest
	if err := json.Unmarshal([]byte((<-asked).body), &w); err != nil || w.Address != "192.0.2.7" || w.Port != 9 {
		t.Errorf("watches of another node: %+v, %v", w, err)
	}
	quota := &admin.KeyQuota{Prefix: "node/blue/", Keys: 10}
	if _, err := c.RequestKey(ctx,
		admin.KeyRequest{Name: "node/blue/a", Quota: quota}); err != nil {
		t.Error(err)
	}
	<-asked
	if _, err := c.Chains(ctx); err == nil { // the answer {} is not a list
		t.Error("chains")
	}
	<-asked
	if err := c.RemoveUnused(ctx, "node/blue/a", 7); err != nil {
		t.Errorf("a slot that is not used is not given back: %v", err)
	} else if got := <-asked; got.method != "DELETE" || got.path != "/v1/keys/node%2Fblue%2Fa" {
		t.Errorf("an unused key: asked %+v", got)
	}

	for what, do := range map[string]func() error{
		"read a key of etcd's":         func() error { _, err := c.Lookup(ctx, "/registry/secrets/a"); return err },
		"read by a longer way":         func() error { _, err := c.Lookup(ctx, "../node/blue"); return err },
		"list all keys":                func() error { _, err := c.Directory(ctx, "", false); return err },
		"list a namespace's fast path": func() error { _, err := c.Directory(ctx, "ns/blue/", false); return err },
		"make another key":             func() error { _, err := c.RequestKey(ctx, admin.KeyRequest{Name: "ns/blue/a"}); return err },
		"make a key of no namespace":   func() error { _, err := c.RequestKey(ctx, admin.KeyRequest{Name: "node//a", Quota: quota}); return err },
		"make a key beyond any quota":  func() error { _, err := c.RequestKey(ctx, admin.KeyRequest{Name: "node/blue/a"}); return err },
		"make a key in another's quota": func() error {
			_, err := c.RequestKey(ctx, admin.KeyRequest{Name: "node/red/a", Quota: quota})
			return err
		},
		"add a key":                             func() error { _, err := c.AddKey(ctx, "main", admin.KeySpec{Name: "node/blue/a"}); return err },
		"remove a key":                          func() error { return c.RemoveKey(ctx, "main", "node/blue/a") },
		"remove an unused key of the fast path": func() error { return c.RemoveUnused(ctx, "ns/blue/a", 7) },
		"move a key":                            func() error { _, err := c.MoveKey(ctx, "main", "node/blue/a", "other"); return err },
		"change a chain":                        func() error { _, err := c.ChangeChain(ctx, "main", admin.ChainChange{}); return err },
		"list switches":                         func() error { _, err := c.Switches(ctx); return err },
		"see counters":                          func() error { _, err := c.Counters(ctx, "n2"); return err },
		"bring in a switch":                     func() error { _, err := c.Recover(ctx, "main", "n2"); return err },
		"send a long body": func() error {
			_, err := c.RequestKey(ctx, admin.KeyRequest{Name: "node/blue/" + strings.Repeat("a", adminrights.BodyLimit),
				Quota: quota})
			return err
		},
	} {
		if err := do(); !errors.Is(err, &admin.Error{Code: admin.CodePermissionDenied}) {
			t.Errorf("a node may %s: %v", what, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("the controller was asked %+v", <-asked)
	}
}

// TestControllerLinkStrangers checks that only an agent that may lead can answer requests.
func TestControllerLinkStrangers(t *testing.T) {
	ca := testutil.NewAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.Identity(t, "n1", identity.Switch).Server())
	if err != nil {
		t.Fatal(err)
	}
	link := New()
	defer link.Close()
	agent := &http.Server{Handler: link, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = agent.Serve(l) }()
	defer agent.Close()
	_, stolen := ca.Stolen(t, "n2", identity.Switch)
	stolen.ServerName = "n1"
	for name, conf := range map[string]*tls.Config{"with a worker's certificate": stolen,
		"with none": {InsecureSkipVerify: true}} {
		a := NewAnswerer(conf, adminrights.DefaultKeys, http.NotFoundHandler(), nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := a.answer(ctx, "n1", l.Addr().String(), netip.MustParseAddr("192.0.2.7"), adminrights.NewShare())
		cancel()
		link.mu.Lock()
		got := link.now
		link.mu.Unlock()
		if err == nil || got != nil {
			t.Errorf("somebody %s answers an agent: %v", name, err)
		}
	}
}

// TestControllerLinkLongAnswers checks that an agent that sends an endless answer can make the
// leader read only the permitted number of bytes.
func TestControllerLinkLongAnswers(t *testing.T) {
	ca := testutil.NewAuthority(t)
	for what, c := range map[string]struct{ begin, again string }{
		"a status line without an end":  {"HTTP/1.1 101 ", strings.Repeat("x", 64<<10)},
		"a header line without an end":  {"HTTP/1.1 101 Switching Protocols\r\nX: ", strings.Repeat("x", 64<<10)},
		"header lines without an end":   {"HTTP/1.1 101 Switching Protocols\r\n", strings.Repeat("X: y\r\n", 10000)},
		"a body without an end":         {"HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 64<<10)},
		"chunks without an end":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"},
		"a chunk's line without an end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("x", 64<<10)},
		"trailers without an end":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", strings.Repeat("X: y\r\n", 10000)},
	} {
		t.Run(what, func(t *testing.T) {
			l, err := tls.Listen("tcp", "127.0.0.1:0", ca.Identity(t, "n1", identity.Switch).Server())
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			written := make(chan int, 1)
			go func() {
				n := 0
				defer func() { written <- n }()
				nc, err := l.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				for text := c.begin; err == nil; text = c.again {
					var m int
					m, err = nc.Write([]byte(text))
					n += m
				}
			}()
			a := NewAnswerer(ca.Identity(t, "leader", identity.Controller).Client(), adminrights.DefaultKeys,
				http.NotFoundHandler(), nil,
				slog.New(slog.DiscardHandler))
			host := netip.MustParseAddr("192.0.2.7")
			if err := a.answer(t.Context(), "n1", l.Addr().String(), host, adminrights.NewShare()); err == nil {
				t.Error("the leader has made a link of it")
			}
			if n := <-written; n > 32<<20 { // the count includes the kernel's buffers
				t.Errorf("the leader has taken %d bytes", n)
			}
		})
	}
}
