package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cluster has an authority, and the agents that have certificates of this authority.
type cluster struct {
	t     *testing.T
	state State
	now   time.Time
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, now: time.Now()}
	c.step(false)
	return c
}

func (c *cluster) step(replace bool) string {
	c.t.Helper()
	what, err := c.state.Step(c.now, replace)
	must(c.t, err)
	return what
}

// agent returns an agent's identity with certificates for some roles.
func (c *cluster) agent(node string, roles ...Role) *Identity {
	c.t.Helper()
	i := New(node)
	i.now = func() time.Time { return c.now }
	c.refresh(i)
	for _, r := range roles {
		c.issue(i, r)
	}
	return i
}

// refresh makes an agent read the current bundle of authorities.
func (c *cluster) refresh(i *Identity) {
	c.t.Helper()
	must(c.t, i.Trust(c.state.Bundle()))
}

func (c *cluster) issue(i *Identity, r Role) {
	c.t.Helper()
	key, request, err := NewRequest(r, i.node)
	must(c.t, err)
	checked, err := Check(r, i.node, request)
	must(c.t, err)
	a, err := Load(c.state.Signing)
	must(c.t, err)
	cert, err := a.Sign(r, i.node, checked, c.now)
	must(c.t, err)
	must(c.t, i.Install(r, key, cert))
}

// talk makes a client send a word to a server. The client must read the word back.
func talk(server, client *tls.Config, name string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		c := tls.Server(raw, server)
		if c.Handshake() != nil {
			_, _ = io.Copy(io.Discard, raw) // otherwise the client might not read the server's reason
			return
		}
		_, _ = io.Copy(c, c)
	}()
	client = client.Clone()
	client.ServerName = name
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.Addr().String(), client)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 4)) // with TLS 1.3, the client learns of a refusal only when it reads
	return err
}

// stolen returns the configuration of a client or server that uses a certificate from an agent's
// memory and trusts every peer.
func stolen(c *tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*c},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c, nil
		}}
}

func wants(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err == nil {
		return
	}
	for part := range strings.SplitSeq(want, "|") {
		if err != nil && want != "" && strings.Contains(err.Error(), part) {
			return
		}
	}
	t.Errorf("%s: %v, want %q", what, err, want)
}

// TestWho checks that a switch admits only controllers of its own cluster. A controller must talk
// only to the switch that it names. A worker agent's certificates must give no access to another
// node.
func TestWho(t *testing.T) {
	here, elsewhere := newCluster(t), newCluster(t)
	server := here.agent("node1", Switch).Server()
	leader, worker := here.agent("node2", Switch, Controller), here.agent("node3", Switch)
	strange := elsewhere.agent("node2", Switch, Controller)
	const refused = "bad certificate|unknown certificate|unsupported certificate|certificate required"
	for _, c := range []struct {
		what   string
		client *tls.Config
		name   string
		err    string
	}{
		{"the leader", leader.Client(), "node1", ""},
		{"the leader means another node", leader.Client(), "node3", "not node3"},
		{"the leader does not say which node", func() *tls.Config { c := leader.Client(); c.InsecureSkipVerify = true; return c }(), "", "is not said"},
		{"a worker, as its own program would", worker.Client(), "node1", "certificate required|no controller's certificate"},
		{"a worker's stolen certificate", stolen(worker.own[Switch][0]), "node1", refused},
		{"the certificate of the leader's own switch", stolen(leader.own[Switch][0]), "node1", refused},
		{"without a certificate", &tls.Config{InsecureSkipVerify: true}, "node1", "certificate required"},
		{"of another cluster", strange.Client(), "node1", "unknown authority"},
		{"of another cluster, and it believes everybody", stolen(strange.own[Controller][0]), "node1", refused},
	} {
		wants(t, c.what, talk(server, c.client, c.name), c.err)
	}
	for _, c := range []struct {
		what   string
		server *tls.Config
		err    string
	}{
		{"a worker's stolen certificate, as another node's switch", stolen(worker.own[Switch][0]), "not node1"},
		{"a controller's certificate, as a switch", stolen(here.agent("node1", Controller).own[Controller][0]), "incompatible key usage"},
		{"a switch of another cluster", stolen(elsewhere.agent("node1", Switch).own[Switch][0]), "unknown authority"},
	} {
		wants(t, c.what, talk(c.server, leader.Client(), "node1"), c.err)
	}
	// A switch without a certificate serves no client. A switch without an authority trusts no
	// client.
	if err := talk(here.agent("node1").Server(), leader.Client(), "node1"); err == nil {
		t.Error("a switch without a certificate talks")
	}
	empty := New("node1")
	empty.own[Switch] = here.agent("node1", Switch).own[Switch]
	if err := talk(empty.Server(), leader.Client(), "node1"); err == nil {
		t.Error("a switch that trusts no authority lets somebody in")
	}
}

