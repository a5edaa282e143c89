package replay

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/netcraq/netcraq/client/etcd/readsource"
)

// Config describes a run.
type Config struct {
	Conn   *grpc.ClientConn
	Trace  []Request
	Export *Export
	Speed  float64       // speed of the replay relative to the recorded speed
	Fill   bool          // whether to put the export's keys before the replay
	Warm   time.Duration // length of the first part of the trace, whose requests are counted separately
	Limit  time.Duration // time limit of one request
}

// Report holds a run's results.
type Report struct {
	Requests map[string]int `json:"requests"` // number of requests by kind
	Failed   map[string]int `json:"failed"`   // number of failed requests by kind
	First    string         `json:"firstError,omitempty"`
	Gets     map[string]int `json:"gets"`   // reads after the warm-up, by who answered
	WarmUp   map[string]int `json:"warmUp"` // reads during the warm-up, by who answered
	// Eligible counts the reads after the warm-up, by whether the network could have answered. If
	// it could not, it gives the reason.
	Eligible map[string]int `json:"eligible"`
	// Network counts the reads that Eligible counts, but only those that the network answered.
	Network map[string]int             `json:"network"`
	Wrong   []string                   `json:"wrong"` // reads that returned a value that was never written
	Late    time.Duration              `json:"lateNanos"`
	Latency map[string][]time.Duration `json:"-"`
}

// state is the known state of a key. It has the values that a read may return.
type state struct {
	mu sync.Mutex
	n  int
	// values that a read may return: the last written value and those of outstanding writes; nil
	// means absent
	current [][]byte
	writing int
	overlap bool // writes were concurrent, so it is unknown which write was the last
	leased  bool
	seen    bool
}

type run struct {
	cfg     Config
	kv      pb.KVClient
	lease   pb.LeaseClient
	maint   pb.MaintenanceClient
	mu      sync.Mutex
	keys    map[string]*state
	report  *Report
	leaseID int64
}

// Run replays a trace. It ends early, with an error, when ctx ends.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	r := &run{cfg: cfg, kv: pb.NewKVClient(cfg.Conn), lease: pb.NewLeaseClient(cfg.Conn),
		maint: pb.NewMaintenanceClient(cfg.Conn), keys: map[string]*state{},
		report: &Report{Requests: map[string]int{}, Failed: map[string]int{}, Gets: map[string]int{},
			WarmUp: map[string]int{}, Eligible: map[string]int{}, Network: map[string]int{},
			Latency: map[string][]time.Duration{}}}
	if cfg.Fill {
		for _, key := range cfg.Export.keys {
			if err := r.write(ctx, Request{Kind: Put, Key: key, Lease: cfg.Export.leased[key]}); err != nil {
				return nil, fmt.Errorf("putting %s of the export: %w", key, err)
			}
		}
	}
	var running sync.WaitGroup
	began := time.Now()
	for _, q := range cfg.Trace {
		at := time.Duration(float64(q.At) / cfg.Speed)
		wait := time.NewTimer(time.Until(began.Add(at)))
		select {
		case <-ctx.Done():
			wait.Stop()
			running.Wait()
			return nil, ctx.Err()
		case <-wait.C:
		}
		if late := time.Since(began) - at; late > r.report.Late {
			r.report.Late = late
		}
		running.Add(1)
		go func() {
			defer running.Done()
			r.one(ctx, q)
		}()
	}
	running.Wait()
	return r.report, nil
}

func (r *run) key(name string) *state {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.keys[name]
	if s == nil {
		s = &state{current: [][]byte{nil}}
		r.keys[name] = s
	}
	return s
}

