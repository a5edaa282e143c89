package guarded

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/reserved"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Config configures a Server. Fields that may be nil say so.
type Config struct {
	// Etcd gets the clients' requests, with their identity: interceptors in between must not add
	// the gateway's own user name.
	Etcd      pb.KVClient
	Slots     Slots
	Directory Directory
	Sessions  Sessions
	Newest    Newest
	Codec     Codec
	Seals     Seals
	Runtime   Runtime
	Observer  Observer // may be nil
	Evictor   Evictor  // may be nil

	// Prefix is the prefix of all of the gateways' own keys in etcd.
	Prefix string
	// Reserved are further prefixes of keys that clients must not see, such as those of the
	// controllers' keys. Keys that begin with Prefix are reserved, too.
	Reserved []string
	// MaxTxnOps and MaxRequestBytes limit a client's transaction and write, like etcd's flags of
	// these names. Set them for an etcd whose own limits are higher by MoreTxnOps and
	// MoreRequestBytes, the parts that a gateway adds to writes. 0: etcd's limits apply, and
	// clients get a little less.
	MaxTxnOps, MaxRequestBytes int
	// Excluded selects placed keys whose reads the network must not answer; nil: only Health.
	Excluded func(key string) bool
	// Patience is the time for which a gateway tries a write before it sends the write to etcd, if
	// the client waits that long; 0: DefaultPatience, below 0: no limit.
	Patience time.Duration
	// Open reports whether the network may answer reads: it must return false if etcd would have
	// checked the caller's identity. nil: always.
	Open func() bool
}

// How much larger etcd's limits must be than the clients', so that clients have the same limits
// through a gateway as at etcd itself. A gateway may read the key of each operation in a
// transaction again, and a request may contain its keys up to four times.
const (
	MoreTxnOps       = 160
	MoreRequestBytes = 512 << 10
)

// DefaultPatience is longer than it takes for a dead gateway's session to run out and its guards to
// be broken.
const DefaultPatience = 15 * time.Second

// Health reports whether a key is read only to test whether etcd answers. Kubernetes' API servers
// do that with /registry/health, which does not exist, several times a second.
func Health(key string) bool { return key == "/registry/health" }

// Server is the key-value service. It is safe for concurrent use.
type Server struct {
	Config
	// header of etcd's newest answer, with etcd's identity
	header atomic.Pointer[pb.ResponseHeader]
	number atomic.Uint64 // number of the last guard
	// number of operations that etcd is known to accept in a transaction
	taken    atomic.Int64
	queues   queues
	left     *left
	reserved reserved.Keys // hidden from clients

	mu         sync.Mutex
	populating map[string]bool // keys that a reader is putting into their slots
	breaking   map[string]bool // keys whose guard a reader has seen, and checks again
	learning   map[string]bool // unknown sealing keys that etcd is being asked for
	forged     map[wire.Key]forged
}

var _ pb.KVServer = (*Server)(nil)

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Evictor == nil {
		cfg.Evictor = nobody{}
	}
	if cfg.Excluded == nil {
		cfg.Excluded = Health
	}
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Open == nil {
		cfg.Open = func() bool { return true }
	}
	return &Server{Config: cfg, reserved: reserved.With(append(slices.Clone(cfg.Reserved), cfg.Prefix)...),
		queues: newQueues(), left: newLeft(), populating: map[string]bool{}, breaking: map[string]bool{},
		learning: map[string]bool{}, forged: map[wire.Key]forged{}}
}

// saw records the header of an answer from etcd.
func (s *Server) saw(h *pb.ResponseHeader) {
	if h == nil {
		return
	}
	if old := s.header.Load(); old == nil || old.MemberId != h.MemberId || old.RaftTerm != h.RaftTerm ||
		old.ClusterId != h.ClusterId {
		s.header.Store(&pb.ResponseHeader{ClusterId: h.ClusterId, MemberId: h.MemberId, RaftTerm: h.RaftTerm})
	}
	s.Newest.Saw(h.Revision)
}

// Put implements pb.KVServer.
func (s *Server) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	w, err := s.plan(&pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}})
	if err != nil {
		return nil, err
	}
	answer, header, err := s.write(ctx, w)
	if err != nil {
		return nil, err
	}
	put := answer.GetResponsePut()
	put.Header = header
	return put, nil
}

// DeleteRange implements pb.KVServer.
func (s *Server) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	w, err := s.plan(&pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}})
	if err != nil {
		return nil, err
	}
	answer, header, err := s.write(ctx, w)
	if err != nil {
		return nil, err
	}
	deleted := answer.GetResponseDeleteRange()
	deleted.Header = header
	return deleted, nil
}

// Txn implements pb.KVServer.
func (s *Server) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	w, err := s.plan(&pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}})
	if err != nil {
		return nil, err
	}
	if len(w.spans) == 0 { // it only reads
		answer, err := s.Etcd.Txn(ctx, w.op.GetRequestTxn())
		if err != nil {
			return nil, err
		}
		s.saw(answer.Header)
		return w.answer(&pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: answer}}).GetResponseTxn(), nil
	}
	answer, header, err := s.write(ctx, w)
	if err != nil {
		return nil, err
	}
	txn := answer.GetResponseTxn()
	txn.Header = header
	return txn, nil
}

// Compact implements pb.KVServer. The network has only the present state, which is never compacted.
func (s *Server) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	answer, err := s.Etcd.Compact(ctx, r)
	if err == nil {
		s.saw(answer.Header)
	}
	return answer, err
}

// encode returns a cell that a slot of a size can hold when it is sealed, or "unfit" if it is too
// large.
func (s *Server) encode(c slotcodec.Cell, size int) []byte {
	b, err := s.Codec.Codec().Encode(c, size-seal.Overhead)
	if err == nil {
		return b
	}
	return []byte{byte(slotcodec.Unfit)}
}

// errPatience: this gateway has tried to execute a write for as long as Patience allows.
var errPatience = errors.New("the write of a key that is in the network could not be done in time")

// errClosed: the gateway is being closed.
var errClosed = errors.New("this gateway is being closed")

// over returns the error with which etcd's server would report that ctx is done.
func over(ctx context.Context) error {
	why := context.Cause(ctx)
	// the Runtime has ended a wait, and will end ctx, too
	if why == nil || errors.Is(why, rpctypes.ErrStopped) {
		why = errClosed
	}
	if errors.Is(why, errPatience) || errors.Is(why, errClosed) {
		return status.Errorf(codes.Unavailable, "etcd-monitor: %v; nothing was written", why)
	}
	return status.FromContextError(ctx.Err()).Err()
}

// placedKey is a placed key that a write may change, with the placement as the write knows it.
type placedKey = placement.Key
