package nodeswitch_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// TestSecure checks that at the second address, a client with a certificate of the authority may do
// everything, and a client without one may do nothing. Both addresses lead to the same switch.
func TestSecure(t *testing.T) {
	t.Run("one configuration", func(t *testing.T) { secure(t, func(c *tls.Config) *tls.Config { return c }) })
	t.Run("one for each client", func(t *testing.T) {
		secure(t, func(c *tls.Config) *tls.Config {
			out := c.Clone()
			out.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c, nil }
			return out
		})
	})
	t.Run("one for each client, if it likes", func(t *testing.T) {
		secure(t, func(c *tls.Config) *tls.Config {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
			return c
		})
	})
}

func secure(t *testing.T, change func(*tls.Config) *tls.Config) {
	authority := testcerts.NewAuthority(t)
	node, _ := authority.Issue("node1", "", "node1")
	node.ClientCertAuth = true
	server, err := node.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	server.ClientAuth = tls.NoClientCert // the server must still require client certificates
	s, err := nodeswitch.Start(nodeswitch.Options{Engine: "interp", DeviceID: 7, P4Runtime: "127.0.0.1:0",
		Secure: "127.0.0.1:0", TLS: change(server)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	compiled := filepath.Join("..", "..", "p4src", "compiled", "netcraq-128")
	pl, err := p4rt.LoadPipeline(compiled+".p4info.txtpb", compiled+".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	var election uint64
	client := func(certs transport.TLSInfo) *p4rt.Client {
		t.Helper()
		election++
		o := p4rt.Options{Name: "node1", Target: s.SecureAddress().String(), DeviceID: 7,
			ElectionID: p4rt.ElectionID{Low: election}, Info: pl.Info,
			MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond}
		if certs.TrustedCAFile != "" {
			if o.TLS, err = certs.ClientConfig(); err != nil {
				t.Fatal(err)
			}
			o.TLS.ServerName = "node1"
		}
		c, err := p4rt.New(o, p4rt.Handler{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Run(ctx); close(done) }()
		t.Cleanup(func() { cancel(); <-done })
		return c
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		poll.Until(t, 20*time.Second, what, ok)
	}
	stranger, _ := testcerts.NewAuthority(t).Issue("stranger", "", "node1")
	stranger.TrustedCAFile = authority.File
	refused := map[string]*p4rt.Client{
		"plain text":               client(transport.TLSInfo{}),
		"no certificate":           client(transport.TLSInfo{TrustedCAFile: authority.File}),
		"a stranger's certificate": client(stranger),
	}
	for what, c := range refused {
		until(what+": an error", func() bool { return c.State().Err != nil })
	}
	other, _ := authority.Issue("node2", "", "node2")
	c := client(other)
	until("another node with a certificate is primary", func() bool { return c.State().Phase == p4rt.Primary })
	if got, err := c.EnsurePipeline(t.Context(), pl); err != nil || got != p4rt.Committed {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.ReadTable(t.Context(), "ipv4_lpm"); err != nil {
		t.Error(err)
	}
	for what, c := range refused {
		if st := c.State(); st.Stream != 0 {
			t.Errorf("%s: %+v", what, st)
		}
	}
	half(t, s.SecureAddress().String())
	if st := c.State(); st.Phase != p4rt.Primary {
		t.Errorf("the controller that was there before the flood: %+v", st)
	}
	third, _ := authority.Issue("node3", "", "node3")
	later := client(third)
	until("a controller that comes to a flooded switch is primary", func() bool { return later.State().Phase == p4rt.Primary })
}

// half opens many connections and sends half a TLS record on each. Only a few of them may stay
// open.
func half(t *testing.T, to string) {
	t.Helper()
	var conns []net.Conn
	for range 500 {
		nc, err := net.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_, _ = nc.Write([]byte{22, 3, 1, 2, 0, 1})
		conns = append(conns, nc)
	}
	open := func() (n int) {
		for _, nc := range conns {
			_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := nc.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				n++
			}
		}
		return n
	}
	// 5 s are less than the server's timeout for handshakes, so another rule must close these
	// connections.
	poll.Until(t, 5*time.Second, "all connections with half a greeting but 64 to be closed",
		func() bool { return open() <= 64 })
}

// TestRefused checks that Start refuses configurations that would serve unauthenticated clients.
func TestRefused(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	certs, _ := authority.Issue("node1", "", "node1")
	certs.ClientCertAuth = true
	good, err := certs.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	without := func(change func(*tls.Config)) *tls.Config {
		conf := good.Clone()
		change(conf)
		return conf
	}
	alone, err := nodeswitch.Start(nodeswitch.Options{Engine: "interp", Secure: "127.0.0.1:0", TLS: good})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.Close(); err != nil {
		t.Error(err)
	}
	for want, o := range map[string]nodeswitch.Options{
		"it has to be a loopback address": {P4Runtime: "0.0.0.0:0"},
		"there have to be ClientCAs":      {P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0"},
		"ClientCAs that know":             {P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0", TLS: without(func(c *tls.Config) { c.ClientCAs = nil })},
		"the server has no certificate": {P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0", TLS: without(func(c *tls.Config) {
			c.Certificates, c.GetCertificate = nil, nil
		})},
		"serving P4Runtime: listen tcp: add": {P4Runtime: "127.0.0.1:0", Secure: "nowhere", TLS: good},
	} {
		o.Engine = "interp"
		s, err := nodeswitch.Start(o)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", o, err, want)
		}
	}
}

// TestStolen checks that a node's switch serves a controller of this cluster, but not a client with
// certificates from another node's agent.
func TestStolen(t *testing.T) {
	var authorities identity.State
	if _, err := authorities.Step(time.Now(), false); err != nil {
		t.Fatal(err)
	}
	authority, err := identity.Load(authorities.Signing)
	if err != nil {
		t.Fatal(err)
	}
	agent := func(node string, roles ...identity.Role) (*identity.Identity, *tls.Certificate) {
		i := identity.New(node)
		if err := i.Trust(authorities.Bundle()); err != nil {
			t.Fatal(err)
		}
		var last *tls.Certificate
		for _, role := range roles {
			key, request, err := identity.NewRequest(role, node)
			if err != nil {
				t.Fatal(err)
			}
			checked, err := identity.Check(role, node, request)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := authority.Sign(role, node, checked, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if err := i.Install(role, key, cert); err != nil {
				t.Fatal(err)
			}
			block, _ := pem.Decode(cert)
			last = &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
		}
		return i, last
	}
	victim, _ := agent("node1", identity.Switch)
	leader, _ := agent("node2", identity.Switch, identity.Controller)
	_, stolen := agent("node3", identity.Switch)
	s, err := nodeswitch.Start(nodeswitch.Options{Engine: "interp", DeviceID: 1, Secure: "127.0.0.1:0", TLS: victim.Server()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(conf *tls.Config) error {
		conf.ServerName = "node1"
		c, err := grpc.NewClient(s.SecureAddress().String(), grpc.WithTransportCredentials(credentials.NewTLS(conf)))
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = p4v1.NewP4RuntimeClient(c).Capabilities(ctx, &p4v1.CapabilitiesRequest{})
		return err
	}
	if err := ask(leader.Client()); err != nil {
		t.Errorf("the leader: %v", err)
	}
	err = ask(&tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (
		*tls.Certificate, error) {
		return stolen, nil
	}})
	if status.Code(err) != codes.Unavailable { // the reason for a refusal may be lost with the connection
		t.Errorf("with what was stolen on another node: %v", err)
	}
	if err := ask(leader.Client()); err != nil {
		t.Errorf("the leader, once more: %v", err)
	}
}