func (r *run) one(ctx context.Context, q Request) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Limit)
	defer cancel()
	start := time.Now()
	var err error
	switch q.Kind {
	case Get:
		err = r.get(ctx, q)
	case Range:
		_, err = r.kv.Range(ctx, &pb.RangeRequest{Key: []byte(q.Key), RangeEnd: end(q.Key), Limit: 500})
	case Put, Delete:
		err = r.write(ctx, q)
	case Grant:
		var granted *pb.LeaseGrantResponse
		if granted, err = r.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600}); err == nil {
			r.mu.Lock()
			r.leaseID = granted.ID
			r.mu.Unlock()
		}
	case Status:
		_, err = r.maint.Status(ctx, &pb.StatusRequest{})
	}
	took := time.Since(start)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Requests[q.Kind]++
	r.report.Latency[q.Kind] = append(r.report.Latency[q.Kind], took)
	if err != nil {
		r.report.Failed[q.Kind]++
		if r.report.First == "" {
			r.report.First = fmt.Sprintf("%s %s: %v", q.Kind, q.Key, err)
		}
	}
}

// end returns the end of the range that contains all keys with a prefix.
func end(prefix string) []byte {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return b[:i+1]
		}
	}
	return []byte{0}
}

// hangsOnLease reports whether a key has an etcd lease. In the recorded cluster, only these keys
// do. Other lease entries in the log are about Kubernetes' Lease objects.
func hangsOnLease(key string) bool {
	return strings.HasPrefix(key, "/registry/masterleases/") || strings.HasPrefix(key, "/registry/events/")
}

func (r *run) write(ctx context.Context, q Request) error {
	s := r.key(q.Key)
	s.mu.Lock()
	var value []byte
	op := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{
		Key: []byte(q.Key)}}}
	if q.Kind == Put {
		s.n++
		value = r.cfg.Export.Value(q.Key, s.n, q.Bytes)
		put := &pb.PutRequest{Key: []byte(q.Key), Value: value}
		if hangsOnLease(q.Key) {
			s.leased = true
			r.mu.Lock()
			put.Lease = r.leaseID
			r.mu.Unlock()
		}
		op = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
	}
	s.current = append(s.current, value)
	s.overlap = s.overlap || s.writing > 0
	s.writing++
	s.mu.Unlock()
	_, err := r.kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing--
	s.overlap = s.overlap || err != nil // the write may be executed now or later
	switch {
	case s.writing > 0:
	case s.overlap && err == nil:
		// The list keeps all values until it is reset by a write without a concurrent write.
		s.overlap = false
	case !s.overlap:
		s.current = s.current[len(s.current)-1:]
	}
	return err
}

func (r *run) get(ctx context.Context, q Request) error {
	s := r.key(q.Key)
	s.mu.Lock()
	before := append([][]byte{}, s.current...)
	leased, seen, never := s.leased, s.seen, s.n == 0
	s.seen = true
	s.mu.Unlock()
	var header metadata.MD
	answer, err := r.kv.Range(metadata.AppendToOutgoingContext(ctx, readsource.Header, "?"),
		&pb.RangeRequest{Key: []byte(q.Key)}, grpc.Header(&header))
	if err != nil {
		return err
	}
	var got []byte
	if len(answer.Kvs) == 1 {
		got = answer.Kvs[0].Value
	}
	s.mu.Lock()
	right := false
	for _, v := range append(before, s.current...) {
		right = right || bytes.Equal(v, got) && (v == nil) == (got == nil)
	}
	s.mu.Unlock()
	who := strings.Join(header.Get(readsource.Header), " ")
	if who == "" {
		who = "etcd"
	}
	could := "eligible"
	switch {
	case q.Key == "/registry/health":
		could = "the health key: read to see whether etcd answers"
	case never:
		could = "has never existed: read for the store's revision alone"
	case leased:
		could = "hangs on a lease: etcd deletes it by itself"
	case !seen:
		could = "read for the first time"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !right && len(r.report.Wrong) < 100 {
		r.report.Wrong = append(r.report.Wrong, fmt.Sprintf("%s: %d bytes, answered by %s", q.Key, len(got), who))
	}
	if q.At < r.cfg.Warm {
		r.report.WarmUp[who]++
		return nil
	}
	r.report.Gets[who]++
	r.report.Eligible[could]++
	if who == readsource.Network {
		r.report.Network[could]++
	}
	return nil
}
