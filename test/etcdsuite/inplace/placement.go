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

// root is the etcd user of gateways and placement, if etcd's authentication is enabled.
const root = "root"

// placeTime and placePart bound the time for placing a key. It may take at most placeTime, and at
// most 1/placePart of the time limit of the request, because the request needs most of the time. If
// placing takes longer, for example because the cluster has no quorum, the key is not placed.
const (
	placeTime = 2 * time.Second
	placePart = 4
	grantTime = 10 * time.Second // time limit for granting the permissions of a role
)

// Placement places keys of one cluster. It connects to etcd directly, and not through gateways.
type Placement struct {
	client  *clientv3.Client // client that connects directly to etcd
	store   placement.Store
	cluster uint64
}

// known has the keys of each cluster that are placed or that cannot be placed.
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

// Follow makes the placement use other members of the cluster.
func (p *Placement) Follow(endpoints []string) {
	if !slices.Equal(endpoints, p.client.Endpoints()) {
		p.client.SetEndpoints(endpoints...)
	}
}

// Close closes the connection. Placed keys stay placed.
func (p *Placement) Close() { p.client.Close() }

// Place places a key, if it is not placed yet and can be placed. If the same key is being placed by
// another call, Place waits.
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

// letWrite gives a role the permissions that a client of a gateway needs to write (docs/etcd.md,
// "Where etcd looks at who asks").
func (p *Placement) letWrite(ctx context.Context, role string) error {
	return p.grant(ctx, role, clientv3.PermissionType(clientv3.PermRead), p.store.Prefix+"placed/", p.store.Prefix+"sessions/")
}

// LetUse gives a role the permissions that a program without a gateway needs (docs/etcd.md,
// "Without a gateway").
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

// keysOf returns the keys that a request names singly, and not as part of a range.
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

// slotLine is the fixed length of a line in the file of slots. So processes can take one line after
// the other.
const slotLine = 80

// WriteSlots writes unused slots to a file, for NextSlot.
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

// NextSlot returns the next slot of a file. It returns each slot only once, even if several
// processes call it.
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
