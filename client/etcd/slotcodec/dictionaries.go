package slotcodec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Library manages the dictionaries in etcd, whose keys are PREFIX dictionaries/VERSION. It provides
// a codec with the dictionaries that it has last read. It is safe for concurrent use.
type Library struct {
	kv     clientv3.KV
	prefix string // prefix of the dictionaries' keys
	codec  atomic.Pointer[Codec]
	mu     sync.Mutex // held during a request to etcd
}

// NewLibrary makes a library that has read nothing yet. prefix is the prefix of all of the
// gateways' own keys.
func NewLibrary(kv clientv3.KV, prefix string) *Library {
	l := &Library{kv: kv, prefix: prefix + "dictionaries/"}
	c, err := NewCodec()
	if err != nil {
		panic(err) // this cannot fail, because the codec's options are constants
	}
	l.codec.Store(c)
	return l
}

// Prefix returns the prefix of the dictionaries' keys in etcd.
func (l *Library) Prefix() string { return l.prefix }

// Codec returns a codec with all dictionaries that the library has read.
func (l *Library) Codec() *Codec { return l.codec.Load() }

// Load reads all dictionaries. If a dictionary cannot be used, Load leaves it out, and the error
// names it.
func (l *Library) Load(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.load(ctx)
}

func (l *Library) load(ctx context.Context) error {
	r, err := l.kv.Get(ctx, l.prefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading dictionaries from etcd under %s: %w", l.prefix, err)
	}
	var use [][]byte
	var bad error
	known := l.Codec()
	news := false
	for _, kv := range r.Kvs {
		named, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), l.prefix), 10, 32)
		var version uint32
		if err == nil {
			version, err = Version(kv.Value)
		}
		if err == nil && uint64(version) != named {
			err = fmt.Errorf("it is version %d", version)
		}
		if err == nil {
			// NewCodec checks each dictionary separately, so that a bad dictionary does not prevent
			// the use of the others.
			_, err = NewCodec(kv.Value)
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("%s in etcd is no dictionary: %w", kv.Key, err))
			continue
		}
		news = news || !known.Knows(version)
		use = append(use, kv.Value)
	}
	if !news { // making a codec is expensive
		return bad
	}
	c, err := NewCodec(use...)
	if err != nil {
		return errors.Join(bad, err)
	}
	l.codec.Store(c)
	return bad
}

// Want reads the dictionaries if the given version is not known yet, and reports whether it is
// known afterwards.
func (l *Library) Want(ctx context.Context, version uint32) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Codec().Knows(version) {
		return true, nil
	}
	err := l.load(ctx)
	return l.Codec().Knows(version), err
}

// Publish trains a dictionary from samples and gives it the next free version. It writes the
// dictionary to etcd, and returns its version and size.
func (l *Library) Publish(ctx context.Context, samples [][]byte, size int) (version uint32, bytes int, err error) {
	fail := func(err error) (uint32, int, error) {
		return 0, 0, fmt.Errorf("putting a dictionary into etcd: %w", err)
	}
	r, err := l.kv.Get(ctx, l.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fail(err)
	}
	for _, kv := range r.Kvs {
		if n, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), l.prefix), 10, 32); err == nil {
			version = max(version, uint32(n))
		}
	}
	version++
	d, err := Train(samples, version, size)
	if err != nil {
		return 0, 0, err
	}
	name := l.prefix + strconv.FormatUint(uint64(version), 10)
	t, err := l.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=",
		0)).Then(clientv3.OpPut(name, string(d))).Commit()
	if err != nil {
		return fail(err)
	}
	if !t.Succeeded {
		return fail(fmt.Errorf("somebody else has put one of version %d there at the same time: run it again", version))
	}
	return version, len(d), nil
}
