package gateway

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// These rules choose the member of etcd for a linearizable read. The answering member first asks
// the leader for its commit index. For a small answer that takes longer than the answer itself, so
// the read goes directly to the leader. A large answer costs every member the same, so such reads
// go to the members in turn. The size of an answer is not known in advance, so the gateway uses the
// size of the last one.

// target is the kind of member that a request should go to.
type target int

const (
	inTurn target = iota
	aWrite        // a request that changes something: to the leader
	aRead         // a read with a small answer: to the leader
)

// aim is a request's target, and how to remember its answer's size.
type aim struct {
	to target
	// for a linearizable read: the hash under which its answer's size is remembered, and whether it
	// reads one key; the hash is 0 for other requests
	name uint64
	one  bool
}

const (
	smallAnswer     = 4 << 10 // message size in bytes
	rememberedSizes = 4096    // number of remembered reads; a read shares its place with others
)

// answerSizes remembers reads whose last answer had an unusual size: large for one key, or small
// for several. It is safe for concurrent use.
type answerSizes struct {
	seed      maphash.Seed
	surprises [rememberedSizes]atomic.Uint64 // hashes; 0: none
}

func newAnswerSizes() *answerSizes { return &answerSizes{seed: maphash.MakeSeed()} }

// aim returns the aim of a read.
func (a *answerSizes) aim(r *pb.RangeRequest) aim {
	if r.Serializable || len(r.Key) == 0 { // any member answers it, or etcd refuses it
		return aim{}
	}
	at := aim{name: a.name(r), one: len(r.RangeEnd) == 0}
	if surprise := a.surprises[at.name%rememberedSizes].Load() == at.name; at.one != surprise {
		at.to = aRead
	}
	return at
}

// name is a hash of a read, without its revisions.
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
	return h.Sum64() | 1 // never 0
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
