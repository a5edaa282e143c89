// Package etcdkeys implements a source and a destination for keys in an etcd that begin with a
// prefix.
package etcdkeys

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

// StatePrefix is the prefix of the keys in which a destination stores the state of pipelets.
const StatePrefix = "netcraq.io/pipelets/"

// maxRows is the maximum number of rows in a transaction. By default etcd allows 128 operations,
// and one of them writes the state.
const maxRows = 127

const callTimeout = 5 * time.Second

// These limits bound the answers of an etcd. They are necessary because the pipelet's author
// chooses the etcd's address.
const (
	maxMessage = 64 << 20  // maximum size of an answer, or of one message of a watch, in bytes
	maxListing = 512 << 20 // maximum total size of the keys and values in a listing, in bytes
	pageKeys   = 1000      // number of keys in a page of a listing; fewer if the page would exceed maxMessage
)

// Check reports errors in a specification.
func Check(spec pipeletapi.Etcd) error {
	if len(spec.Endpoints) == 0 || spec.Prefix == "" {
		return errors.New("etcd: endpoints and prefix are needed")
	}
	for _, e := range spec.Endpoints {
		if u, err := url.Parse(e); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("etcd.endpoints: %q is not http://HOST:PORT or https://HOST:PORT", e)
		}
	}
	return nil
}

// connect makes a client for the etcd of a specification.
func connect(spec pipeletapi.Etcd, secrets endpoint.Secrets) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Endpoints:            spec.Endpoints,
		DialTimeout:          callTimeout,
		DialKeepAliveTime:    5 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallRecvMsgSize:   maxMessage,
		Logger:               zap.NewNop(),
	}
	if spec.Secret != "" {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		c, err := endpoint.ReadSecret(ctx, secrets, spec.Secret)
		if err != nil {
			return nil, err
		}
		cfg.Username, cfg.Password, cfg.TLS = c.Username, c.Password, c.TLS
	}
	return clientv3.New(cfg)
}

// fault converts an error of etcd to an exactlyonce.Fault.
func fault(err error, what string) error {
	if err == nil {
		return nil
	}
	kind := exactlyonce.Temporary
	switch code := status.Code(err); {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return exactlyonce.Errorf(exactlyonce.Refused, "%s: the etcd's disk quota is used up: %w", what, err)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge),
		// the client refused the message because it exceeds the client's own limit
		code == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max"):
		kind = exactlyonce.TooLarge
	case code == codes.PermissionDenied, code == codes.Unauthenticated, code == codes.InvalidArgument,
		errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed),
		errors.Is(err, rpctypes.ErrUserEmpty):
		kind = exactlyonce.Refused
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
	return exactlyonce.Errorf(kind, "%s: %w", what, err)
}

// Source reads the existing keys, and then their changes. Records are ordered by revision, and
// within a revision by key. Source does not return versions that were overwritten before the first
// read. It also does not return versions that were overwritten in history that was compacted before
// it was read.
type Source struct {
	spec   pipeletapi.Etcd
	client *clientv3.Client
	watch  clientv3.WatchChan
	cancel context.CancelFunc
	epoch  string               // the cluster's id
	at     exactlyonce.Position // position of the last returned record
	queue  []endpoint.Record    // records after the position at
	gap    string               // describes what is missing before the next record
	// Bytes is the number of bytes of keys and values that came from the etcd.
	Bytes uint64
}

// NewSource makes a source.
func NewSource(spec pipeletapi.Etcd, secrets endpoint.Secrets) (*Source, error) {
	c, err := connect(spec, secrets)
	if err != nil {
		return nil, err
	}
	return &Source{spec: spec, client: c}, nil
}

// Close stops the watch and closes the client.
func (s *Source) Close() error {
	s.stop()
	return s.client.Close()
}

func (s *Source) stop() {
	if s.cancel != nil {
		s.cancel()
	}
	s.watch, s.cancel, s.queue, s.gap = nil, nil, nil, ""
}

// Gap implements endpoint.Gapped.
func (s *Source) Gap() string { return s.gap }

// Read implements endpoint.Source.
func (s *Source) Read(ctx context.Context, from exactlyonce.Position, most int) ([]endpoint.Record,
	exactlyonce.Position, error) {
	if s.watch == nil || s.at != from {
		s.stop()
		if err := s.begin(ctx, from); err != nil {
			s.stop()
			return nil, from, err
		}
	}
	for len(s.queue) == 0 {
		select {
		case r, ok := <-s.watch:
			err := r.Err()
			if !ok && err == nil {
				err = errors.New("it has ended")
			}
			if err != nil {
				compacted := r.CompactRevision != 0
				s.stop()
				if compacted {
					return nil, from, s.list(ctx, from, false)
				}
				return nil, from, fault(err, "watching the source")
			}
			s.take(r.Events, from)
		case <-ctx.Done():
			return nil, from, s.idle(ctx, from)
		}
	}
	n := min(most, len(s.queue))
	out := slices.Clone(s.queue[:n])
	s.at = out[n-1].At
	s.queue = s.queue[n:]
	return out, s.at, nil
}