// TestOne checks that some certificates have no role, whoever has signed them: those for both ends,
// for another organization, or for an authority.
func TestOne(t *testing.T) {
	c := newCluster(t)
	a, err := Load(c.state.Signing)
	must(t, err)
	server, leader := c.agent("node1", Switch).Server(), c.agent("node2", Controller)
	for what, change := range map[string]func(*x509.Certificate){
		"both ends":            func(x *x509.Certificate) { x.ExtKeyUsage = append(x.ExtKeyUsage, x509.ExtKeyUsageServerAuth) },
		"nobody's":             func(x *x509.Certificate) { x.Subject = pkix.Name{} },
		"a switch's":           func(x *x509.Certificate) { x.Subject = Switch.subject() },
		"of two organizations": func(x *x509.Certificate) { x.Subject.Organization = append(x.Subject.Organization, "netcraq:switch") },
		"":                     func(*x509.Certificate) {},
	} {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template := &x509.Certificate{SerialNumber: leader.own[Controller][0].Leaf.SerialNumber,
			Subject: Controller.subject(), DNSNames: []string{"node2"}, NotBefore: c.now.Add(-time.Hour),
			NotAfter: c.now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		change(template)
		der, err := x509.CreateCertificate(rand.Reader, template, a.cert, k.Public(), a.key)
		must(t, err)
		err = talk(server, stolen(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k}), "node1")
		if (err == nil) != (what == "") {
			t.Errorf("%q: %v", what, err)
		}
	}
}

// TestRenewal checks when a certificate is due: when half of its life is over, or when another
// authority signs. It must not be due earlier.
func TestRenewal(t *testing.T) {
	c := newCluster(t)
	if New("node1").Due(Switch) {
		t.Error("one is due that could not be checked")
	}
	i := c.agent("node1")
	if !i.Due(Switch) || !i.Expires(Switch).IsZero() {
		t.Error("none is due, and there is none")
	}
	c.issue(i, Switch)
	if i.Due(Switch) || i.Expires(Switch).Sub(c.now).Round(time.Hour) != leafLife {
		t.Errorf("due; it ends in %v", i.Expires(Switch).Sub(c.now))
	}
	c.now = c.now.Add(leafLife/2 - time.Hour)
	if i.Due(Switch) {
		t.Error("it is due early")
	}
	c.now = c.now.Add(2 * time.Hour)
	if !i.Due(Switch) {
		t.Error("it is not due")
	}
	c.issue(i, Switch)
	if i.Due(Switch) || len(i.own[Switch]) != 2 {
		t.Errorf("due, and there are %d", len(i.own[Switch]))
	}
}

// TestReplacement checks that no handshake fails while an authority is replaced, though agents
// learn of each step late and in any order. A certificate that is not renewed must be refused once
// its authority is not trusted any more.
func TestReplacement(t *testing.T) {
	c := newCluster(t)
	node, leader := c.agent("node1", Switch), c.agent("node2", Controller)
	first := c.state.Signing
	// This controller's certificate is from the first authority, and is never renewed.
	thief := c.agent("node3", Controller).own[Controller][0]
	connected := func(when string) {
		t.Helper()
		wants(t, when, talk(node.Server(), leader.Client(), "node1"), "")
	}
	// hear makes the agents learn of a step, one after the other in the given order. They renew the
	// certificates that are due.
	hear := func(when string, order ...*Identity) {
		t.Helper()
		connected(when + ", nobody has heard")
		for _, i := range order {
			c.refresh(i)
			connected(when + ", " + i.node + " has heard")
			if role := map[bool]Role{true: Switch, false: Controller}[i == node]; i.Due(role) {
				c.issue(i, role)
				connected(when + ", " + i.node + " has renewed")
			}
		}
	}
	connected("at first")
	if what := c.step(false); what != "" {
		t.Fatal(what)
	}
	for round, order := range [][]*Identity{{node, leader}, {leader, node}} {
		before := c.state.Signing
		if what := c.step(true); !strings.Contains(what, "is to sign") {
			t.Fatal(what)
		}
		hear("announced", order...)
		c.now = c.now.Add(24 * time.Hour)
		if what := c.step(true); what != "" {
			t.Fatalf("%s, though nobody was told of the next", what)
		}
		c.state.Announced = c.now
		c.now = c.now.Add(announceTime - time.Minute)
		if what := c.step(false); what != "" {
			t.Fatalf("%s, early", what)
		}
		c.now = c.now.Add(2 * time.Minute)
		if what := c.step(false); !strings.Contains(what, "the next authority signs") || bytes.Equal(before.Key, c.state.Signing.Key) {
			t.Fatal(what)
		}
		hear("promoted", order...)
		if round == 0 {
			wants(t, "a certificate of the last authority", talk(node.Server(), stolen(thief), "node1"), "")
		}
		c.now = c.now.Add(parting - time.Hour)
		for _, i := range order {
			c.issue(i, map[bool]Role{true: Switch, false: Controller}[i == node]) // renewed at half of its life
		}
		if what := c.step(false); what != "" {
			t.Fatalf("%s, early", what)
		}
		c.now = c.now.Add(2 * time.Hour)
		if what := c.step(false); !strings.Contains(what, "not trusted any more") || len(c.state.Previous) != 0 {
			t.Fatal(what)
		}
		hear("parted", order...)
		wants(t, "a certificate of an authority that has gone", talk(node.Server(), stolen(thief), "node1"), "bad certificate|expired certificate|unknown certificate")
	}
	if bytes.Contains(c.state.Bundle(), first.Certificate) || bytes.Contains(c.state.Bundle(), []byte("PRIVATE")) {
		t.Errorf("the bundle is\n%s", c.state.Bundle())
	}
	// Without an operator's request, the authority is replaced in time.
	c.now = c.now.Add(authorityLife - replaceBefore - 24*time.Hour)
	for range 24 {
		c.now = c.now.Add(24 * time.Hour)
		if what := c.step(false); strings.Contains(what, "is to sign") {
			return
		}
	}
	t.Error("an authority that is about to end is not replaced")
}

