package identity

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	cert, key, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Load(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func config(t *testing.T, a *Authority, node string) *tls.Config {
	t.Helper()
	c, err := a.TLS(node)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// talk has a client say a word to a server and hear it back.
func talk(server, client *tls.Config) error {
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}
	}()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.Addr().String(), client)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 4)) // with TLS 1.3 the client learns only now that it is refused
	return err
}

// TestWho: only agents of one cluster talk to each other, and only to the one that they mean.
func TestWho(t *testing.T) {
	here, elsewhere := authority(t), authority(t)
	server := config(t, here, "node1")
	for _, c := range []struct {
		what   string
		client *tls.Config
		name   string
		err    string
	}{
		{"another node's agent", config(t, here, "node2"), "node1", ""},
		{"it means another", config(t, here, "node2"), "node3", "not node3"},
		{"of another cluster", config(t, elsewhere, "node2"), "node1", "unknown authority"},
		{"without a certificate", &tls.Config{RootCAs: here.pool}, "node1", "certificate required"},
		{"of another cluster, and it trusts all", &tls.Config{InsecureSkipVerify: true, GetClientCertificate: config(t, elsewhere, "node1").GetClientCertificate}, "node1", "bad certificate|unknown certificate|certificate required"},
	} {
		c.client.ServerName = c.name
		err := talk(server, c.client)
		ok := err == nil && c.err == ""
		for _, part := range strings.Split(c.err, "|") {
			ok = ok || err != nil && c.err != "" && strings.Contains(err.Error(), part)
		}
		if !ok {
			t.Errorf("%s: %v, want %q", c.what, err, c.err)
		}
	}
}

// TestRenewal: a certificate is replaced when half of its life is over, and not before.
func TestRenewal(t *testing.T) {
	a := authority(t)
	now := time.Now()
	a.now = func() time.Time { return now }
	c := config(t, a, "node1")
	first, err := c.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(leafLife/2 - time.Hour)
	if again, _ := c.GetCertificate(nil); again != first {
		t.Error("it was replaced early")
	}
	now = now.Add(2 * time.Hour)
	again, err := c.GetClientCertificate(nil)
	if err != nil || again == first || again.Leaf.NotAfter.Sub(now) != leafLife.Round(time.Second) && again.Leaf.NotAfter.Sub(now) < leafLife-time.Minute {
		t.Errorf("it was not replaced: %v", err)
	}
}

func TestLoad(t *testing.T) {
	a := authority(t)
	leaf, err := a.issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(cert, otherKey); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("another's key: %v", err)
	}
	if _, err := Load(nil, key); err == nil {
		t.Error("no certificate")
	}
	if leaf.Leaf.IsCA {
		t.Error("an agent's certificate may sign others")
	}
}
