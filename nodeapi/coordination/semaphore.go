package coordination

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// MaxPermits is the maximum number of permits of a semaphore.
const MaxPermits = 256

// permitBits is the number of bits of a token that identify the permit.
const permitBits = 8

// Acquire acquires a permit of a semaphore, or waits for one. Each permit is a key, like the key of
// a lock. The token of a permit is the key's version, with the permit's number in the lowest bits
// of the sequence.
func (s *Service) Acquire(ctx context.Context, ns string, o *Owner, d nodeapi.LockData) (nodeapi.LockAnswer, error) {
	if d.Permits < 1 || d.Permits > MaxPermits {
		return nodeapi.LockAnswer{}, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "say how many there are, the same in each call",
			"a semaphore has 1 to %d permits, not %d", MaxPermits, d.Permits)
	}
	key, err := named(ns, permitPrefix, "semaphore", d.Name, len("/255"))
	if err != nil {
		return nodeapi.LockAnswer{}, err
	}
	t := taking{line: permitKey(key, d.Permits), token: permitToken}
	first := rand.IntN(d.Permits) // begin at a random permit, so that not all callers try the same permit
	for i := range d.Permits {
		t.keys = append(t.keys, permitKey(key, (first+i)%d.Permits))
	}
	return s.hold(ctx, ns, o, d, t)
}

// Release releases a permit.
func (s *Service) Release(ctx context.Context, ns string, d nodeapi.UnlockData) error {
	key, err := named(ns, permitPrefix, "semaphore", d.Name, len("/255"))
	if err != nil {
		return err
	}
	v, err := parseToken(d.Token)
	if err != nil {
		return err
	}
	permit, version := permitOf(key, v)
	return s.giveBack(ctx, permit, version)
}

// permitOf returns the key of the permit that a token identifies, and the key's version.
func permitOf(semaphore store.Key, v wire.Version) (store.Key, wire.Version) {
	return permitKey(semaphore, int(v&(1<<permitBits-1))), wire.MakeVersion(v.Epoch(), v.Sequence()>>permitBits)
}

func permitKey(semaphore store.Key, permit int) store.Key {
	semaphore.Name = fmt.Sprintf("%s/%d", semaphore.Name, permit)
	return semaphore
}

func permitToken(key store.Key, v wire.Version) (string, error) {
	permit, err := strconv.Atoi(key.Name[strings.LastIndexByte(key.Name, '/')+1:])
	if err != nil || v.Sequence() > wire.MaxSequence>>permitBits {
		return "", nodeapi.Errorf(nodeapi.CodeInternal, "use a semaphore of another name", "%q has no token left", key.Name)
	}
	return token(wire.MakeVersion(v.Epoch(), v.Sequence()<<permitBits|uint64(permit))), nil
}
