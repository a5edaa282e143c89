package guarded

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/seal"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

type gateway struct {
	*world
	id       int
	server   *Server
	dir      *placement.Cache
	seen     int   // changes of the directory that its watch has delivered
	lease    int64 // lease of the gateway's session; 0 if there is none
	newest   int64
	answered int64           // the newest revision in an answer to a client
	ctx      context.Context // ends when the gateway crashes
	crashed  bool
	ring     *seal.Ring // the sealing keys that it knows
}

func (w *world) gateway() *gateway {
	g := &gateway{world: w, id: len(w.gateways) + 1, dir: placement.NewCache(), ctx: context.Background(), ring: w.ring}
	// entries are the placements that exist when the gateway starts.
	entries := map[string]placement.Entry{}
	for _, kv := range w.etcd.find([]byte(placement.Name(simPrefix, "")),
		[]byte(clientv3.GetPrefixRangeEnd(placement.Name(simPrefix, "")))) {
		entries[strings.TrimPrefix(string(kv.Key), placement.Name(simPrefix, ""))] = entryOf(kv)
	}
	g.dir.Reset(w.etcd.revision, entries)
	g.seen = len(w.placing)
	g.server = New(Config{
		Etcd: simKV{g}, Slots: simSlots{w}, Directory: simDirectory{g.dir, g}, Sessions: g, Newest: g,
		Codec: w.codec, Seals: simSeals{g}, Runtime: w, Prefix: simPrefix, Patience: -1,
		Observer: simObserver{w: w}, Evictor: simEvictor{w: w},
		Excluded: func(string) bool { return false },
	})
	leaveOut(g.server, w.without)
	w.gateways = append(w.gateways, g)
	w.spawn(g, func() { g.server.Warm(g.ctx) })
	return g
}

func (g *gateway) Revision() int64    { return g.newest }
func (g *gateway) Saw(revision int64) { g.newest = max(g.newest, revision) }

func (g *gateway) Key(lease int64) string { return fmt.Sprintf("%ssessions/%d", simPrefix, lease) }

func (g *gateway) Current(ctx context.Context) (int64, error) {
	for g.lease == 0 {
		g.leases++
		lease := g.leases
		ok := g.send(func() { g.etcd.doTxn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp(g.Key(lease), "")}}) })
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if ok && g.lease == 0 {
			g.lease = lease
			g.note("gateway %d has session %d", g.id, lease)
		}
	}
	return g.lease, nil
}

func (g *gateway) GiveUp(lease int64) {
	if g.lease != lease {
		return
	}
	g.note("gateway %d gives up session %d", g.id, lease)
	g.lease = 0
	g.Go(func() {
		for !g.send(func() { g.etcd.doTxn(deleteTxn(g.Key(lease), "")) }) {
		}
	})
}

func putOp(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key),
		Value: []byte(value)}}}
}

func deleteTxn(key, end string) *pb.TxnRequest {
	return &pb.TxnRequest{
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key),
				RangeEnd: []byte(end)}}}},
	}
}

// simObserver counts events of the gateways.
type simObserver struct {
	nobody
	w *world
}

func (o simObserver) Hit()    { o.w.hits++ }
func (o simObserver) Forged() { o.w.forged++ }

// simEvictor makes placement remove keys whose slots are forged.
type simEvictor struct {
	nobody
	w *world
}

func (e simEvictor) Evict(k placement.Key, fault placement.Fault, _ string) {
	if out := e.w.evict[wire.Key(k.ID)]; out != nil && fault == placement.Forged {
		close(out)
		delete(e.w.evict, wire.Key(k.ID))
	}
}

// simSeals are the sealing keys that a gateway knows.
type simSeals struct{ g *gateway }

func (s simSeals) Ring() *seal.Ring { return s.g.ring }

func (s simSeals) Want(_ context.Context, id uint32) (bool, error) {
	var there *seal.Ring
	if !s.g.send(func() { there = s.g.world.ring }) {
		return false, s.g.unanswered()
	}
	s.g.ring = there
	return there.Knows(id), nil
}

// crash ends a gateway. Messages that it has sent may still arrive.
func (w *world) crash(g *gateway) {
	w.note("gateway %d crashes", g.id)
	g.crashed = true
	for _, t := range slices.Clone(w.tasks) {
		if t.gw != g {
			continue
		}
		if t.inFlight != nil && w.chance(0.7) {
			w.late = append(w.late, t.inFlight)
		}
		w.kill(t)
	}
	for _, o := range w.history {
		if o.gw == g && o.end == 0 {
			o.lost = true
		}
	}
	w.gateways = slices.DeleteFunc(w.gateways, func(x *gateway) bool { return x == g })
	n := w.gateway()
	n.id = g.id + 10
}

// simDirectory is the cache of the directory. It is refreshed from the simulator's etcd.
type simDirectory struct {
	*placement.Cache
	g *gateway
}

func (d simDirectory) Refresh(ctx context.Context) error {
	entries := map[string]placement.Entry{}
	var revision int64
	ok := d.g.send(func() {
		clear(entries)
		name := placement.Name(simPrefix, "")
		for _, kv := range d.g.etcd.find([]byte(name), []byte(clientv3.GetPrefixRangeEnd(name))) {
			entries[strings.TrimPrefix(string(kv.Key), name)] = entryOf(kv)
		}
		revision = d.g.etcd.revision
	})
	if !ok {
		return d.g.unanswered()
	}
	d.Reset(revision, entries)
	return nil
}

