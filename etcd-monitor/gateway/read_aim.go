package gateway

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// These rules choose the member of etcd that a linearizable read is sent to. Whichever member
// answers first asks the leader how far the store is. If the answer is small, that takes longer
// than the answer itself, so the read goes directly to the leader. A large answer costs each
// member the same, so such reads go to the members in turn. The size of an answer is not known in
// advance, so the gateway goes by the size of the last one.

// target is which member a request is for.
type target int

const (
	inTurn target = iota
	aWrite        // what changes something, for the member that leads
	aRead         // a read with a small answer, for that one
)

// aim is which member a request is for, and what is to be remembered of its answer.
type aim struct {
	to target
	// of a linearizable read: by which name its answer's size is remembered (0: of another
	// request), and whether it is of one key
	name uint64
	one  bool
}

const (
	smallAnswer     = 4 << 10 // bytes of a message
	rememberedSizes = 4096    // reads, each by one place that others may take
)

// answerSizes remembers reads whose last answer was not of the size that such reads mostly have:
// large of one key, or small of several. It is safe for concurrent use.
type answerSizes struct {
	seed      maphash.Seed
	surprises [rememberedSizes]atomic.Uint64 // names; 0: none
}

func newAnswerSizes() *answerSizes { return &answerSizes{seed: maphash.MakeSeed()} }

// aim says which member a read is for.
func (a *answerSizes) aim(r *pb.RangeRequest) aim {
	if r.Serializable || len(r.Key) == 0 { // no member asks another, or etcd refuses it
		return aim{}
	}
	at := aim{name: a.name(r), one: len(r.RangeEnd) == 0}
	if surprise := a.surprises[at.name%rememberedSizes].Load() == at.name; at.one != surprise {
		at.to = aRead
	}
	return at
}

// name is a read's, except for the revisions that it asks for.
func (a *answerSizes) name(r *pb.RangeRequest) uint64 {
	var h maphash.Hash
	h.SetSeed(a.seed)
	var b [17]byte
	binary.LittleEndian.PutUint64(b[:], uint64(len(r.Key)))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.Limit))
	if r.KeysOnly {
		b[16] |= 1
	}
	if r.CountOnly {
		b[16] |= 2
	}
	h.Write(b[:])
	h.Write(r.Key)
	h.Write(r.RangeEnd)
	return h.Sum64() | 1 // which is never 0
}

// answered records the size of the answer to a read, in bytes.
func (a *answerSizes) answered(at aim, size int) {
	if at.name == 0 {
		return
	}
	place := &a.surprises[at.name%rememberedSizes]
	if small := size <= smallAnswer; small != at.one {
		if place.Load() != at.name {
			place.Store(at.name)
		}
	} else if place.Load() == at.name {
		place.CompareAndSwap(at.name, 0)
	}
}
