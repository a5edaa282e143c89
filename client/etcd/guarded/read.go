package guarded

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/readsource"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// These are the reasons why the switches were not asked, or why a slot gave no answer. An Observer
// gets them.
const (
	reasonRequest  = "request"  // a slot cannot answer this kind of request
	reasonPlace    = "unplaced" // the key is not placed
	reasonExcluded = "excluded" // the switches do not answer reads of this key (Config.Excluded)
	reasonClosed   = "closed"   // the switches answer no reads at present (Config.Open)
	// etcd has not answered any request yet, so the identity of its cluster is not known
	reasonHeader = "header"
	reasonGone   = "gone"   // the slot does not exist
	reasonSilent = "silent" // the slot did not answer in time
	reasonDenied = "denied" // the switches do not let this gateway read the slot
	reasonFormat = "unreadable"
	reasonForged = "forged" // the slot has a cell that no gateway has written
	// the cell is sealed with an unknown key, for which the gateway asks etcd
	reasonKey = "key"
	// the cell has a newer revision than etcd's last answer to this gateway
	reasonAhead = "ahead"
)

// Range implements pb.KVServer.
func (s *Server) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if s.reserved.Touches(string(r.Key), string(r.RangeEnd)) {
		s.forwarded(ctx, reasonRequest)
		return s.part(ctx, r)
	}
	answer, seen := s.fromNetwork(ctx, r)
	if answer != nil {
		return answer, nil
	}
	answer, err := s.fromEtcd(ctx, r)
	switch {
	case err != nil || seen == nil || !plain(r):
	case seen.clear: // The slot was already clear before etcd was asked, so it may be populated.
		s.populate(ctx, seen.key, seen.at, answer)
	case answer.Header.Revision < seen.at.revision():
		s.fault(seen.key, seen.at.version, fmt.Errorf("it says that it is of revision %d, and etcd had come to %d after that: was etcd restored from a snapshot?", seen.at.revision(), answer.Header.Revision))
	}
	return answer, err
}

// seen is what a read has found in a slot that could not answer the read.
type seen struct {
	key placement.Key
	at  slot
	// true if the slot may be populated; false if its cell is newer than etcd's last answer
	clear bool
}

// part asks etcd for the part of a range that the client may read. The whole range also spans
// reserved keys.
func (s *Server) part(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	w, err := s.plan(rangeOp(r))
	if err != nil {
		return nil, err
	}
	t := w.op.GetRequestTxn()
	if t == nil {
		return s.fromEtcd(ctx, w.op.GetRequestRange())
	}
	a, err := s.Etcd.Txn(ctx, t)
	if err != nil {
		return nil, err
	}
	s.saw(a.Header)
	answer := w.answer(&pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: a}}).GetResponseRange()
	answer.Header = a.Header
	return answer, nil
}

func (s *Server) fromEtcd(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	answer, err := s.Etcd.Range(ctx, r)
	if err == nil {
		s.saw(answer.Header)
	}
	return answer, err
}

