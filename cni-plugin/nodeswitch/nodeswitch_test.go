package nodeswitch_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/cni-plugin/nodeswitch"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testcerts"
)

// TestSecure: with a certificate of the authority everything is served at the second address, without one nothing; and the switch is one, whichever address is used.
func TestSecure(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	node, _ := authority.Issue("node1", "", "node1")
	node.ClientCertAuth = true
	server, err := node.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	server.ClientAuth = tls.NoClientCert // not for the configuration to choose
	s, err := nodeswitch.Start(nodeswitch.Options{Engine: "interp", DeviceID: 7, P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0", TLS: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	compiled := filepath.Join("..", "..", "p4src", "compiled", "netcraq-128")
	pl, err := p4rt.LoadPipeline(compiled+".p4info.txtpb", compiled+".json")
	if err != nil {
		t.Fatal(err)
	}
	client := func(certs transport.TLSInfo) *p4rt.Client {
		t.Helper()
		o := p4rt.Options{Name: "node1", Target: s.SecureAddress().String(), DeviceID: 7, ElectionID: p4rt.ElectionID{Low: 1}, Info: pl.Info,
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
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within 20 s: %s", what)
			}
		}
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
}

// TestRefused: nothing is served to everybody by mistake.
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
		"the server has no certificate":   {P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0", TLS: without(func(c *tls.Config) { c.Certificates, c.GetCertificate = nil, nil })},
		"GetConfigForClient could let in": {P4Runtime: "127.0.0.1:0", Secure: "127.0.0.1:0", TLS: without(func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
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