// ask sends a request to etcd. Sometimes etcd refuses it, and sometimes the answer is lost.
func ask[A any](g *gateway, do func() (A, error)) (answer A, err error) {
	if g.chance(g.faults / 10) {
		err := refusals[g.r.IntN(len(refusals))]
		do = func() (A, error) { return *new(A), err }
	}
	// If the request arrives late, its answer goes into this variable, which is dropped.
	var got struct {
		answer A
		err    error
	}
	if !g.send(func() { got.answer, got.err = do() }) {
		return answer, g.unanswered()
	}
	return got.answer, got.err
}

// refusals are etcd's errors for a request that it has not executed and never will.
var refusals = []error{
	rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCRequestTooLarge,
	rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken,
	rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCNotCapable,
}

// silences are errors that do not say whether the request was executed. etcd returns such an error
// if it has proposed the request and does not know the result. gRPC returns one if it has lost the
// connection or cannot accept the answer. The client itself also returns such errors.
var silences = []error{
	rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCTimeoutDueToLeaderFail, rpctypes.ErrGRPCTimeoutDueToConnectionLost,
	rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCStopped, rpctypes.ErrGRPCUnhealthy,
	rpctypes.ErrGRPCCanceled, rpctypes.ErrGRPCDeadlineExceeded, rpctypes.ErrGRPCCorrupt,
	status.Error(codes.Unavailable, "error reading from server: EOF"),
	status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout"),
	status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"),
	status.Error(codes.ResourceExhausted, "grpc: received message larger than max (29 vs. 1)"),
	status.FromContextError(context.Canceled).Err(),
	status.FromContextError(context.DeadlineExceeded).Err(),
}

func (w *world) unanswered() error { return silences[w.r.IntN(len(silences))] }

// slotError returns the error that a client of the switches would return.
func slotError(op wire.Op, id wire.Key, why error, version wire.Version) error {
	return &calls.OpError{Op: op, Key: id, Err: why, Attempts: 1, Version: version,
		OutcomeUnknown: op != wire.Read && why != calls.ErrCASFailed}
}

// simSlots are the simulated slots, as a gateway sees them.
type simSlots struct{ w *world }

func (s simSlots) Size(wire.Key) int { return 64 }

func (s simSlots) Silent(wire.Key) bool { return false }

func (s simSlots) Read(_ context.Context, id wire.Key) (value []byte, version wire.Version, err error) {
	ok := s.w.send(func() {
		err = slotError(wire.Read, id, calls.ErrNotFound, 0)
		if at := s.w.slots[id]; at != nil {
			version = at.version
			if !at.gone {
				value, err = at.value, nil
			}
		}
	})
	if !ok {
		return nil, 0, slotError(wire.Read, id, calls.ErrTimeout, 0)
	}
	return value, version, err
}

// ReadNow implements Slots. No other task runs during it.
func (s simSlots) ReadNow(id wire.Key) (value []byte, version wire.Version, ok bool) {
	at := s.w.slots[id]
	if at == nil || at.gone {
		return nil, 0, false
	}
	return at.value, at.version, true
}

func (s simSlots) CAS(_ context.Context, id wire.Key, expected wire.Version, value []byte) (
	version wire.Version, err error) {
	by := s.w.self.gw.id
	// An attacker can also see cells in the network.
	s.w.seen = append(s.w.seen, sealedFor{id, expected.Sequence() + 1, value})
	ok := s.w.send(func() {
		at := s.w.slots[id]
		switch {
		case at == nil || at.gone && s.w.without != "not found":
			version, err = 0, slotError(wire.CAS, id, calls.ErrNotFound, 0)
		case at.version != expected:
			version, err = 0, slotError(wire.CAS, id, calls.ErrCASFailed, at.version)
		default:
			at.value, at.gone = value, false
			at.version++
			version, err = at.version, nil
			s.w.note("slot %d: %s, version %d, by gateway %d", id, s.w.describe(id, value, at.version), at.version, by)
		}
	})
	if !ok {
		return 0, slotError(wire.CAS, id, calls.ErrTimeout, 0)
	}
	return version, err
}

// describe returns a slot's content in readable form.
func (w *world) describe(id wire.Key, b []byte, version wire.Version) string {
	plain, err := w.judge().open(w.names[id], b, version)
	if err != nil {
		return err.Error()
	}
	c, err := simCodec.c.Decode(plain)
	if err != nil {
		return err.Error()
	}
	switch c.Kind {
	case slotcodec.Value:
		return fmt.Sprintf("value %s of %d", c.Value, c.Mod)
	case slotcodec.Guard:
		return fmt.Sprintf("guard %d of %d", c.Number, c.Lease)
	case slotcodec.Absent:
		return fmt.Sprintf("absent at %d", c.Revision)
	}
	return c.Kind.String()
}

// simKV is a gateway's client of the simulator's etcd.
type simKV struct{ g *gateway }

func (k simKV) Range(_ context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	return ask(k.g, func() (*pb.RangeResponse, error) { return k.g.etcd.Range(r) })
}

func (k simKV) Txn(_ context.Context, t *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	return ask(k.g, func() (*pb.TxnResponse, error) { return k.g.etcd.Txn(t) })
}

func (k simKV) Put(context.Context, *pb.PutRequest, ...grpc.CallOption) (*pb.PutResponse, error) {
	panic("every write is a transaction")
}

func (k simKV) DeleteRange(context.Context, *pb.DeleteRangeRequest, ...grpc.CallOption) (
	*pb.DeleteRangeResponse, error) {
	panic("every write is a transaction")
}

func (k simKV) Compact(context.Context, *pb.CompactionRequest, ...grpc.CallOption) (*pb.CompactionResponse, error) {
	panic("nobody compacts")
}
