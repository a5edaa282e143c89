package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/netcraq/netcraq/internal/etcdversion"
)

// etcd's answer to a progress request names a revision that all watches of the stream have reached.
// This is only true if the member sends its answers in order ([etcdversion.OrdersProgress]). To any
// other member the gateway sends no progress requests of its own. It then also concludes nothing
// from the answers to clients' requests.

const (
	versionWait   = time.Second            // timeout for a member's answer
	versionPause  = 10 * time.Second       // pause after a failed query for a version
	reachInterval = 500 * time.Millisecond // interval of queries while etcd does not answer
	reachWarning  = time.Second            // time without an answer after which the gateway logs a warning
)

// memberVersions knows the versions of etcd's members.
type memberVersions struct {
	endpoints func() []string
	status    func(ctx context.Context, endpoint string) (*pb.StatusResponse, error)
	log       *slog.Logger

	mu     sync.Mutex
	known  map[uint64]memberVersion // versions by the members' ID
	warned map[string]bool          // logged warnings, by endpoint and version
}

// memberVersion is the version of a member, or the error of querying it.
type memberVersion struct {
	orders bool
	asked  time.Time
	failed bool
}

func newMemberVersions(u *Upstream, log *slog.Logger) *memberVersions {
	return &memberVersions{endpoints: u.endpoints, status: u.status, log: log, known: map[uint64]memberVersion{},
		warned: map[string]bool{}}
}

// orders reports whether an etcd member sends its answers in order. The answer holds for the
// process that has run the member since the given time. orders queries the member with ctx's
// metadata, because etcd may require a user.
func (v *memberVersions) orders(ctx context.Context, member uint64, since time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[member]; k.asked.After(since) && (!k.failed || time.Since(k.asked) < versionPause) {
		return k.orders
	}
	k := memberVersion{asked: time.Now()}
	endpoint, version, err := etcdversion.OfMember(ctx, member, v.endpoints(), v.status)
	if k.failed = err != nil; k.failed {
		v.log.Debug("asking for the version of etcd's members", "error", err)
	} else {
		k.orders = v.judge(endpoint, version)
	}
	v.known[member] = k
	return k.orders
}

// judge reports whether members of a version send their answers in order. If they do not, it logs a
// warning, but only once for each endpoint and version. The caller holds mu.
func (v *memberVersions) judge(endpoint, version string) bool {
	if etcdversion.OrdersProgress(version) {
		return true
	}
	if at := endpoint + " " + version; !v.warned[at] {
		v.warned[at] = true
		v.log.Warn("this version of etcd may announce a watch's progress before its events (etcd issue 15220), "+
			"so equal watches that begin in the past are shared only after their first event; use etcd "+
			etcdversion.ProgressSince+", or later", "endpoint", endpoint, "version", version)
	}
	return false
}

// Reach waits until etcd answers or the gateway ends. It logs a warning if etcd does not answer.
// Afterwards it logs a warning for each member that is too old.
func (g *Gateway) Reach() {
	began, warned := time.Now(), false
	for {
		err := g.upstream.Answers(g.stopping)
		if g.stopping.Err() != nil {
			return
		}
		if err == nil {
			break
		}
		if !warned && time.Since(began) >= reachWarning {
			warned = true
			g.log.Warn("etcd does not answer; clients' requests wait until it does", "endpoints",
				strings.Join(g.upstream.endpoints(), ","), "error", err)
		}
		select {
		case <-g.stopping.Done():
			return
		case <-time.After(reachInterval):
		}
	}
	if warned {
		g.log.Info("etcd answers", "endpoints", strings.Join(g.upstream.endpoints(), ","))
	}
	for _, endpoint := range g.upstream.endpoints() {
		if s, err := g.upstream.statusAsSelf(g.stopping, endpoint); err == nil {
			g.hub.versions.mu.Lock()
			g.hub.versions.judge(endpoint, s.Version)
			g.hub.versions.mu.Unlock()
		}
	}
}

// Answers queries etcd's status once. It does not wait for a connection that cannot be made. It
// returns an error if no member answers. A refusal counts as an answer.
func (u *Upstream) Answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	_, err := pb.NewMaintenanceClient(u.Conn()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable:
		return errors.New(s.Message())
	case codes.DeadlineExceeded, codes.Canceled:
		return errors.New("it did not answer within " + versionWait.String())
	}
	return nil
}

// status queries the status of a member with ctx's metadata.
func (u *Upstream) status(ctx context.Context, endpoint string) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, versionWait)
	defer cancel()
	return pb.NewMaintenanceClient(u.Conn()).Status(toMember(ctx, endpoint), &pb.StatusRequest{})
}

// ordersProgress reports whether etcd's answers on the client's own stream are in order. It may
// query etcd, so the caller must not hold locks.
func (s *watchStream) ordersProgress() bool {
	if s.ordered.Load() {
		return true
	}
	s.mu.Lock()
	header, _ := field(s.sample.bytes, headerField, protowire.BytesType)
	since := s.since
	s.mu.Unlock()
	_, member := field(header, memberField, protowire.VarintType)
	if member == 0 || !s.hub.versions.orders(metadata.NewOutgoingContext(s.g.stopping, s.metadata), member, since) {
		return false
	}
	s.ordered.Store(true)
	return true
}
