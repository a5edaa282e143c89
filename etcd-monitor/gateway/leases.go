package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/client/etcd/etcderrors"
)

// The gateway hides leases of reserved keys from clients, for example a gateway's session or the
// lease of the leading controller. A hidden lease is not listed. If a client names it, the lease
// does not exist. Otherwise a client could end a session, or keep a dead gateway's session alive so
// that its guards stay.

// leaseMethods handle single requests about leases. Such a function returns an answer in etcd's
// place, or nil to let the gateway forward the request.
var leaseMethods = map[string]func(g *Gateway, ctx context.Context, request []byte) (message, error){
	"/etcdserverpb.Lease/LeaseRevoke":     (*Gateway).revokeReserved,
	"/etcdserverpb.Lease/LeaseTimeToLive": (*Gateway).timeToLiveReserved,
}

const (
	leasesMethod    = "/etcdserverpb.Lease/LeaseLeases"
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
)

// message is the interface of etcd's answers.
type message interface{ Marshal() ([]byte, error) }

func (g *Gateway) revokeReserved(ctx context.Context, request []byte) (message, error) {
	var q pb.LeaseRevokeRequest
	if q.Unmarshal(request) != nil {
		return nil, nil // etcd will report the error
	}
	own, err := g.ownsLease(ctx, q.ID)
	if err == nil && own {
		err = rpctypes.ErrGRPCLeaseNotFound
	}
	return nil, err
}

func (g *Gateway) timeToLiveReserved(ctx context.Context, request []byte) (message, error) {
	var q pb.LeaseTimeToLiveRequest
	if q.Unmarshal(request) != nil {
		return nil, nil
	}
	own, err := g.ownsLease(ctx, q.ID)
	if err != nil || !own {
		return nil, err
	}
	// The client gets etcd's answer for lease 0, which never exists.
	a, err := pb.NewLeaseClient(g.upstream.Conn()).LeaseTimeToLive(outgoing(ctx),
		&pb.LeaseTimeToLiveRequest{Keys: q.Keys})
	if err != nil {
		return nil, err
	}
	a.ID = q.ID
	return a, nil
}

// withoutReservedLeases removes the reserved leases from etcd's list of leases.
func (g *Gateway) withoutReservedLeases(ctx context.Context, answer []byte) ([]byte, error) {
	var r pb.LeaseLeasesResponse
	if err := r.Unmarshal(answer); err != nil {
		return nil, fmt.Errorf("gateway: etcd's list of leases: %w", err)
	}
	own, err := g.ownLeases(ctx)
	if err != nil {
		return nil, err
	}
	r.Leases = slices.DeleteFunc(r.Leases, func(l *pb.LeaseStatus) bool { return own[l.ID] })
	if answer, err = r.Marshal(); err != nil {
		return nil, fmt.Errorf("gateway: etcd's list of leases: %w", err)
	}
	return answer, nil
}

// leaseFilter hides the reserved leases from one stream of keep-alives.
type leaseFilter struct {
	g     *Gateway
	known map[int64]bool // whether each lease that the stream has named is reserved
}

// refused returns the answer to a client that keeps a reserved lease alive. It returns nil if the
// lease is not reserved.
func (f *leaseFilter) refused(ctx context.Context, id int64) (pieces, error) {
	if len(f.g.reserved.Prefixes()) == 0 {
		return nil, nil
	}
	own, known := f.known[id]
	if !known {
		var err error
		if own, err = f.g.ownsLease(ctx, id); err != nil {
			return nil, err
		}
		f.known[id] = own
	}
	if !own {
		return nil, nil
	}
	// etcd gives the same answer for a lease that does not exist
	b, err := (&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{Revision: f.g.newest.Revision()}, ID: id}).
		Marshal()
	if err != nil {
		return nil, fmt.Errorf("gateway: answering a keep-alive of a lease: %w", err)
	}
	return pieces{b}, nil
}

// ownsLease reports whether a reserved key is attached to a lease. It queries etcd as the gateway's
// own user.
func (g *Gateway) ownsLease(ctx context.Context, id int64) (bool, error) {
	if g.asSelf == nil || id == 0 {
		return false, nil
	}
	r, err := g.asSelf.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys())
	switch {
	case etcderrors.Code(err) == codes.PermissionDenied: // the lease also has keys that the gateway's user may not read
		leases, err := g.ownLeases(ctx)
		return leases[id], err
	case err != nil:
		return false, g.notKnown(err)
	}
	return slices.ContainsFunc(r.Keys, func(key []byte) bool { return g.reserved.Has(string(key)) }), nil
}

// ownLeases returns the leases that have reserved keys.
func (g *Gateway) ownLeases(ctx context.Context) (map[int64]bool, error) {
	own := map[int64]bool{}
	if g.asSelf == nil {
		return own, nil
	}
	for _, p := range g.reserved.Prefixes() {
		r, err := g.asSelf.Get(ctx, p, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return nil, g.notKnown(err)
		}
		for _, kv := range r.Kvs {
			own[kv.Lease] = true
		}
	}
	return own, nil
}

// notKnown returns the client's error if the gateway could not learn from etcd which leases are
// reserved.
func (g *Gateway) notKnown(err error) error {
	code := etcderrors.Code(err)
	if code == codes.PermissionDenied {
		return status.Errorf(codes.Unavailable, "etcd-monitor: which leases are NetCRAQ's own is not known: grant the gateway's --user to read all that begins with %s", strings.Join(g.reserved.Prefixes(), ", "))
	}
	if code == codes.Unknown {
		code = codes.Unavailable
	}
	return status.Errorf(code, "etcd-monitor: which leases are NetCRAQ's own is not known: %v", err)
}
