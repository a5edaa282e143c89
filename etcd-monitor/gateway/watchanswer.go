package gateway

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields in WatchResponse, Event and KeyValue (rpc.proto, kv.proto).
const (
	watchIDField  protowire.Number = 2  // an int64 in WatchResponse
	createdField  protowire.Number = 3  // a bool in WatchResponse
	canceledField protowire.Number = 4  // a bool in WatchResponse
	compactField  protowire.Number = 5  // an int64 in WatchResponse
	fragmentField protowire.Number = 7  // a bool in WatchResponse
	eventsField   protowire.Number = 11 // repeated Event in WatchResponse
	eventKeyField protowire.Number = 2  // a KeyValue in Event
	modField      protowire.Number = 3  // an int64 in KeyValue
)

// noWatch is the watch ID in an answer that concerns no watch or all watches of a stream.
const noWatch = -1

// watchAnswer is a WatchResponse as bytes. It also has the parsed fields that the gateway needs for
// forwarding it.
type watchAnswer struct {
	bytes       []byte
	from, to    int   // position of the watch ID in the bytes
	id          int64 // watch ID
	revision    int64 // revision in the header
	created     bool
	canceled    bool
	fragment    bool // more fragments of the same answer follow
	compact     bool // etcd cancelled the watch because of a compaction
	emptied     bool // the answer had events, and the gateway removed all of them
	first, last int64
}

// first and last are the lowest and the highest revision of the events, including removed events.
// Both are 0 if there are no events.

// readWatchAnswer parses a WatchResponse. If ok is false, the message is something else, and the
// gateway forwards it unchanged.
func readWatchAnswer(message []byte) (a watchAnswer, ok bool) {
	a.bytes = message
	for at := 0; at < len(message); {
		num, typ, n := protowire.ConsumeTag(message[at:])
		if n < 0 {
			return a, false
		}
		size := protowire.ConsumeFieldValue(num, typ, message[at+n:])
		if size < 0 {
			return a, false
		}
		value := message[at+n : at+n+size]
		var number uint64
		if typ == protowire.VarintType {
			number, _ = protowire.ConsumeVarint(value)
		}
		switch {
		case num == headerField && typ == protowire.BytesType:
			content, _ := protowire.ConsumeBytes(value)
			_, revision := field(content, revisionField, protowire.VarintType)
			a.revision = int64(revision)
			if a.to == 0 {
				a.from, a.to = at+n+size, at+n+size // a missing ID would be inserted here
			}
		case num == watchIDField && typ == protowire.VarintType:
			a.id, a.from, a.to = int64(number), at, at+n+size
		case num == createdField && typ == protowire.VarintType:
			a.created = number != 0
		case num == canceledField && typ == protowire.VarintType:
			a.canceled = number != 0
		case num == compactField && typ == protowire.VarintType:
			a.compact = number != 0
		case num == fragmentField && typ == protowire.VarintType:
			a.fragment = number != 0
		case num == eventsField && typ == protowire.BytesType:
			event, _ := protowire.ConsumeBytes(value)
			kv, _ := field(event, eventKeyField, protowire.BytesType)
			_, mod := field(kv, modField, protowire.VarintType)
			if a.first == 0 || int64(mod) < a.first {
				a.first = int64(mod)
			}
			a.last = max(a.last, int64(mod))
		}
		at += n + size
	}
	return a, true
}

// as returns the answer with another watch ID. The result shares the answer's bytes.
func (a *watchAnswer) as(id int64) pieces {
	var field []byte
	if id != 0 {
		field = protowire.AppendTag(make([]byte, 0, 12), watchIDField, protowire.VarintType)
		field = protowire.AppendVarint(field, uint64(id))
	}
	return pieces{a.bytes[:a.from], field, a.bytes[a.to:]}
}

// after returns the answer without the events up to a revision.
func (a *watchAnswer) after(revision int64) (watchAnswer, error) {
	left := 0
	out, err := a.changed(func(r *pb.WatchResponse) {
		r.Events = slices.DeleteFunc(r.Events, func(e *mvccpb.Event) bool { return e.Kv.ModRevision <= revision })
		left = len(r.Events)
	})
	out.first, out.emptied = max(a.first, revision+1), left == 0
	return out, err
}

// duplicateID is etcd's mvcc.ErrWatcherDuplicateID, copied so as not to import etcd's server.
const duplicateID = "mvcc: duplicate watch ID provided on the WatchStream"

// duplicate returns etcd's error for a create request whose watch ID is already used on the stream.
// It is made from etcd's answer to that request.
func (a *watchAnswer) duplicate() (pieces, error) {
	var r pb.WatchResponse
	if err := r.Unmarshal(a.bytes); err != nil {
		return nil, err
	}
	r.WatchId, r.Created, r.Canceled, r.CancelReason = noWatch, true, true, duplicateID
	b, err := r.Marshal()
	return pieces{b}, err
}

// cancelled returns the answer to a client that cancels a watch. It takes the cluster, member and
// term from a.
func (a *watchAnswer) cancelled(revision, id int64) (pieces, error) {
	var r pb.WatchResponse
	if err := r.Unmarshal(a.bytes); err != nil {
		return nil, err
	}
	h := r.GetHeader()
	b, err := (&pb.WatchResponse{
		Header: &pb.ResponseHeader{ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(),
			RaftTerm: h.GetRaftTerm(), Revision: max(h.GetRevision(), revision)},
		WatchId: id, Canceled: true,
	}).Marshal()
	return pieces{b}, err
}
