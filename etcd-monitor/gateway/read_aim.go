package gateway

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// These rules choose the member of etcd for a linearizable read. A member that answers such a read
// first asks the leader for its commit index. For a small answer, this takes longer than the answer
// itself. So the read goes directly to the leader. A large answer costs every member the same, so
// such reads go to the members in turn. The gateway does not know an answer's size in advance, so
// it uses the size of the last answer.

// target is the kind of member that a request should go to.
type target int

const (
	inTurn target = iota
	aWrite        // a request that changes something; it goes to the leader
	aRead         // a read with a small answer; it goes to the leader
)

// aim is the target of a request. It also says under which name the size of the answer is
// remembered.
type aim struct {
	to target
	// For a linearizable read, name is the hash under which the size of its answer is remembered,
	// and one reports whether it reads one key. For other requests name is 0.
	name uint64
	one  bool
}

const (
	smallAnswer     = 4 << 10 // maximum size of a small answer's message, in bytes
	rememberedSizes = 4096    // number of entries for remembered reads; several reads share an entry
)

// answerSizes remembers reads whose last answer had an unexpected size: a large answer for one key,
// or a small answer for several. It is safe for concurrent use.
type answerSizes struct {
	seed      maphash.Seed
	surprises [rememberedSizes]atomic.Uint64 // hashes of reads; 0 means none
}

func newAnswerSizes() *answerSizes { return &answerSizes{seed: maphash.MakeSeed()} }

// aim returns the target of a read, and the name for its answer's size.
func (a *answerSizes) aim(r *pb.RangeRequest) aim {
	if r.Serializable || len(r.Key) == 0 { // any member can answer a serializable read, and etcd refuses an empty key
		return aim{}
	}
	at := aim{name: a.name(r), one: len(r.RangeEnd) == 0}
	if surprise := a.surprises[at.name%rememberedSizes].Load() == at.name; at.one != surprise {
		at.to = aRead
	}
	return at
}

// name returns a hash of a read, which ignores the revisions.
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
	return h.Sum64() | 1 // the result is never 0
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
