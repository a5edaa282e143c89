package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/client/etcd/etcderrors"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/service"
)

// DefaultControllers is the default prefix of the controllers' own keys in etcd. The option
// --etcd-prefix of netcraq-controller sets another prefix.
const DefaultControllers = "/netcraq/"

// askWait is how long New waits for the controller.
const askWait = 3 * time.Second

// Config configures a Client. Only Controller is required.
type Config struct {
	// Controller is the address of the controllers' admin API: a URL, HOST:PORT or unix:///PATH.
	// Several addresses are separated by commas. The API says where the chains are, and leases the
	// sessions that are used to write slots.
	Controller string
	// Token is the path of the file with the token for the controller. The file is read again for
	// each request. If Token is empty, no token is sent.
	Token string
	// Prefix is the prefix of the gateways' own keys in etcd. If it is empty,
	// placement.DefaultPrefix is used. All gateways and programs of a cluster must use the same
	// prefix.
	Prefix string
	// Controllers are the prefixes of the controllers' own keys. If it is nil, only
	// DefaultControllers is used.
	Controllers []string
	// Owner is the name of this program's sessions at the controller. If it is empty, the name is
	// made of the host's name and the program's name.
	Owner string
	// Observer receives an event for each read and write, as a gateway's metrics do. It may be nil.
	// Stats counts requests even without an Observer.
	Observer Observer
	// Log gets errors that do not belong to a request. If it is nil, nothing is logged.
	Log *slog.Logger
}

// Client implements clientv3's KV and Watcher. It reads placed keys from the switches, and writes
// them under their guards. It is safe for concurrent use. Its Close also closes the Watcher.
type Client struct {
	clientv3.KV

	service *service.Service
	own     *clientv3.Client // client for the service's own requests
	watcher clientv3.Watcher
	counts  *counts
	close   func() error
}

var (
	_ clientv3.KV      = (*Client)(nil)
	_ clientv3.Watcher = (*Client)(nil)
)

// Use makes an etcd client read placed keys from the switches from now on. It makes a Client, and
// replaces c's KV and Watcher with the KV and Watcher of the Client. c.Close also ends the Client.
// Call Use before other code uses c, and before c's KV is wrapped in anything else, such as
// clientv3's package namespace.
func Use(ctx context.Context, c *clientv3.Client, cfg Config) (*Client, error) {
	n, err := New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	former := c.Watcher
	end := n.close
	n.close = func() error { return errors.Join(former.Close(), end()) }
	c.KV, c.Watcher = n, n
	return n, nil
}

// New makes a Client that uses c's connection and user name, and does not change c. New fails if
// this program lacks a right that it needs (the package comment lists them), or if etcd does not
// answer before ctx ends. ctx bounds only the start. Close the Client before c.
func New(ctx context.Context, c *clientv3.Client, cfg Config) (*Client, error) {
	if c.ActiveConnection() == nil {
		return nil, errors.New("etcd: this client has no connection to etcd: give one that clientv3.New has made")
	}
	if cfg.Controller == "" {
		return nil, errors.New("etcd: give the address of the controller (Config.Controller): it says where the chains are")
	}
	if cfg.Prefix == "" {
		cfg.Prefix = placement.DefaultPrefix
	}
	if cfg.Controllers == nil {
		cfg.Controllers = []string{DefaultControllers}
	}
	if cfg.Owner == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unnamed"
		}
		cfg.Owner = fmt.Sprintf("client/etcd %s %d", host, os.Getpid())
	}
	controller := admin.NewClient(cfg.Controller, admin.TokenFile(cfg.Token))
	if err := mayAsk(ctx, controller); err != nil {
		controller.Close()
		return nil, err
	}
	// own is needed because this Client will soon replace c's KV and Watcher.
	own := clientv3.NewCtxClient(context.Background())
	own.KV, own.Lease, own.Watcher = clientv3.NewKV(c), clientv3.NewLease(c), clientv3.NewWatcher(c)
	newest := new(guardedshell.Newest)
	n := &Client{own: own, counts: &counts{next: cfg.Observer}}
	sc := service.Config{
		Own: own, Etcd: asked{clientv3.RetryKVClient(c)}, Newest: newest, Observer: n.counts,
		Prefix: cfg.Prefix, Reserved: cfg.Controllers, Controller: controller, Owner: cfg.Owner, Log: cfg.Log,
	}
	if c.Username == "" {
		sc.Nobody = asNobody{own.KV}
	}
	var err error
	if n.service, err = service.Open(ctx, sc); err != nil {
		own.Close()
		controller.Close()
		return nil, refused(c, cfg.Prefix, err)
	}
	n.KV = clientv3.NewKVFromKVClient(keys{n.service.Server}, c)
	n.watcher = clientv3.NewWatchFromWatchClient(&watching{
		next:   pb.NewWatchClient(c.ActiveConnection()),
		hidden: reserved.With(append([]string{cfg.Prefix}, cfg.Controllers...)...),
		newest: newest,
	}, c)
	n.close = sync.OnceValue(func() error {
		err := n.watcher.Close()
		n.service.Close()
		own.Close()
		controller.Close()
		return err
	})
	return n, nil
}

