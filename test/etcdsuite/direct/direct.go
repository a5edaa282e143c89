// Package direct makes etcd's own tests use client/etcd. The tests call direct.New instead of
// clientv3.New. Like a program that uses client/etcd, New replaces the KV and Watcher of the
// client. Before each request, direct places every key that the request names.
package direct

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/netcraq/netcraq/client/etcd"
	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

// useTime is how long client/etcd may take to read its configuration from etcd.
const useTime = 5 * time.Second

// New calls clientv3.New. It then calls client/etcd, as a program does that uses it.
func New(cfg clientv3.Config) (*clientv3.Client, error) {
	if len(cfg.Endpoints) == 0 {
		return clientv3.New(cfg)
	}
	var places *inplace.Placement // set places before a test can create a role
	cfg.DialOptions = append(slices.Clone(cfg.DialOptions), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, request, reply, conn, opts...)
			if r, ok := request.(*pb.AuthRoleAddRequest); ok && err == nil {
				err = places.LetUse(ctx, r.Name)
			}
			return err
		}))
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.Ctx(), useTime)
	defer cancel()
	n, err := etcd.Use(ctx, c, etcd.Config{Controller: os.Getenv(inplace.EnvController)})
	if err != nil {
		c.Close()
		return nil, err
	}
	if places, err = inplace.NewPlacement(cfg.Endpoints, cfg.TLS); err != nil {
		c.Close()
		return nil, fmt.Errorf("placing keys past client/etcd: %w", err)
	}
	c.KV = placing{c.KV, func(ctx context.Context, key string) {
		places.Follow(c.Endpoints()) // the test may have changed the endpoints
		places.Place(ctx, key)
	}}
	inplace.AtClose(c, func() {
		places.Close()
		if err := record(n.Stats()); err != nil {
			fmt.Fprintln(os.Stderr, "what client/etcd has done:", err)
		}
	})
	return c, nil
}

// NewKV returns the client's KV. clientv3.NewKV would make a KV that bypasses client/etcd, which a
// program must not do.
func NewKV(c *clientv3.Client) clientv3.KV { return c.KV }

// placing is a KV that places the keys of a request before the request is sent.
type placing struct {
	clientv3.KV
	to func(ctx context.Context, key string)
}

// Get implements clientv3.KV.
func (p placing) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	p.place(ctx, clientv3.OpGet(key, o...))
	return p.KV.Get(ctx, key, o...)
}

// Put implements clientv3.KV.
func (p placing) Put(ctx context.Context, key, value string, o ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	p.to(ctx, key)
	return p.KV.Put(ctx, key, value, o...)
}

// Delete implements clientv3.KV.
func (p placing) Delete(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	p.place(ctx, clientv3.OpDelete(key, o...))
	return p.KV.Delete(ctx, key, o...)
}

// Do implements clientv3.KV.
func (p placing) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	p.place(ctx, op)
	return p.KV.Do(ctx, op)
}

// Txn implements clientv3.KV.
func (p placing) Txn(ctx context.Context) clientv3.Txn { return &txn{p.KV.Txn(ctx), ctx, p, nil} }

// place places the keys that an operation names singly, and not as part of a range.
func (p placing) place(ctx context.Context, op clientv3.Op) {
	if op.IsTxn() {
		conditions, yes, no := op.Txn()
		p.conditions(ctx, conditions)
		for _, op := range slices.Concat(yes, no) {
			p.place(ctx, op)
		}
		return
	}
	p.single(ctx, op.KeyBytes(), op.RangeBytes())
}

func (p placing) conditions(ctx context.Context, all []clientv3.Cmp) {
	for _, c := range all {
		p.single(ctx, c.Key, c.RangeEnd)
	}
}

func (p placing) single(ctx context.Context, key, end []byte) {
	if len(key) > 0 && len(end) == 0 {
		p.to(ctx, string(key))
	}
}

// txn places the keys of a transaction when it is committed.
type txn struct {
	clientv3.Txn
	ctx context.Context
	placing
	keys []func()
}

// If implements clientv3.Txn.
func (t *txn) If(c ...clientv3.Cmp) clientv3.Txn {
	t.keys = append(t.keys, func() { t.conditions(t.ctx, c) })
	t.Txn = t.Txn.If(c...)
	return t
}

// Then implements clientv3.Txn.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.later(ops)
	t.Txn = t.Txn.Then(ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.later(ops)
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *txn) later(ops []clientv3.Op) {
	t.keys = append(t.keys, func() {
		for _, op := range ops {
			t.place(t.ctx, op)
		}
	})
}

// Commit implements clientv3.Txn.
func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	for _, place := range t.keys {
		place()
	}
	return t.Txn.Commit()
}
