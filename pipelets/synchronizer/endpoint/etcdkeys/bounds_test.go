package etcdkeys_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint/etcdkeys"
)

func source(t *testing.T, address string) *etcdkeys.Source {
	t.Helper()
	s, err := etcdkeys.NewSource(pipeletapi.Etcd{Endpoints: []string{address}, Prefix: "in/"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPages checks a prefix that is listed in several pages. Each key must arrive once, ordered by
// revision. All pages have the same revision, and later writes come after them.
func TestPages(t *testing.T) {
	address, c := start(t, embedded.Config{})
	const keys, large = 2500, 40 // each large value has 1.4 MiB, so that a page of a thousand keys exceeds the limit
	for i := range keys {
		value := fmt.Sprint(i)
		if i >= keys-large {
			value = strings.Repeat("x", 1400<<10)
		}
		if _, err := c.Put(t.Context(), fmt.Sprintf("in/%d", (i*7919)%keys), value); err != nil {
			t.Fatal(err)
		}
	}
	s, at := source(t, address), exactlyonce.Position{}
	seen := map[string]bool{}
	for last := uint64(0); len(seen) < keys; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		records, next, err := s.Read(ctx, at, 100)
		cancel()
		if err != nil {
			t.Fatalf("after %d keys: %v", len(seen), err)
		}
		at = next
		for _, r := range records {
			if seen[r.Key] || r.Version <= last {
				t.Fatalf("%q came a second time, or version %d behind %d", r.Key, r.Version, last)
			}
			seen[r.Key], last = true, r.Version
		}
	}
	if _, err := c.Put(t.Context(), "in/later", "x"); err != nil {
		t.Fatal(err)
	}
	records, _, err := s.Read(t.Context(), at, 100)
	if err != nil || len(records) != 1 || records[0].Key != "later" {
		t.Errorf("behind the listing: %d records, %v", len(records), err)
	}
}

// hostile is an etcd server that answers each listing with values of size bytes, and always reports
// that there is more.
type hostile struct {
	pb.UnimplementedKVServer
	size int
}

func (h *hostile) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	key := append(append([]byte(nil), r.Key...), 'x')
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1, Revision: 5}, More: true, Count: 1 << 40,
		Kvs: []*mvccpb.KeyValue{{Key: key, ModRevision: 5, Value: make([]byte, h.size)}}}, nil
}

// TestHostile checks the limits for an etcd that the pipelet's author chooses. If this etcd sends
// more than the limit, at once or in pieces, the source must refuse it with a clear error and
// bounded memory.
func TestHostile(t *testing.T) {
	for size, want := range map[int]string{
		65 << 20: "larger than the 64 MiB that a pipelet takes",
		60 << 20: "more than the 512 MiB that are listed at once",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer(grpc.MaxSendMsgSize(1 << 30))
		pb.RegisterKVServer(g, &hostile{size: size})
		go func() { _ = g.Serve(l) }()
		t.Cleanup(g.Stop)
		s := source(t, "http://"+l.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _, err = s.Read(ctx, exactlyonce.Position{}, 100)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) || exactlyonce.KindOf(err) != exactlyonce.Refused {
			t.Errorf("answers of %d MiB: %v, want %q", size>>20, err, want)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		// the limit is generous, because the memory includes the server, which runs in this process
		if m.Sys > 3<<30 {
			t.Errorf("answers of %d MiB: %d MiB of memory", size>>20, m.Sys>>20)
		}
	}
}
