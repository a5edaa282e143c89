package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-semver/semver"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/controlplane/leadership"
)

// An existing etcd also contains other programs' data. So a dev server keeps its own state under
// sharedPrefix, which only it uses. Only one dev server at a time may use an etcd, because with two
// gateways that know different placed keys, reads could be stale. The key sharedOwner identifies
// that server while its lease lives.
const (
	sharedPrefix   = "/netcraq-dev/"
	sharedOwner    = "/netcraq-dev:owner"
	sharedReserved = "/netcraq-dev" // common prefix of sharedPrefix and sharedOwner

	etcdWait        = 5 * time.Second // timeout for the etcd's answer
	ownerTTLSeconds = 10
)

// oldestEtcd is the oldest release of etcd that the gateway works with.
var oldestEtcd = semver.Version{Major: 3, Minor: 4}

// sharedEtcd is an existing etcd that this server has reserved for itself.
type sharedEtcd struct {
	client  *clientv3.Client
	session *concurrency.Session
}

// openSharedEtcd checks that the server can use an existing etcd, and reserves the etcd for this
// server.
func openSharedEtcd(ctx context.Context, address leadership.Etcd) (*sharedEtcd, error) {
	at := strings.Join(address.Endpoints, ",")
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	client, err := address.Connect(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	s := &sharedEtcd{client: client}
	if err := s.check(ctx, address.Endpoints); err != nil {
		s.close()
		return nil, fmt.Errorf("--etcd %s: %w", at, err)
	}
	if err := s.reserve(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("--etcd %s: %w", at, unusable(err))
	}
	return s, nil
}

// check returns an error if an endpoint does not answer or is too old. It also returns an error if
// another NetCRAQ keeps its state in the etcd.
func (s *sharedEtcd) check(ctx context.Context, endpoints []string) error {
	for _, endpoint := range endpoints {
		found, err := s.client.Status(ctx, endpoint)
		if err != nil {
			return unusable(err)
		}
		version, err := semver.NewVersion(found.Version)
		if err != nil {
			return fmt.Errorf("%s says that its version is %q, so it is not an etcd", endpoint, found.Version)
		}
		if version.LessThan(oldestEtcd) {
			return fmt.Errorf("%s is etcd %s, and netcraq dev needs %d.%d or later. Update it, or leave --etcd out",
				endpoint, found.Version, oldestEtcd.Major, oldestEtcd.Minor)
		}
	}
	for _, prefix := range []string{sharedPrefix, statePrefix} {
		r, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		switch {
		case isDenied(err):
			return errors.New("it is a NetCRAQ gateway, because it hides keys as one does. Pass the etcd's own address")
		case err != nil:
			return unusable(err)
		case prefix == statePrefix && r.Count > 0:
			return otherNetcraq(r.Count)
		}
	}
	return nil
}

func otherNetcraq(keys int64) error {
	return fmt.Errorf("another NetCRAQ uses it: there are %d keys under %s. Pass another etcd. If that NetCRAQ is gone, "+
		"remove what it left: etcdctl del --prefix %s", keys, statePrefix, statePrefix)
}

// reserve makes this server the only one that uses the etcd, and removes the state of an earlier
// server. Both happen in one transaction, which fails if another NetCRAQ has begun to use the etcd
// meanwhile.
func (s *sharedEtcd) reserve(ctx context.Context) (err error) {
	lease, err := s.client.Grant(ctx, ownerTTLSeconds)
	if err != nil {
		return err
	}
	s.session, err = concurrency.NewSession(s.client, concurrency.WithLease(lease.ID),
		concurrency.WithTTL(ownerTTLSeconds))
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	r, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(sharedOwner), "=", 0),
			clientv3.Compare(clientv3.CreateRevision(statePrefix), "=", 0).WithPrefix()).
		Then(clientv3.OpDelete(sharedPrefix, clientv3.WithPrefix()),
			clientv3.OpPut(sharedOwner, fmt.Sprintf("process %d of %s", os.Getpid(), host), clientv3.WithLease(lease.ID))).
		Else(clientv3.OpGet(sharedOwner), clientv3.OpGet(statePrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())).
		Commit()
	switch {
	case err != nil:
		return err
	case r.Succeeded:
		return nil
	}
	if owner := r.Responses[0].GetResponseRange(); len(owner.Kvs) > 0 {
		return fmt.Errorf("another netcraq dev uses it (%q). Stop that one, or pass another etcd. "+
			"If it was killed, wait %d s", owner.Kvs[0].Value, ownerTTLSeconds)
	}
	return otherNetcraq(count(r.Responses[1]))
}

func count(r *etcdserverpb.ResponseOp) int64 { return r.GetResponseRange().Count }

func isDenied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || status.Code(err) == codes.PermissionDenied
}

// unusable adds advice to an error from etcd.
func unusable(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable:
		return fmt.Errorf("it does not answer: %w. Is it running, is the address right, and does it need --etcd-cacert or --etcd-cert?", err)
	case errors.Is(err, rpctypes.ErrUserEmpty) || isDenied(err):
		return fmt.Errorf("its authentication is enabled (%w), and netcraq dev has no user. Pass another etcd, or run "+
			"etcd-monitor, which can sign in", err)
	}
	return err
}

// over returns a channel that is closed when this server could not renew its lease in time. Another
// server may then have reserved the etcd.
func (s *sharedEtcd) over() <-chan struct{} { return s.session.Done() }

// close removes the server's state, and releases the etcd for other servers.
func (s *sharedEtcd) close() {
	ctx, cancel := context.WithTimeout(context.Background(), etcdGrace)
	defer cancel()
	if s.session != nil {
		_, _ = s.client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(sharedOwner), "=", s.session.Lease())).
			// If this fails, the next server removes the state.
			Then(clientv3.OpDelete(sharedPrefix, clientv3.WithPrefix())).Commit()
		_ = s.session.Close()
	}
	_ = s.client.Close()
}
