package guarded

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// startRoomy starts an etcd with higher limits, which leave room for the parts that a gateway adds
// to requests.
func startRoomy(t *testing.T) string {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{DataDir: t.TempDir(), LogOutput: filepath.Join(
		t.TempDir(), "log"), LogLevel: "error", Adjust: func(c *embed.Config) {
		etcdtest.Quick(c)
		c.MaxTxnOps += MoreTxnOps
		c.MaxRequestBytes += MoreRequestBytes
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Endpoint()
}

// limitedAsEtcd configures a gateway with the default limits of etcd.
func limitedAsEtcd(c *Config) {
	c.MaxTxnOps, c.MaxRequestBytes = int(embed.DefaultMaxTxnOps), embed.DefaultMaxRequestBytes
}

// A client's transaction may have as many conditions, and operations in either branch, as etcd
// accepts. It does not matter which branch is taken or whether the keys are placed. If etcd's
// limits are not higher, some of the largest transactions fail, because the gateway's conditions do
// not fit.
func TestLimits(t *testing.T) {
	oneByOne(t)
	direct := pb.NewKVClient(connect(t, startEtcd(t)).ActiveConnection())
	txn := func(compares, success, failure int, holds bool, key string) *pb.TxnRequest {
		q := &pb.TxnRequest{}
		for i := range compares {
			result := pb.Compare_EQUAL
			if i == compares-1 && !holds {
				result = pb.Compare_GREATER
			}
			q.Compare = append(q.Compare, &pb.Compare{Target: pb.Compare_CREATE, Result: result,
				Key: fmt.Appendf(nil, "absent%03d", i), TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0}})
		}
		for i := range success {
			q.Success = append(q.Success, putOp(fmt.Sprintf("%s%03d", key, i), fmt.Sprint(compares, success, failure, holds)))
		}
		for i := range failure {
			q.Failure = append(q.Failure, putOp(fmt.Sprintf("%s%03d", key, failure-1-i),
				fmt.Sprint(compares, success, failure, holds)))
		}
		return q
	}
	for _, before := range []struct {
		name   string
		etcd   func(*testing.T) string
		change func(*Config)
		roomy  bool
	}{
		{"an etcd that takes no more", func(t *testing.T) string { return startEtcd(t) }, nil, false},
		{"an etcd that takes more", startRoomy, limitedAsEtcd, true},
	} {
		t.Run(before.name, func(t *testing.T) {
			slots := newMemory(64)
			g := newLive(t, before.etcd(t), slots, before.change)
			g.knows(t, newPlacement(g.client, slots).place(t, "placed000"))
			refused := 0
			for _, c := range []int{0, 1, 100, 124, 126, 127, 128, 129} {
				for _, s := range []int{0, 1, 127, 128, 129} {
					for _, f := range []int{0, 1, 128, 129} {
						for _, key := range []string{"placed", "other"} {
							holds := (c+s+f)%2 == 0
							q := txn(c, s, f, holds, key)
							want, errWant := direct.Txn(t.Context(), q)
							got, err := g.Txn(t.Context(), q)
							// The gateway adds two conditions if keys are guarded, otherwise one.
							own := 1
							if key == "placed" && (s > 0 || f > 0) {
								own = 2
							}
							tight := c+own > 128 || c > 124 && f > 0 && max(c, s, f)+own > 128
							if !before.roomy && (s > 0 || f > 0) && errWant == nil && tight {
								if refused++; !tooMany(err) {
									t.Errorf("%d conditions, %d and %d operations on %s keys: %v; it was to be refused", c, s, f, key, err)
								}
								continue
							}
							if fmt.Sprint(err) != fmt.Sprint(errWant) {
								t.Errorf("%d conditions, %d and %d operations on %s keys: %v; etcd says %v", c, s, f, key, err, errWant)
							} else if err == nil && (got.Succeeded != want.Succeeded ||
								len(got.Responses) != len(want.Responses)) {
								t.Errorf(
									"%d conditions, %d and %d operations on %s keys: %v, %d answers; etcd says %v, %d answers",
									c, s, f, key, got.Succeeded, len(got.Responses), want.Succeeded,
									len(want.Responses))
							} else if err == nil {
								for _, r := range got.Responses {
									if r.GetResponsePut().GetHeader().GetRevision() != got.Header.Revision {
										t.Fatalf("the answer to a put: %v", r)
									}
								}
							}
						}
					}
				}
			}
			t.Logf("%d were refused for the gateway's own conditions", refused)
			if _, err := g.Txn(t.Context(), txn(0, 0, 60_000, true, "k")); !tooMany(err) {
				t.Errorf("60,000 operations: %v", err)
			}
			nested := func(outer, inner int) *pb.TxnRequest {
				q := txn(outer, 1, 0, true, "other")
				q.Success = append(q.Success, txnOp(txn(inner, inner, 1, true, "placed")))
				return q
			}
			for outer, inner := range map[int]int{100: 29, 2: 127, 64: 65} {
				if _, err := g.Txn(t.Context(), nested(outer, inner)); !tooMany(err) {
					t.Errorf("%d and %d within them: %v", outer, inner, err)
				}
				if _, err := g.Txn(t.Context(), nested(outer, inner-3)); err != nil {
					t.Errorf("%d and %d within them: %v", outer, inner-3, err)
				}
			}
		})
	}
}

// If etcd has higher limits, clients of a gateway can write the same largest value as clients of
// etcd. Otherwise the largest value is smaller by the size of the write's conditions.
func TestLargestValue(t *testing.T) {
	oneByOne(t)
	largest := func(t *testing.T, key string, put func(value []byte) error) int {
		t.Helper()
		const limit, about = int(embed.DefaultMaxRequestBytes), 1 << 9
		buffer := bytes.Repeat([]byte("v"), limit+about)
		taken := func(size int) bool {
			err := put(buffer[:size])
			if err != nil && (status.Code(err) != codes.InvalidArgument || !tooLarge(err)) {
				t.Fatalf("%s, %d bytes: %v", key, size, err)
			}
			return err == nil
		}
		low, high := limit-about, limit+about
		if !taken(low) || taken(high) {
			t.Fatalf("%s: the largest value is not near %d bytes", key, limit)
		}
		for high-low > 1 {
			if middle := (low + high) / 2; taken(middle) {
				low = middle
			} else {
				high = middle
			}
		}
		return low
	}
	direct := pb.NewKVClient(connect(t, startEtcd(t)).ActiveConnection())
	for _, before := range []struct {
		name   string
		etcd   func(*testing.T) string
		change func(*Config)
		// by key, how many bytes the largest value is below etcd's largest value
		less map[string]int
	}{
		{"an etcd that takes no more", func(t *testing.T) string { return startEtcd(t) }, nil, map[string]int{"other": 47, "placed": 150}},
		{"an etcd that takes more", startRoomy, limitedAsEtcd, nil},
	} {
		t.Run(before.name, func(t *testing.T) {
			slots := newMemory(64)
			g := newLive(t, before.etcd(t), slots, before.change)
			g.knows(t, newPlacement(g.client, slots).place(t, "placed"))
			for _, key := range []string{"other", "placed"} {
				want := largest(t, key, func(v []byte) error {
					_, err := direct.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: v})
					return err
				})
				got := largest(t, key, func(v []byte) error {
					_, err := g.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: v})
					return err
				})
				t.Logf("%s: %d bytes; at etcd %d", key, got, want)
				// The encoded numbers of log entries and revisions may each be a byte longer or
				// shorter.
				if less := want - got; less < -1 || less > before.less[key]+4 {
					t.Errorf("%s: %d bytes; at etcd %d", key, got, want)
				}
				if r, err := g.client.Get(t.Context(), key, clientv3.WithSerializable()); err != nil ||
					len(r.Kvs[0].Value) != got {
					t.Errorf("%v", err)
				}
			}
		})
	}
}
