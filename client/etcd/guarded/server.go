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

// Config configures a Server. The comment of a field says if it may be nil.
type Config struct {
	// Etcd gets the clients' requests with the clients' identity. Interceptors must not add the
	// gateway's own user name.
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

	// Prefix is the common prefix of all of the gateways' own keys in etcd.
	Prefix string
	// Reserved are further prefixes of keys that clients must not see, for example the prefix of
	// the controllers' keys. Keys that begin with Prefix are also reserved.
	Reserved []string
	// MaxTxnOps and MaxRequestBytes limit a client's transaction and write, like etcd's flags with
	// these names. Set them if etcd's own limits are higher by MoreTxnOps and MoreRequestBytes, for
	// the parts that a gateway adds to writes. With 0, etcd's own limits apply, and clients can use
	// a little less than etcd's limits allow.
	MaxTxnOps, MaxRequestBytes int
	// Excluded selects placed keys whose reads the switches must not answer. If it is nil, Health
	// selects them.
	Excluded func(key string) bool
	// Patience bounds how long a gateway tries to write a placed key under its guard before it
	// returns an error to the client. 0 means DefaultPatience, and a negative value means no limit.
	Patience time.Duration
	// Open reports whether the switches may answer reads. It must return false if etcd would have
	// checked the caller's identity. If Open is nil, they always may.
	Open func() bool
}

// These say by how much etcd's limits must be higher than the clients' limits. Clients then have
// the same limits through a gateway as at etcd itself. A gateway may read the key of each operation
// in a transaction again, and a request may contain its keys up to four times.
const (
	MoreTxnOps       = 160
	MoreRequestBytes = 512 << 10
)

// DefaultPatience is longer than it takes until a dead gateway's session has expired and its guards
// are broken.
const DefaultPatience = 15 * time.Second

// Health reports whether a key is read only to test whether etcd answers. Kubernetes' API servers
// do that with /registry/health, which does not exist, several times a second.
func Health(key string) bool { return key == "/registry/health" }

// Server is the guarded key-value service. It is safe for concurrent use.
type Server struct {
	Config
	// header is the header of etcd's newest answer, which has the identity of etcd's cluster.
	header atomic.Pointer[pb.ResponseHeader]
	number atomic.Uint64 // number of the guard that was made last
	// taken is the number of operations in a transaction that etcd is known to accept.
	taken    atomic.Int64
	queues   queues
	left     *left
	reserved reserved.Keys // keys that are hidden from clients

	mu         sync.Mutex
	populating map[string]bool // keys that a reader is putting into their slots
	breaking   map[string]bool // keys whose guard a reader has seen and is checking again
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
	if len(w.spans) == 0 { // The transaction only reads.
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

// Compact implements pb.KVServer. The switches have only the present state of keys, which
// compaction never removes.
func (s *Server) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	answer, err := s.Etcd.Compact(ctx, r)
	if err == nil {
		s.saw(answer.Header)
	}
	return answer, err
}

// encode returns a cell as bytes. If the sealed cell does not fit into a slot of the given size,
// encode returns a cell of kind "unfit".
func (s *Server) encode(c slotcodec.Cell, size int) []byte {
	b, err := s.Codec.Codec().Encode(c, size-seal.Overhead)
	if err == nil {
		return b
	}
	return []byte{byte(slotcodec.Unfit)}
}

// errPatience means that this gateway could not execute a write within Patience.
var errPatience = errors.New("the write of a key that is in the network could not be done in time")

// errClosed means that the gateway is being closed.
var errClosed = errors.New("this gateway is being closed")

// over returns the error with which etcd's server would report that ctx is done.
func over(ctx context.Context) error {
	why := context.Cause(ctx)
	// The Runtime has ended a wait, and is about to end ctx.
	if why == nil || errors.Is(why, rpctypes.ErrStopped) {
		why = errClosed
	}
	if errors.Is(why, errPatience) || errors.Is(why, errClosed) {
		return status.Errorf(codes.Unavailable, "etcd-monitor: %v; nothing was written", why)
	}
	return status.FromContextError(ctx.Err()).Err()
}

// placedKey is a placed key that a write may change, with the placement that the write knows.
type placedKey = placement.Key
