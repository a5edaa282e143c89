package durable

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testcerts"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// countingKV counts the calls that gRPC's client makes.
type countingKV struct {
	pb.KVClient
	calls int
}

func (c *countingKV) Range(ctx context.Context, in *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	c.calls++
	return c.KVClient.Range(ctx, in, o...)
}

func (c *countingKV) Txn(ctx context.Context, in *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	c.calls++
	return c.KVClient.Txn(ctx, in, o...)
}

func waitForLinks(t *testing.T, s *Store, n int) {
	t.Helper()
	poll.Until(t, soon, "the links", func() bool { return len(*s.o.Etcd.links.up.Load()) == n })
}

// TestLinks checks that calls and watches use links, with TLS and without. They must use gRPC's
// client while there is no link.
func TestLinks(t *testing.T) {
	authority := testcerts.NewAuthority(t)
	member, _ := authority.Issue("member", "member")
	mine, _ := authority.Issue("mine", "")
	for name, o := range map[string]etcdtest.Options{"plain": {}, "TLS": {TLS: member}} {
		t.Run(name, func(t *testing.T) {
			cluster := etcdtest.New(t, 1, o)
			relay := newRelay(t, cluster.Endpoints()[0])
			access := Access{Endpoints: []string{relay.url}}
			if name == "TLS" {
				access = Access{Endpoints: []string{"https" + relay.url[len("http"):]}, CA: authority.File, Cert: mine.CertFile,
					Key: mine.KeyFile}
			}
			etcd, err := Dial(access)
			if err != nil {
				t.Fatal(err)
			}
			defer etcd.Close()
			s := New(Options{Etcd: etcd})
			defer s.Close()
			waitForLinks(t, s, 1)
			slow := &countingKV{KVClient: etcd.links.KVClient}
			etcd.links.KVClient = slow
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			told := make(chan string, 100)
			go func() {
				_ = s.Watch(ctx, store.Watch{Namespace: ns, Keys: []string{"k"}}, func(changes []store.Change) {
					for _, c := range changes {
						told <- string(c.Value)
					}
				})
			}()
			expect := func(want string) {
				t.Helper()
				for {
					select {
					case got := <-told:
						if got == want {
							return
						}
					case <-ctx.Done():
						t.Fatalf("nobody was told of %q", want)
					}
				}
			}
			expect("")
			if _, err := s.Put(ctx, key("k"), []byte("one")); err != nil {
				t.Fatal(err)
			}
			expect("one")
			if etcd.links.watches.conn == nil || slow.calls != 0 {
				t.Errorf("gRPC's client has made %d calls, or the watch", slow.calls)
			}
			relay.cut()
			waitForLinks(t, s, 0)
			if s.o.Etcd.links.link() != nil {
				t.Error("there is a link")
			}
			relay.mend()
			for _, err := s.Put(ctx, key("k"), []byte("two")); err != nil; _, err = s.Put(ctx, key("k"), []byte("two")) {
				if ctx.Err() != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			expect("two")
			waitForLinks(t, s, 1)
		})
	}
}

// TestLinksWithoutRoom checks that a request that does not fit into a link's window is made by
// gRPC's client.
func TestLinksWithoutRoom(t *testing.T) {
	s := open(t, Options{}, etcdtest.New(t, 1, etcdtest.Options{}).Endpoints()...)
	waitForLinks(t, s, 1)
	slow := &countingKV{KVClient: s.o.Etcd.links.KVClient}
	s.o.Etcd.links.KVClient = slow
	var all store.Transaction
	all.Namespace = ns
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all.Write = append(all.Write, store.Write{Name: name, Value: make([]byte, MaxValue)})
		all.Write[len(all.Write)-1].Value[0] = 1
	}
	if done, err := s.Transact(t.Context(), all); err != nil || !done.Done {
		t.Fatal(done, err)
	}
	if slow.calls == 0 {
		t.Error("80 KiB went by a link, whose window has 64 KiB")
	}
	got, err := s.Get(t.Context(), key("e"), false)
	if err != nil || len(got.Value) != MaxValue {
		t.Errorf("%d bytes, %v", len(got.Value), err)
	}
}

// TestParseEndpoint checks that endpoints are parsed as etcd's client parses them. Other endpoints
// must have no link.
func TestParseEndpoint(t *testing.T) {
	secure := &tls.Config{ServerName: "etcd.example"}
	for _, c := range []struct {
		text                    string
		secure                  *tls.Config
		scheme, address, server string
	}{
		{"http://a:1", nil, "http", "a:1", ""},
		{"http://a:1", secure, "http", "a:1", ""},
		{"https://a:1", nil, "https", "a:1", "a"},
		{"https://[::1]:1", nil, "https", "[::1]:1", "::1"},
		{"a:1", nil, "http", "a:1", ""},
		{"a:1", secure, "https", "a:1", "etcd.example"},
		{"unix:///run/etcd.sock", nil, "", "", ""},
		{"unix:/run/etcd.sock", nil, "", "", ""},
		{"http://a", nil, "", "", ""},
		{"a", nil, "", "", ""},
		{"http://a:1:%", nil, "", "", ""},
	} {
		at, ok := parseEndpoint(c.text, c.secure)
		if ok != (c.scheme != "") || ok && (at.Scheme != c.scheme || at.Address != c.address ||
			(at.TLS != nil) != (c.server != "") || at.TLS != nil && at.TLS.ServerName != c.server) {
			t.Errorf("%s: %+v, %v", c.text, at, ok)
		}
	}
	if secure.NextProtos != nil {
		t.Error(errors.New("the client's configuration was changed"))
	}
}