// before returns the configuration of an agent of the previous version. There, every agent could
// act as any other agent.
func before(t *testing.T, p Pair, node string) *tls.Config {
	t.Helper()
	l, err := LoadLegacy(p)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(l.cert)
	own, err := l.certificate(node)
	must(t, err)
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool,
		ClientAuth:           tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }}
}

// TestMigration checks that agents of both versions can talk to each other, in all combinations,
// while the previous version's Secret exists. After its removal, agents of this version continue,
// and those of the previous version are refused. The agents learn of the removal in any order.
func TestMigration(t *testing.T) {
	old, err := NewAuthority(time.Now())
	must(t, err)
	c := newCluster(t)
	legacy := func() *Legacy { l, err := LoadLegacy(old); must(t, err); return l }
	node, leader := c.agent("node1", Switch), c.agent("node2", Switch, Controller)
	node.Believe(legacy())
	leader.Believe(legacy())
	fresh := c.agent("node1") // this agent was just upgraded and has no certificate yet
	fresh.Believe(legacy())
	oldNode, oldLeader := before(t, old, "node1"), before(t, old, "node2")
	for what, pair := range map[string][2]*tls.Config{
		"old switch, old leader":   {oldNode, oldLeader},
		"old switch, new leader":   {oldNode, leader.Client()},
		"new switch, old leader":   {node.Server(), oldLeader},
		"new switch, new leader":   {node.Server(), leader.Client()},
		"fresh switch, old leader": {fresh.Server(), oldLeader},
		"fresh switch, new leader": {fresh.Server(), leader.Client()},
		"old switch, fresh leader": {oldNode, func() *tls.Config { l := c.agent("node2"); l.Believe(legacy()); return l.Client() }()},
		"new switch, only new authority": {node.Server(), func() *tls.Config {
			l := c.agent("node2", Controller)
			l.Believe(legacy())
			return l.Client()
		}()},
	} {
		wants(t, what, talk(pair[0], pair[1], "node1"), "")
	}
	for _, order := range [][]*Identity{{node, leader}, {leader, node}} {
		node.Believe(legacy())
		leader.Believe(legacy())
		for _, i := range order {
			i.Believe(nil)
			wants(t, i.node+" has heard that the Secret has gone", talk(node.Server(), leader.Client(), "node1"), "")
		}
	}
	const refused = "bad certificate|unknown certificate|unknown authority"
	wants(t, "an old leader, afterwards", talk(node.Server(), oldLeader, "node1"), refused)
	wants(t, "what an old agent had, afterwards", talk(node.Server(), stolen(func() *tls.Certificate {
		o, _ := oldLeader.GetClientCertificate(nil)
		return o
	}()), "node1"), refused)
	c.now = c.now.Add(partedTime + time.Minute)
	wants(t, "new agents, when that is over", talk(node.Server(), leader.Client(), "node1"), "")
	wants(t, "an old switch, afterwards", talk(oldNode, leader.Client(), "node1"), "unknown authority")
	if !legacy().Same(old.Certificate) || legacy().Same(c.state.Signing.Certificate) {
		t.Error("an authority is not the same as itself, or as another")
	}
}

