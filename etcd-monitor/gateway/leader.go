package gateway

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Writes go directly to the leading member of etcd. If another member gets a write, it forwards the
// write to the leader and learns of the result later than the leader.
//
// The gateway determines the leader by separate queries, so its knowledge may be outdated. A write
// then makes only the extra hop that it would make without this knowledge. Nothing else depends on
// the knowledge. Every second the gateway asks a member whether it leads. It believes a "yes" only
// if the answer comes within another second. So a stopped or disconnected leader soon gets no more
// writes than other members.
const (
	leaderEvery   = time.Second            // interval between two queries
	leaderSoonest = 100 * time.Millisecond // minimum interval between two queries, used after a failed write
	leaderWait    = time.Second            // timeout of a query
	leaderRefused = time.Minute            // interval between two queries if etcd refuses to answer
)

// leaderFinder determines which of etcd's members leads.
type leaderFinder struct {
	endpoints func() []string
	// leads asks a member whether it leads. refused means that the member refuses to answer the
	// gateway.
	leads func(ctx context.Context, endpoint string) (yes, refused bool, err error)
	log   *slog.Logger

	known atomic.Pointer[string] // endpoint of the leader, or nil
	wake  chan struct{}
	said  string // last message in the log
}

func newLeaderFinder(log *slog.Logger, endpoints func() []string,
	leads func(ctx context.Context, endpoint string) (yes, refused bool, err error)) *leaderFinder {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &leaderFinder{endpoints: endpoints, leads: leads, log: log, wake: make(chan struct{}, 1)}
}

// leader returns the endpoint of the leader, or "" if it is not known. On a nil finder it returns
// "".
func (f *leaderFinder) leader() string {
	if f == nil {
		return ""
	}
	if at := f.known.Load(); at != nil {
		return *at
	}
	return ""
}

// doubt makes the gateway query the leader soon, because a write to the leader has failed.
func (f *leaderFinder) doubt() {
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run queries the members until ctx ends.
func (f *leaderFinder) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		next := leaderEvery
		if f.look(ctx) {
			next = leaderRefused
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
			continue
		case <-f.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(leaderSoonest - time.Since(began)):
		}
	}
}

// look queries the members once, beginning with the last known leader. refused reports whether etcd
// refuses to answer.
func (f *leaderFinder) look(ctx context.Context) (refused bool) {
	all := f.endpoints()
	if len(all) < 2 { // a single member is the leader
		f.known.Store(nil)
		return false
	}
	if was := f.leader(); was != "" {
		if i := slices.Index(all, was); i < 0 {
			f.known.Store(nil)
		} else {
			all = slices.Concat([]string{was}, all[:i], all[i+1:])
		}
	}
	for _, endpoint := range all {
		asking, cancel := context.WithTimeout(ctx, leaderWait)
		yes, refused, err := f.leads(asking, endpoint)
		cancel()
		if yes {
			f.known.Store(&endpoint)
			f.tell(slog.LevelInfo, "writes go to the member that leads", "endpoint", endpoint)
			return false
		}
		if endpoint == f.leader() {
			f.known.Store(nil) // no leader is known until another member says that it leads
		}
		if refused {
			f.tell(slog.LevelWarn, "etcd does not say which member leads: writes go to all in turn (where its authentication is enabled, give --user and --password-file)", "error", err)
			return true
		}
		if err != nil && ctx.Err() == nil {
			f.log.Debug("asking whether a member leads", "endpoint", endpoint, "error", err)
		}
	}
	return false
}

// tell logs a message, unless the last message was the same.
func (f *leaderFinder) tell(level slog.Level, what string, more ...any) {
	said := what
	if level == slog.LevelInfo {
		said += f.leader()
	}
	if said != f.said {
		f.said = said
		f.log.Log(context.Background(), level, what, more...)
	}
}

// leads asks a member whether it leads.
func (u *Upstream) leads(ctx context.Context, endpoint string) (yes, refused bool, err error) {
	r, err := u.statusAsSelf(ctx, endpoint)
	return err == nil && r.Leader != 0 && r.Leader == r.GetHeader().GetMemberId(), isRefusal(err), err
}

// statusAsSelf asks a member for its status. It uses the gateway's own user if a user is configured
// and etcd requires one.
func (u *Upstream) statusAsSelf(ctx context.Context, endpoint string) (*pb.StatusResponse, error) {
	ask := func() (*pb.StatusResponse, error) {
		as := ctx
		if token := u.token.Load(); token != nil {
			as = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token)
		}
		return u.status(as, endpoint)
	}
	r, err := ask()
	if !isRefusal(err) || u.user == "" {
		return r, err
	}
	a, err := pb.NewAuthClient(u.Conn()).Authenticate(toMember(ctx, endpoint), &pb.AuthenticateRequest{Name: u.user,
		Password: u.password})
	if err != nil {
		return nil, err
	}
	u.token.Store(&a.Token)
	return ask()
}

// isRefusal reports whether an error says that the caller lacks a permission.
func isRefusal(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	}
	return false
}

// Leader returns the endpoint of the leader, which gets all writes. If it is "", the leader is
// unknown or this feature is disabled. Writes then go to all members in turn.
func (u *Upstream) Leader() string { return u.leader.leader() }