// mayAsk checks that the controller accepts this program's requests. If the controller does not
// answer, New does not fail, because etcd can answer the reads meanwhile.
func mayAsk(ctx context.Context, controller *admin.Client) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	_, err := controller.Chains(ctx)
	var said *admin.Error
	if errors.As(err, &said) && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden) {
		return fmt.Errorf("etcd: the controller does not let this program ask where the chains are, nor lease sessions (Config.Token is the file with the token that it wants): %w", err)
	}
	return nil
}

// refused names the right that the program lacks, if err says that etcd does not let it read the
// gateways' keys.
func refused(c *clientv3.Client, prefix string, err error) error {
	switch etcderrors.Code(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.Unauthenticated:
		who := "who has no name"
		if c.Username != "" {
			who = "user " + c.Username
		}
		return fmt.Errorf("etcd: etcd refuses %s what a program without a gateway needs: to read and write the keys under %s, among them the keys that cells are sealed with (etcdctl role grant-permission ROLE readwrite %s --prefix; who has them can read and write all placed keys, so use a gateway where that is too much): %w", who, prefix, prefix, err)
	}
	return fmt.Errorf("etcd: %w", err)
}

// Close ends the Client and its session in etcd. Other gateways break the guards that this Client
// still holds. Requests under way fail; make no requests after Close.
func (n *Client) Close() error { return n.close() }

// Watch implements clientv3.Watcher.
func (n *Client) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return n.watcher.Watch(ctx, key, opts...)
}

// RequestProgress implements clientv3.Watcher.
func (n *Client) RequestProgress(ctx context.Context) error { return n.watcher.RequestProgress(ctx) }

// Stats returns how many single-key reads the switches have answered, and why they have not
// answered the others.
func (n *Client) Stats() Stats { return n.counts.stats() }

// keys adapts the guarded service to the interface of a key-value client that clientv3 needs.
type keys struct{ server pb.KVServer }

func (k keys) Range(ctx context.Context, r *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	return k.server.Range(withOptions(ctx, o), r)
}

func (k keys) Put(ctx context.Context, r *pb.PutRequest, o ...grpc.CallOption) (*pb.PutResponse, error) {
	return k.server.Put(withOptions(ctx, o), r)
}

func (k keys) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, o ...grpc.CallOption) (
	*pb.DeleteRangeResponse, error) {
	return k.server.DeleteRange(withOptions(ctx, o), r)
}

func (k keys) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	return k.server.Txn(withOptions(ctx, o), r)
}

func (k keys) Compact(ctx context.Context, r *pb.CompactionRequest, o ...grpc.CallOption) (
	*pb.CompactionResponse, error) {
	return k.server.Compact(withOptions(ctx, o), r)
}

// options is the context key under which a request's context holds clientv3's call options, such as
// message limits. The requests to etcd use these options.
type options struct{}

func withOptions(ctx context.Context, o []grpc.CallOption) context.Context {
	return context.WithValue(ctx, options{}, o)
}

// asked sends requests to etcd with the call options that clientv3 has set.
type asked struct{ next pb.KVClient }

func of(ctx context.Context, o []grpc.CallOption) []grpc.CallOption {
	of, ok := ctx.Value(options{}).([]grpc.CallOption)
	if !ok { // The request is not from clientv3, so etcd's answer may have any size.
		of = []grpc.CallOption{grpc.MaxCallRecvMsgSize(math.MaxInt32)}
	}
	return append(of[:len(of):len(of)], o...)
}

func (a asked) Range(ctx context.Context, r *pb.RangeRequest, o ...grpc.CallOption) (*pb.RangeResponse, error) {
	return a.next.Range(ctx, r, of(ctx, o)...)
}

func (a asked) Put(ctx context.Context, r *pb.PutRequest, o ...grpc.CallOption) (*pb.PutResponse, error) {
	return a.next.Put(ctx, r, of(ctx, o)...)
}

func (a asked) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest, o ...grpc.CallOption) (
	*pb.DeleteRangeResponse, error) {
	return a.next.DeleteRange(ctx, r, of(ctx, o)...)
}

func (a asked) Txn(ctx context.Context, r *pb.TxnRequest, o ...grpc.CallOption) (*pb.TxnResponse, error) {
	return a.next.Txn(ctx, r, of(ctx, o)...)
}

func (a asked) Compact(ctx context.Context, r *pb.CompactionRequest, o ...grpc.CallOption) (
	*pb.CompactionResponse, error) {
	return a.next.Compact(ctx, r, of(ctx, o)...)
}