// idle checks the history when a watch has reported nothing until a deadline. The check is
// necessary because a watch from a revision that a restored etcd does not have yet waits silently.
func (s *Source) idle(ctx context.Context, from exactlyonce.Position) error {
	if from.Seq == 0 || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	err := s.checkHistory(context.WithoutCancel(ctx), from)
	if err != nil {
		s.stop()
	}
	return err
}

// begin continues from a position. From the zero position it begins with the existing keys, and
// otherwise with the history.
func (s *Source) begin(ctx context.Context, from exactlyonce.Position) error {
	if from == (exactlyonce.Position{}) {
		return s.list(ctx, from, true)
	}
	if err := s.checkHistory(ctx, from); err != nil {
		return err
	}
	s.epoch = from.Epoch
	s.follow(from)
	return nil
}

// checkHistory fails if the etcd cannot have had a position. That is so if it is another cluster,
// or was restored from an older snapshot. The check uses a linearizable read, so no member answers
// with an older revision than was read before.
func (s *Source) checkHistory(ctx context.Context, from exactlyonce.Position) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := s.client.Get(ctx, s.spec.Prefix, clientv3.WithCountOnly())
	if err != nil {
		return fault(err, "reading the source")
	}
	return continues(r.Header, from)
}

// continues returns an error if the etcd that sent an answer cannot continue from a position.
func continues(h *etcdserverpb.ResponseHeader, from exactlyonce.Position) error {
	if id := strconv.FormatUint(h.ClusterId, 16); id != from.Epoch {
		return exactlyonce.Errorf(exactlyonce.Refused, "the source is the etcd cluster %s, and what the destination has is of the "+
			"cluster %s: give the pipelet another name to begin anew", id, from.Epoch)
	}
	if now := uint64(h.Revision); now < from.Seq {
		return exactlyonce.Errorf(exactlyonce.Refused, "the source's etcd is at revision %d, and revision %d was read from it before: "+
			"it was restored from an older snapshot. Give the pipelet another name to begin anew; keys that only the "+
			"destination has stay there until you delete them", now, from.Seq)
	}
	return nil
}

// follow starts watching from a position.
func (s *Source) follow(from exactlyonce.Position) {
	ctx, cancel := context.WithCancel(context.Background())
	revision := int64(from.Seq)
	if from.Sub == "" {
		revision++
	}
	s.watch = s.client.Watch(clientv3.WithRequireLeader(ctx), s.spec.Prefix, clientv3.WithPrefix(),
		clientv3.WithRev(revision), clientv3.WithFragment())
	s.cancel, s.at = cancel, from
	// End the watch when its connection ends, so that the next read checks the history first.
	// Otherwise etcd's client would resume the watch by itself, perhaps at a server that was
	// restored from a snapshot.
	go func() {
		s.client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready)
		cancel()
	}()
}

// list queues the existing keys that are newer than the position. It then starts a watch that
// reports later changes.
func (s *Source) list(ctx context.Context, from exactlyonce.Position, fresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, 6*callTimeout)
	defer cancel()
	oldest := int64(from.Seq)
	if from.Sub == "" {
		oldest++
	}
	kvs, header, err := s.pages(ctx, oldest)
	if err != nil {
		return err
	}
	epoch := strconv.FormatUint(header.ClusterId, 16)
	if !fresh {
		if err := continues(header, from); err != nil {
			return err
		}
		s.gap = fmt.Sprintf("the source's history after revision %d was compacted before it was read: the newest values "+
			"have come, and deletions up to revision %d have not. Delete what only the destination has", from.Seq,
			header.Revision)
	}
	events := make([]*clientv3.Event, 0, len(kvs))
	for _, kv := range kvs {
		events = append(events, &clientv3.Event{Type: mvccpb.PUT, Kv: kv})
	}
	s.epoch = epoch
	s.follow(exactlyonce.Position{Epoch: epoch, Seq: uint64(header.Revision)})
	s.take(events, from)
	s.at = from
	return nil
}

// pages reads the keys of the prefix whose revision is at least oldest. It reads them page by page,
// all at the same revision.
func (s *Source) pages(ctx context.Context, oldest int64) (all []*mvccpb.KeyValue, h *etcdserverpb.ResponseHeader,
	err error) {
	end, size := clientv3.GetPrefixRangeEnd(s.spec.Prefix), 0
	key, limit := s.spec.Prefix, int64(pageKeys)
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit)}
		if oldest > 1 { // without this condition, the etcd need not filter each key for each page
			options = append(options, clientv3.WithMinModRev(oldest))
		}
		if h != nil {
			options = append(options, clientv3.WithRev(h.Revision))
		}
		r, err := s.client.Get(ctx, key, options...)
		if status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max") {
			if limit > 1 {
				limit = max(1, limit/10)
				continue
			}
			return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "the first value behind %q in the source is larger than the %d MiB "+
				"that a pipelet takes: %w", key, maxMessage>>20, err)
		}
		if err != nil {
			return nil, nil, fault(err, "listing the source")
		}
		if h == nil {
			h = r.Header
		}
		for _, kv := range r.Kvs {
			size += len(kv.Key) + len(kv.Value)
		}
		if size > maxListing {
			return nil, nil, exactlyonce.Errorf(exactlyonce.Refused, "the keys and values under %q are more than the %d MiB that are "+
				"listed at once: use several pipelets with longer prefixes", s.spec.Prefix, maxListing>>20)
		}
		all = append(all, r.Kvs...)
		if !r.More || len(r.Kvs) == 0 {
			return all, h, nil
		}
		key = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// take queues those events that come after a position.
