package inplace

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// root is who gateways and placement are, where etcd asks.
const root = "root"

// placeTime is how long a key may take to be placed, and placePart which part of what its request
// has: a test is about the request. What takes longer (the cluster has no quorum, or asks who is
// there) is not placed.
const (
	placeTime = 2 * time.Second
	placePart = 4
	grantTime = 10 * time.Second // for the permissions of a role
)

// Placement places keys of one cluster, past its gateways.
type Placement struct {
	client  *clientv3.Client // past the gateways
	store   placement.Store
	cluster uint64
}

// known are the keys that are placed, or are not to be tried again, by cluster.
var known = struct {
	sync.Mutex
	keys map[uint64]map[string]bool
}{keys: map[uint64]map[string]bool{}}

// NewPlacement connects to a cluster. The caller closes it.
func NewPlacement(endpoints []string, t *tls.Config) (*Placement, error) {
	config := clientv3.Config{Endpoints: endpoints, TLS: t, Logger: zap.NewNop()}
	if password := os.Getenv(EnvPassword); password != "" {
		config.Username, config.Password = root, password
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	return &Placement{client: client, store: placement.Store{KV: client, Prefix: placement.DefaultPrefix}}, nil
}

// Follow has keys placed by other members of the cluster from now on.
func (p *Placement) Follow(endpoints []string) {
	if !slices.Equal(endpoints, p.client.Endpoints()) {
		p.client.SetEndpoints(endpoints...)
	}
}

// Close ends the connection. What is placed stays so.
func (p *Placement) Close() { p.client.Close() }

// Place places a key that is not, if it can be. Whoever asks for a key meanwhile waits.
func (p *Placement) Place(ctx context.Context, key string) {
	if placement.Check(p.store.Prefix, key) != nil || strings.HasPrefix(key, "/netcraq/") || ctx.Err() != nil ||
		p.client.Ctx().Err() != nil {
		return
	}
	known.Lock()
	defer known.Unlock()
	limit := placeTime
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/placePart)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if p.cluster == 0 {
		r, err := p.client.MemberList(ctx, clientv3.WithSerializable())
		if err != nil {
			return
		}
		p.cluster = r.Header.ClusterId
	}
	keys := known.keys[p.cluster]
	if keys == nil {
		keys = map[string]bool{}
		known.keys[p.cluster] = keys
	}
	if keys[key] {
		return
	}
	e, err := NextSlot(os.Getenv(EnvSlots))
	if err != nil {
		fmt.Fprintf(os.Stderr, "placing %q: %v\n", key, err)
		return
	}
	if _, err := p.store.Put(ctx, key, e); err == nil || errors.Is(err, placement.ErrChanged) {
		keys[key] = true
	}
}

// letWrite gives a role the permissions that who writes through a gateway needs (docs/etcd.md,
// Where etcd looks at who asks).
func (p *Placement) letWrite(ctx context.Context, role string) error {
	return p.grant(ctx, role, clientv3.PermissionType(clientv3.PermRead), p.store.Prefix+"placed/", p.store.Prefix+"sessions/")
}

// LetUse gives a role the permissions that a program without a gateway needs (docs/etcd.md, Without
// a gateway).
func (p *Placement) LetUse(ctx context.Context, role string) error {
	return p.grant(ctx, role, clientv3.PermissionType(clientv3.PermReadWrite), p.store.Prefix)
}

func (p *Placement) grant(ctx context.Context, role string, what clientv3.PermissionType, prefixes ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grantTime)
	defer cancel()
	for _, prefix := range prefixes {
		if _, err := p.client.RoleGrantPermission(ctx, role, prefix, clientv3.GetPrefixRangeEnd(prefix),
			what); err != nil {
			return fmt.Errorf("what a role needs to write placed keys: %w", err)
		}
	}
	return nil
}

// keysOf are the keys that a request names, each by itself.
func keysOf(request any) (out []string) {
	single := func(key, end []byte) {
		if len(key) > 0 && len(end) == 0 {
			out = append(out, string(key))
		}
	}
	switch r := request.(type) {
	case *pb.RangeRequest:
		single(r.Key, r.RangeEnd)
	case *pb.PutRequest:
		single(r.Key, nil)
	case *pb.DeleteRangeRequest:
		single(r.Key, r.RangeEnd)
	case *pb.TxnRequest:
		for _, c := range r.Compare {
			single(c.Key, c.RangeEnd)
		}
		for _, op := range append(append([]*pb.RequestOp{}, r.Success...), r.Failure...) {
			switch q := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				out = append(out, keysOf(q.RequestRange)...)
			case *pb.RequestOp_RequestPut:
				out = append(out, keysOf(q.RequestPut)...)
			case *pb.RequestOp_RequestDeleteRange:
				out = append(out, keysOf(q.RequestDeleteRange)...)
			case *pb.RequestOp_RequestTxn:
				out = append(out, keysOf(q.RequestTxn)...)
			}
		}
	}
	return out
}

// slotLine is how long a slot's line is, so that they can be taken one after the other.
const slotLine = 80

// WriteSlots writes slots that nothing is in yet, for NextSlot.
func WriteSlots(path string, slots []placement.Entry) error {
	var b strings.Builder
	for _, e := range slots {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if len(line) >= slotLine {
			return fmt.Errorf("a slot's line has %d bytes: %s", len(line), line)
		}
		fmt.Fprintf(&b, "%-*s\n", slotLine-1, line)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// NextSlot gives each slot of a file once, to all processes that ask.
func NextSlot(path string) (e placement.Entry, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return e, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return e, err
	}
	info, err := f.Stat()
	if err != nil {
		return e, err
	}
	rest := info.Size() - slotLine
	if rest < 0 {
		return e, errors.New("there is no slot left in the switches")
	}
	line := make([]byte, slotLine)
	if _, err := f.ReadAt(line, rest); err != nil {
		return e, err
	}
	if err := f.Truncate(rest); err != nil {
		return e, err
	}
	return e, json.Unmarshal(line, &e)
}
