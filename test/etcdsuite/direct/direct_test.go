package direct

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd"
)

// none is a KV that does nothing.
type none struct{ clientv3.KV }

func (none) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return nil, nil
}
func (none) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, nil
}
func (none) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return nil, nil
}
func (none) Do(context.Context, clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, nil
}
func (n none) Txn(context.Context) clientv3.Txn { return noTxn{} }

type noTxn struct{}

func (t noTxn) If(...clientv3.Cmp) clientv3.Txn      { return t }
func (t noTxn) Then(...clientv3.Op) clientv3.Txn     { return t }
func (t noTxn) Else(...clientv3.Op) clientv3.Txn     { return t }
func (noTxn) Commit() (*clientv3.TxnResponse, error) { return nil, nil }

// If a request names a single key, the key is placed before the request. The keys of a range are
// not placed.
func TestPlacing(t *testing.T) {
	ctx := t.Context()
	var placed []string
	kv := placing{none{}, func(_ context.Context, key string) { placed = append(placed, key) }}
	zero := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.Version(key), "=", 0) }
	within := clientv3.OpTxn([]clientv3.Cmp{zero("c")},
		[]clientv3.Op{clientv3.OpPut("d", "")}, []clientv3.Op{clientv3.OpGet("e"), clientv3.OpGet("no", clientv3.WithPrefix())})
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"get", func() { kv.Get(ctx, "a") }, "a"},
		{"range", func() { kv.Get(ctx, "a", clientv3.WithRange("b")) }, ""},
		{"all", func() { kv.Get(ctx, "", clientv3.WithPrefix()) }, ""},
		{"put", func() { kv.Put(ctx, "a", "") }, "a"},
		{"delete", func() { kv.Delete(ctx, "a") }, "a"},
		{"delete a range", func() { kv.Delete(ctx, "a", clientv3.WithFromKey()) }, ""},
		{"an operation", func() { kv.Do(ctx, clientv3.OpPut("a", "")) }, "a"},
		{"a transaction as an operation", func() { kv.Do(ctx, within) }, "c d e"},
		{"a transaction that is not sent", func() { kv.Txn(ctx).Then(clientv3.OpGet("a")) }, ""},
		{"a transaction", func() {
			kv.Txn(ctx).If(zero("a"), zero("no").WithPrefix()).
				Then(clientv3.OpDelete("b")).Else(within, clientv3.OpGet("f")).Commit()
		}, "a b c d e f"},
	} {
		placed = nil
		if c.do(); strings.Join(placed, " ") != c.want {
			t.Errorf("%s: %q are placed, want %q", c.name, placed, c.want)
		}
	}
}

// The statistics of clients are added up over all processes.
func TestUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stats")
	t.Setenv(EnvStats, path)
	for _, s := range []etcd.Stats{
		{Network: 2, Missed: map[string]uint64{"clear": 1}, Writes: map[string]uint64{"done": 4, "again": 1}},
		{Network: 3, Forwarded: map[string]uint64{"unplaced": 7}, Writes: map[string]uint64{"done": 1}},
	} {
		if err := record(s); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	u, err := Sum(strings.NewReader(string(b)))
	if err != nil || u.Clients != 2 || u.Network != 5 || u.Writes["done"] != 5 {
		t.Errorf("%+v, %v", u, err)
	}
	for _, want := range []string{"2 clients: 5 reads", "1 (clear 1)", "7 (unplaced 7)", "6 (again 1, done 5)"} {
		if !strings.Contains(u.String(), want) {
			t.Errorf("%q is not in %q", want, u)
		}
	}
	if _, err := Sum(strings.NewReader("no JSON")); err == nil {
		t.Error("what is no JSON was added up")
	}
}