// eligible reports whether a slot can answer a request. That is so if the request reads one key at
// the present revision, because a slot has everything that such a request can ask for.
func eligible(r *pb.RangeRequest) bool {
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	return len(r.Key) > 0 && len(r.RangeEnd) == 0 && r.Revision == 0 && r.Limit >= 0 && order && target &&
		r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// plain reports whether etcd's answer to a request contains everything that a cell in a slot needs.
func plain(r *pb.RangeRequest) bool { return !r.Serializable && !r.KeysOnly && !r.CountOnly }

// RangeNow answers a read of a placed key from its slot, if that needs no waiting. If it returns
// false, it has not counted the read, and the caller must call Range.
func (s *Server) RangeNow(r *pb.RangeRequest) (*pb.RangeResponse, bool) {
	if s.reserved.Touches(string(r.Key), string(r.RangeEnd)) {
		return nil, false
	}
	k, reason := s.inNetwork(r)
	if reason != "" {
		return nil, false
	}
	before := s.Newest.Revision()
	b, version, ok := s.Slots.ReadNow(wire.Key(k.ID))
	if !ok {
		return nil, false
	}
	at := s.read(context.Background(), k, b, version)
	answer, reason := s.answerOf(r, &at, before)
	if reason != "" {
		return nil, false
	}
	s.Observer.Hit()
	return answer, true
}

// inNetwork returns the placement of the key that a request reads, or the reason why the switches
// are not asked.
func (s *Server) inNetwork(r *pb.RangeRequest) (k placement.Key, reason string) {
	if !eligible(r) {
		return k, reasonRequest
	}
	k.Name = string(r.Key)
	var ok bool
	switch k.Entry, ok = s.Directory.Lookup(k.Name); {
	case !ok:
		return k, reasonPlace
	case s.Excluded(k.Name):
		return k, reasonExcluded
	case !s.Open():
		return k, reasonClosed
	}
	return k, ""
}

// fromNetwork answers a request from the slot of its key. If the slot gives no answer, fromNetwork
// returns what it has found there, in case that matters after etcd's answer.
func (s *Server) fromNetwork(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, *seen) {
	k, reason := s.inNetwork(r)
	if reason != "" {
		s.forwarded(ctx, reason)
		return nil, nil
	}
	if s.Slots.Silent(wire.Key(k.ID)) {
		s.miss(ctx, reasonSilent)
		return nil, nil
	}
	before := s.Newest.Revision()
	at, err := s.look(ctx, k)
	switch {
	case isGone(err):
		s.miss(ctx, reasonGone)
		return nil, nil
	case isDenied(err):
		s.miss(ctx, reasonDenied)
		return nil, nil
	case err != nil:
		s.miss(ctx, reasonSilent)
		return nil, nil
	}
	answer, reason := s.answerOf(r, &at, before)
	if reason == "" {
		s.hit(ctx)
		return answer, nil
	}
	s.miss(ctx, reason)
	switch {
	case at.forged != nil:
		s.fault(k, at.version, at.forged)
	case at.key != 0:
		s.learnLater(ctx, k, at)
	case at.cell.Kind == slotcodec.Clear:
		return nil, &seen{k, at, true}
	case at.cell.Kind == slotcodec.Guard:
		s.breakStaleGuard(ctx, k, at)
	case reason == reasonAhead:
		return nil, &seen{key: k, at: at}
	}
	return nil, nil
}

// answerOf returns the answer that a slot gives to a request, or the reason why it gives no answer.
// before is the newest revision from etcd that was known before the slot was read.
func (s *Server) answerOf(r *pb.RangeRequest, at *slot, before int64) (answer *pb.RangeResponse, reason string) {
	switch {
	case at.forged != nil:
		return nil, reasonForged
	case at.key != 0:
		return nil, reasonKey
	}
	var kv *mvccpb.KeyValue
	switch at.cell.Kind {
	case slotcodec.Value:
		kv = &mvccpb.KeyValue{Key: r.Key, CreateRevision: at.cell.Create, ModRevision: at.cell.Mod,
			Version: at.cell.Version, Value: at.cell.Value}
	case slotcodec.Absent:
	case slotcodec.Clear, slotcodec.Guard, slotcodec.Unfit:
		return nil, at.cell.Kind.String()
	default:
		return nil, reasonFormat
	}
	known := s.header.Load()
	if known == nil {
		return nil, reasonHeader
	}
	newest := s.Newest.Revision()
	if at.revision() > newest {
		// The cell is another gateway's write, which etcd has not confirmed to this gateway yet.
		// etcd must answer this read, because only etcd can say whether it has reached the cell's
		// revision.
		return nil, reasonAhead
	}
	// The slot has the key's state at the time of the read. So the answer may name any revision
	// from the cell's own up to the revision of etcd's store at that time. It must not name a newer
	// one. Otherwise a client that watches from the next revision on would miss the writes in
	// between.
	revision := before
	if at.revision() <= newest {
		revision = max(before, at.revision())
	}
	if !s.Open() { // the result of Open may have changed since the slot was read
		return nil, reasonClosed
	}
	return rangeAnswer(r, kv, &pb.ResponseHeader{ClusterId: known.ClusterId, MemberId: known.MemberId,
		RaftTerm: known.RaftTerm, Revision: revision}), ""
}

// learnLater asks etcd in the background for the key with which a slot is sealed. Afterwards the
// key is known, or it is known that no gateway has written the slot.
func (s *Server) learnLater(ctx context.Context, k placement.Key, at slot) {
	if !s.begin(s.learning, k.Name) {
		return
	}
	s.Runtime.Go(func() {
		defer s.end(s.learning, k.Name)
		ctx, cancel := s.Runtime.Detach(ctx)
		defer cancel()
		if at, err := s.learn(ctx, k, at); err == nil && at.forged != nil {
			s.fault(k, at.version, at.forged)
		}
	})
}

// The following functions count the source of a read, and return it to a client that asks for it.

func (s *Server) hit(ctx context.Context) {
	s.Observer.Hit()
	readsource.Answered(ctx, readsource.Network)
}

func (s *Server) miss(ctx context.Context, reason string) {
	s.Observer.Miss(reason)
	readsource.Answered(ctx, readsource.Etcd(reason))
}

func (s *Server) forwarded(ctx context.Context, reason string) {
	s.Observer.Forwarded(reason)
	readsource.Answered(ctx, readsource.Etcd(reason))
}

// rangeAnswer returns the answer to a request for one key.
func rangeAnswer(r *pb.RangeRequest, kv *mvccpb.KeyValue, h *pb.ResponseHeader) *pb.RangeResponse {
	answer := &pb.RangeResponse{Header: h}
	if kv == nil {
		return answer
	}
	answer.Count = 1
	if r.CountOnly {
		return answer
	}
	if r.KeysOnly {
		kv.Value = nil
	}
	answer.Kvs = []*mvccpb.KeyValue{kv}
	return answer
}

// populate puts etcd's answer into a slot that was clear before etcd was asked. The reader does not
// wait for that. At most one reader of a key does this at a time.
func (s *Server) populate(ctx context.Context, k placement.Key, at slot, answer *pb.RangeResponse) {
	if !s.begin(s.populating, k.Name) {
		return
	}
	b := s.encode(s.cellOf(only(answer.Kvs), answer.Header.Revision), s.Slots.Size(wire.Key(k.ID)))
	s.Runtime.Go(func() {
		defer s.end(s.populating, k.Name)
		ctx, cancel := s.Runtime.Detach(ctx)
		defer cancel()
		// The result of this CAS does not matter. It is executed only in the version that was read
		// before etcd was asked, so the cell is correct whenever that happens.
		s.cas(ctx, k, at.version, b)
	})
}

// begin reports whether the caller may work on a key, because no other goroutine does. If so, the
// caller must call end afterwards.
func (s *Server) begin(at map[string]bool, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at[key] {
		return false
	}
	at[key] = true
	return true
}

func (s *Server) end(at map[string]bool, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(at, key)
}

// breakStaleGuard reads a slot that had a guard again after a while. If the guard is still there
// and its session is gone, breakStaleGuard removes it. Otherwise the guard could stay until the
// key's next write.
func (s *Server) breakStaleGuard(ctx context.Context, k placement.Key, at slot) {
	if !s.begin(s.breaking, k.Name) {
		return
	}
	s.Runtime.Go(func() {
		defer s.end(s.breaking, k.Name)
		ctx, cancel := s.Runtime.Last(ctx)
		defer cancel()
		limit := aliveFirst
		for wait := breakAfter; ; wait = min(2*wait, breakAtMost) {
			s.Runtime.Wait(ctx, nil, wait)
			if ctx.Err() != nil || !s.stillPlaced(k) {
				return
			}
			now, err := s.look(ctx, k)
			if isGone(err) || err == nil && now.version != at.version {
				return
			}
			if err != nil || now.cell.Kind != slotcodec.Guard {
				continue
			}
			if alive, err := s.alive(ctx, now.cell.Lease, &limit); err != nil || alive {
				continue
			}
			if _, err := s.cas(ctx, k, now.version, []byte{byte(slotcodec.Clear)}); err == nil ||
				isChanged(err) || isGone(err) {
				return
			}
		}
	})
}