// TestRequests checks that Check accepts a proper request. For any other request, its error must
// name the reason.
func TestRequests(t *testing.T) {
	_, good, err := NewRequest(Switch, "node1")
	must(t, err)
	if _, err := Check(Switch, "node1", good); err != nil {
		t.Error(err)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	request := func(key any, change func(*x509.CertificateRequest)) []byte {
		r := &x509.CertificateRequest{Subject: Switch.subject(), DNSNames: []string{"node1"}}
		change(r)
		der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
		must(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	u, err := url.Parse("spiffe://x")
	must(t, err)
	forged := func() []byte {
		b, _ := pem.Decode(good)
		b.Bytes[len(b.Bytes)-1] ^= 1
		return pem.EncodeToMemory(b)
	}()
	for want, made := range map[string][]byte{
		`it is for ["node2"], and who asks is on the node "node1"`: request(k, func(r *x509.CertificateRequest) { r.DNSNames = []string{"node2"} }),
		`it is for ["node1" "node2"]`: request(k, func(r *x509.CertificateRequest) {
			r.DNSNames = append(r.DNSNames, "node2")
		}),
		"it is for []": request(k, func(r *x509.CertificateRequest) {
			r.DNSNames = nil
		}),
		"more than a node's name": request(k, func(r *x509.CertificateRequest) {
			r.IPAddresses = []net.IP{net.IPv4(1, 2, 3, 4)}
		}),
		"it is for more than a node's name": request(k, func(r *x509.CertificateRequest) { r.URIs = []*url.URL{u} }),
		"not that of a switch": request(k, func(r *x509.CertificateRequest) {
			r.Subject = Controller.subject()
		}),
		"its subject is": request(k, func(r *x509.CertificateRequest) {
			r.Subject.CommonName = "admin"
		}),
		"its key is not one":     request(weak, func(*x509.CertificateRequest) {}),
		"does not have the key":  forged,
		"not one request in PEM": append(bytes.Clone(good), good...),
		"it is not one request":  []byte("request"),
	} {
		if _, err := Check(Switch, "node1", made); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, r := range []Role{Switch, Controller} {
		if got, ok := RoleOf(r.Signer()); !ok || got != r {
			t.Errorf("%s: %v", r.Signer(), got)
		}
	}
	if _, ok := RoleOf("kubernetes.io/kube-apiserver-client"); ok {
		t.Error("another's signer is taken for one of these")
	}
}

// TestInstall checks that a certificate and a key that do not match are never shown to a peer.
func TestInstall(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	i := c.agent("node1")
	issue := func(from *cluster, role Role, node string) (pemOf []byte, install func(Role, []byte) error) {
		key, request, err := NewRequest(role, node)
		must(t, err)
		r, err := Check(role, node, request)
		must(t, err)
		a, err := Load(from.state.Signing)
		must(t, err)
		cert, err := a.Sign(role, node, r, c.now)
		must(t, err)
		return cert, func(as Role, cert []byte) error { return i.Install(as, key, cert) }
	}
	good, install := issue(c, Switch, "node1")
	another, _ := issue(c, Switch, "node1")
	foreign, installForeign := issue(other, Switch, "node1")
	elsewhere, installElsewhere := issue(c, Switch, "node2")
	for want, err := range map[string]error{
		"for another key":      install(Switch, another),
		"unknown authority":    installForeign(Switch, foreign),
		"not node1":            installElsewhere(Switch, elsewhere),
		"incompatible":         install(Controller, good),
		"no certificate in it": install(Switch, []byte("none")),
		"among the certificat": install(Switch, append(bytes.Clone(good), c.state.Signing.Key...)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	must(t, install(Switch, good))
	if err := i.Trust(good); err == nil || !strings.Contains(err.Error(), "may not sign others") {
		t.Error(err)
	}
	if err := i.Trust(nil); err == nil {
		t.Error("nobody is trusted, and that is no error")
	}
	if _, err := Load(Pair{c.state.Signing.Certificate, other.state.Signing.Key}); err == nil ||
		!strings.Contains(err.Error(), "authority") {
		t.Errorf("another's key: %v", err)
	}
	// A certificate that an agent has signed is not accepted.
	leaf := i.own[Switch][0]
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: leaf.Leaf.SerialNumber,
		Subject: Controller.subject(), DNSNames: []string{"node9"}, NotBefore: c.now.Add(-time.Hour),
		NotAfter: c.now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, leaf.Leaf,
		leaf.PrivateKey.(*ecdsa.PrivateKey).Public(), leaf.PrivateKey)
	must(t, err)
	chain := &tls.Certificate{Certificate: [][]byte{der, leaf.Certificate[0]}, PrivateKey: leaf.PrivateKey}
	if err := talk(c.agent("node1", Switch).Server(), stolen(chain), "node1"); err == nil {
		t.Error("an agent has made itself a controller's certificate")
	}
}