func (s *Source) take(events []*clientv3.Event, from exactlyonce.Position) {
	slices.SortFunc(events, func(a, b *clientv3.Event) int {
		return cmp.Or(cmp.Compare(a.Kv.ModRevision, b.Kv.ModRevision), cmp.Compare(string(a.Kv.Key), string(b.Kv.Key)))
	})
	for i, e := range events {
		s.Bytes += uint64(len(e.Kv.Key) + len(e.Kv.Value))
		at := exactlyonce.Position{Epoch: s.epoch, Seq: uint64(e.Kv.ModRevision)}
		if i+1 < len(events) && events[i+1].Kv.ModRevision == e.Kv.ModRevision {
			at.Sub = string(e.Kv.Key)
		}
		if at.Seq == from.Seq && (from.Sub == "" || string(e.Kv.Key) <= from.Sub) || at.Seq < from.Seq {
			continue
		}
		s.queue = append(s.queue, endpoint.Record{
			Key:     strings.TrimPrefix(string(e.Kv.Key), s.spec.Prefix),
			Value:   e.Kv.Value,
			Deleted: e.Type == mvccpb.DELETE,
			Version: uint64(e.Kv.ModRevision),
			At:      at,
			Gap:     s.gap,
		})
		s.gap = ""
	}
}

// Sink writes rows as keys. If several rows of a batch have the same key, Sink writes only the last
// of them.
type Sink struct {
	spec     pipeletapi.Etcd
	link     *link
	client   *clientv3.Client // the link's client
	key      string
	eoio     bool
	revision int64 // revision of the state's key when it was last read or written
}

// NewSink makes a destination. The argument name identifies the pipelet and its source. The
// argument hub may be nil.
func NewSink(spec pipeletapi.Etcd, secrets endpoint.Secrets, hub *Hub, name string, eoio bool) (*Sink, error) {
	l, err := hub.connect(spec, secrets)
	if err != nil {
		return nil, err
	}
	return &Sink{spec: spec, link: l, client: l.client, key: StatePrefix + name, eoio: eoio}, nil
}

// Close releases the link, whose connection may be shared with other sinks.
func (s *Sink) Close() error { return s.link.leave() }

// Open implements endpoint.Sink.
func (s *Sink) Open(ctx context.Context) (state exactlyonce.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := s.client.Get(ctx, s.key)
	if err != nil {
		return state, fault(err, "reading the position in the destination")
	}
	s.revision = 0
	if len(r.Kvs) == 0 {
		return state, nil
	}
	s.revision = r.Kvs[0].ModRevision
	if err := json.Unmarshal(r.Kvs[0].Value, &state); err != nil {
		return state, exactlyonce.Errorf(exactlyonce.Refused, "what the destination has under %s is no position: %w", s.key, err)
	}
	return state, nil
}

// Commit implements endpoint.Sink. The transaction compares the revision of the state's key, which
// identifies the previous state.
func (s *Sink) Commit(ctx context.Context, _, next exactlyonce.State, rows []endpoint.Row) error {
	last := make(map[string]int, len(rows))
	for i, r := range rows {
		last[r.Key] = i
	}
	if len(last) > maxRows {
		return exactlyonce.Errorf(exactlyonce.TooLarge, "%d keys are to be written at once, and a transaction of an etcd takes %d",
			len(last), maxRows)
	}
	ops := make([]clientv3.Op, 0, len(last)+1) // the order matters, because watchers get the operations in this order
	for i, r := range rows {
		switch key := s.spec.Prefix + r.Key; {
		case last[r.Key] != i:
		case r.Deleted:
			ops = append(ops, clientv3.OpDelete(key))
		default:
			ops = append(ops, clientv3.OpPut(key, string(r.Value)))
		}
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	state := clientv3.OpPut(s.key, string(text))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !s.eoio { // write the rows before the state, because writing them twice is better than losing them
		if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fault(err, "writing to the destination")
		}
		_, err := s.client.Txn(ctx).Then(state).Commit()
		return fault(err, "writing the position to the destination")
	}
	after, err := s.link.do(ctx, &commit{state: s.key, revision: s.revision, ops: append(ops, state)})
	if err != nil {
		return err
	}
	s.revision = after
	return nil
}

// Overlap reports whether two stores can have keys in common. It compares addresses, so it cannot
// detect one etcd that has two different addresses.
func Overlap(a, b pipeletapi.Etcd) bool {
	same := slices.ContainsFunc(a.Endpoints, func(e string) bool { return slices.Contains(b.Endpoints, e) })
	return same && (strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix))
}
