package gateway

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// TestEndpointSync checks that a gateway that knows one member learns of the other members. It
// works without the first member: for clients' requests, for its own requests, and for the HTTP
// pages.
func TestEndpointSync(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, 3, etcdtest.Options{})
	first := (c.Leader() + 1) % 3 // a member that does not lead, so stopping it causes no election
	u, err := Dial(UpstreamConfig{Endpoints: c.Endpoints()[first : first+1], SyncInterval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	g := begin(t, Config{Upstream: u})
	client := etcdtest.Client(t, g.Endpoint)
	eventually(t, "the gateway knows three members", func() bool { return len(u.client.Endpoints()) == 3 })
	c.Kill(first)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		t.Errorf("without the member that the gateway was told of: %v", err)
	}
	own, err := u.NewClient(ctx, "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if _, err := own.Get(ctx, "k"); err != nil {
		t.Errorf("a client for the gateway's own business: %v", err)
	}
	if code, body := get(t, http.DefaultClient, g.Endpoint+"/version"); code != http.StatusOK {
		t.Errorf("pages: %d, %s", code, body)
	}
}

// member is a name for this machine's loopback in serveDNS.
var member = dnsmessage.MustNewName("member.example.test.")

// dnsServer is the address of the server that gets this process's DNS queries. If it is nil, the
// machine's configured servers get them. The resolver is installed only once, because connections
// of other tests read net.DefaultResolver at any time.
var dnsServer atomic.Pointer[string]

func init() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network,
		address string) (net.Conn, error) {
		if at := dnsServer.Load(); at != nil {
			network, address = "udp", *at
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

// serveDNS answers SRV queries during the test. records has the ports of member, by record name.
func serveDNS(t *testing.T, records map[string][]int) {
	t.Helper()
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			a := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true},
				Questions: m.Questions}
			ports := records[strings.TrimSuffix(q.Name.String(), ".")]
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 1}
			switch {
			case q.Name == member && q.Type == dnsmessage.TypeA:
				a.Answers = append(a.Answers, dnsmessage.Resource{Header: header,
					Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}})
			case q.Name != member && (len(ports) == 0 || q.Type != dnsmessage.TypeSRV):
				a.RCode = dnsmessage.RCodeNameError
			}
			for _, port := range ports {
				a.Answers = append(a.Answers, dnsmessage.Resource{Header: header,
					Body: &dnsmessage.SRVResource{Target: member, Port: uint16(port)}})
			}
			if out, err := a.Pack(); err == nil {
				l.WriteTo(out, from)
			}
		}
	}()
	at := l.LocalAddr().String()
	dnsServer.Store(&at)
	t.Cleanup(func() { dnsServer.Store(nil) })
}

// TestDiscover checks that a gateway finds etcd by its SRV records. The etcd must have a
// certificate for the domain, unless the check is disabled.
func TestDiscover(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	certs, _ := authority.Issue("etcd", "", "example.test", "member.example.test")
	client, _ := authority.Issue("gateway", "")
	// this process needs a client certificate to request etcd's pages
	c := etcdtest.New(t, 1, etcdtest.Options{TLS: certs, Adjust: func(e *embed.Config) {
		e.ClientTLSInfo.ClientCertFile, e.ClientTLSInfo.ClientKeyFile = client.CertFile, client.KeyFile
	}})
	_, p, _ := net.SplitHostPort(strings.TrimPrefix(c.Endpoints()[0], "https://"))
	port, _ := strconv.Atoi(p)
	_, p, _ = net.SplitHostPort(testport.Free(t))
	dead, _ := strconv.Atoi(p)
	serveDNS(t, map[string][]int{
		"_etcd-client-ssl._tcp.example.test":      {port, dead},
		"_etcd-client._tcp.plain.test":            {dead},
		"_etcd-client-ssl-name._tcp.example.test": {port},
		"_etcd-client-ssl._tcp.wrong.test":        {port},
	})
	secure := "https://member.example.test.:" + strconv.Itoa(port)
	for _, at := range []struct {
		domain, name string
		insecure     bool
		want, refuse string // expected endpoints; required part of the error
	}{
		{"example.test", "", false, secure, ""},
		{"example.test", "name", false, secure, ""},
		{"example.test", "", true, secure + ",https://member.example.test.:" + strconv.Itoa(dead), ""},
		{"plain.test", "", true, "http://member.example.test.:" + strconv.Itoa(dead), ""},
		{"plain.test", "", false, "", "has no TLS"},
		{"wrong.test", "", false, "", "certificate is valid for example.test"},
		{"none.test", "", false, "", "no such host"},
	} {
		got, err := Discover(at.domain, at.name, client, at.insecure)
		slices.Sort(got)
		want := strings.Split(at.want, ",")
		slices.Sort(want)
		if at.refuse == "" && (err != nil || !slices.Equal(got, want)) || at.refuse != "" && (err == nil ||
			!strings.Contains(err.Error(), at.refuse)) {
			t.Errorf("%+v: %v, %v", at, got, err)
		}
	}
	found, err := Discover("example.test", "", client, false)
	if err != nil {
		t.Fatal(err)
	}
	g := beginAt(t, Config{}, UpstreamConfig{Endpoints: found, TLS: client}, "http", client)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := pb.NewKVClient(dialRaw(t, g.Endpoint)).Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Error(err)
	}
}
