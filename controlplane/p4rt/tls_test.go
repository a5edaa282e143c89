package p4rt_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// TestTLS: a real switch that requires certificates serves only clients that have one. A client
// does not accept a switch with the wrong name or certificate.
func TestTLS(t *testing.T) {
	for _, target := range []string{"embedded", "simple_switch_grpc"} {
		t.Run(target, func(t *testing.T) {
			authority := testcerts.NewAuthority(t)
			server, _ := authority.Issue("switch", "", "s1.example")
			addr := startTarget(t, target, "--grpc-server-ssl", "--grpc-server-cert", server.CertFile, "--grpc-server-key", server.KeyFile,
				"--grpc-server-cacert", authority.File, "--grpc-server-with-client-auth")
			good, _ := authority.Issue("controller", "controller")
			stranger, _ := testcerts.NewAuthority(t).Issue("stranger", "controller")
			stranger.TrustedCAFile = authority.File
			info := pipeline(t, "{}").Info
			client := func(conf *tls.Config) *p4rt.Client {
				t.Helper()
				c, err := p4rt.New(p4rt.Options{Name: "s1", Target: addr, DeviceID: 1,
					ElectionID: p4rt.ElectionID{Low: 1}, Info: info, TLS: conf,
					MinBackoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond}, p4rt.Handler{})
				if err != nil {
					t.Fatal(err)
				}
				runClient(t, c)
				return c
			}
			named := func(certs transport.TLSInfo, name string) *tls.Config {
				conf, err := certs.ClientConfig()
				if err != nil {
					t.Fatal(err)
				}
				conf.ServerName = name
				return conf
			}
			refused := map[string]*p4rt.Client{
				"no certificate":           client(named(transport.TLSInfo{TrustedCAFile: authority.File}, "s1.example")),
				"a stranger's certificate": client(named(stranger, "s1.example")),
				"plain text":               client(nil),
				"another server's name":    client(named(good, "s2.example")),
			}
			for what, c := range refused {
				wait(t, what+": an error", func() bool { return c.State().Err != nil })
			}
			c := client(named(good, "s1.example"))
			wait(t, "primary with the certificate", primary(c))
			for what, c := range refused {
				if s := c.State(); s.Stream != 0 || s.Phase != p4rt.Disconnected {
					t.Errorf("%s: %+v", what, s)
				}
			}
			// The switch must send no byte of HTTP/2 to a connection without TLS.
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
				t.Fatal(err)
			}
			// an answer may begin with 21, which is a TLS alert
			if answer, _ := io.ReadAll(conn); len(answer) > 0 && answer[0] != 21 {
				t.Errorf("it answered % x", answer)
			}
		})
	}
}
