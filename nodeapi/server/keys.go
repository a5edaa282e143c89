package server

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// checkNamespace returns an error unless a namespace is a DNS label.
func checkNamespace(ns string) error {
	if len(ns) > nodeapi.MaxNamespace {
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "", "the namespace has %d bytes; it has at most %d", len(ns), nodeapi.MaxNamespace)
	}
	if ns == "" {
		return nodeapi.Errorf(nodeapi.CodeInvalidArgument, "name one in hello or in the request", "the request has no namespace")
	}
	return authority.CheckNamespace(ns)
}

// checkKey returns an error unless a name is valid for a key.
func checkKey(name string) error {
	switch {
	case name == "":
		return rpc.Invalid("the key has no name")
	case len(name) > nodeapi.MaxKeyName:
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "", "the key's name has %d bytes; it has at most %d", len(name), nodeapi.MaxKeyName)
	case !utf8.ValidString(name):
		return rpc.Invalid("the key's name is not UTF-8")
	case cell.Reserved(name):
		return nodeapi.Errorf(nodeapi.CodePermissionDenied, "choose another name",
			"%q: names that begin with %s are the node API's own", name, cell.ReservedPrefix)
	case strings.ContainsFunc(name, unicode.IsControl):
		return rpc.Invalid("%q: a key's name has no control characters", name)
	}
	return nil
}

// place returns the namespace that a request uses, if the caller has the necessary right there.
func (k *call) place(ctx context.Context, ns string) (string, error) {
	ns, err := k.named(ns)
	if err != nil {
		return "", err
	}
	verb := authority.Read
	switch {
	case k.f.writes:
		verb = authority.Write
	case k.f.watches != nil:
		verb = authority.Watch
	}
	return ns, k.may(ctx, verb, ns)
}

// named returns the namespace that a request names or, if it names none, the caller's own
// namespace.
func (k *call) named(ns string) (string, error) {
	if ns == "" {
		ns = k.namespace
	}
	return ns, checkNamespace(ns)
}

// may returns nil if the caller has a right in a namespace, and otherwise an error.
func (k *call) may(ctx context.Context, verb authority.Verb, ns string) error {
	return k.c.s.config.Authority.Authorize(ctx, k.c.peer, verb, ns)
}

// creating returns a context for the store. If the caller may not create keys in the namespace, the
// context forbids the store to create keys.
func (k *call) creating(ctx context.Context, ns string) context.Context {
	if err := k.may(ctx, authority.Create, ns); err != nil {
		return store.WithoutCreating(ctx, err)
	}
	return ctx
}

// placeToWrite is like place, for functions that may create a key. A caller may have the right to
// write, but not to create keys. In this case the returned context tells the store, because only
// the store knows whether a key exists.
func (k *call) placeToWrite(ctx context.Context, ns string) (context.Context, string, error) {
	ns, err := k.place(ctx, ns)
	if err != nil {
		return ctx, "", err
	}
	if !k.f.writes {
		return ctx, ns, nil
	}
	return k.creating(ctx, ns), ns, nil
}

// keyToWrite is like the method key, for functions that may create the key.
func (k *call) keyToWrite(ctx context.Context, key nodeapi.Key) (context.Context, store.Key, error) {
	if err := checkKey(key.Key); err != nil {
		return ctx, store.Key{}, err
	}
	ctx, ns, err := k.placeToWrite(ctx, key.Namespace)
	return ctx, store.Key{Namespace: ns, Name: key.Key}, err
}

// key returns the key of a request, if the caller has the necessary right in the key's namespace.
func (k *call) key(ctx context.Context, key nodeapi.Key) (store.Key, error) {
	if err := checkKey(key.Key); err != nil {
		return store.Key{}, err
	}
	ns, err := k.place(ctx, key.Namespace)
	return store.Key{Namespace: ns, Name: key.Key}, err
}

// version returns the text of a version for clients.
func version(v wire.Version) string {
	return strconv.FormatUint(uint64(v.Epoch()), 10) + "." + strconv.FormatUint(v.Sequence(), 10)
}

func parseVersion(s string) (wire.Version, error) {
	if strings.Contains(s, ".") {
		if v, err := wire.ParseVersion(s); err == nil {
			return v, nil
		}
	}
	return 0, rpc.Invalid("%.64q is not a version: pass EPOCH.SEQUENCE, as in answers, or 0.0 for a key that was never written", s)
}

// item converts the state of a key to an Item for clients.
func item(i coordination.Value) nodeapi.Item {
	out := nodeapi.Item{Key: i.Key.Name, Found: i.Found, Version: version(i.Version), Lease: i.Lease}
	switch {
	case !i.Found:
	case utf8.Valid(i.Value):
		text := string(i.Value)
		out.Value = &text
	default:
		out.ValueBase64 = i.Value
	}
	return out
}

func get(ctx context.Context, k *call, d *nodeapi.GetData) (any, error) {
	key, err := k.key(ctx, d.Key)
	if err != nil {
		return nil, err
	}
	i, err := k.c.s.coordination.Get(ctx, key, d.Eventual)
	if err != nil {
		return nil, err
	}
	out := item(i)
	return &out, nil
}

// manyAtOnce is the number of keys that one getMany or list reads concurrently.
const manyAtOnce = 16

func getMany(ctx context.Context, k *call, d *nodeapi.GetManyData) (any, error) {
	if len(d.Keys) > nodeapi.MaxMany {
		return nil, nodeapi.Errorf(nodeapi.CodeTooLarge, "ask for fewer at once", "%d keys; a getMany has at most %d", len(d.Keys),
			nodeapi.MaxMany)
	}
	for _, name := range d.Keys {
		if err := checkKey(name); err != nil {
			return nil, err
		}
	}
	ns, err := k.place(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	out := nodeapi.GetManyAnswer{Items: make([]nodeapi.Item, len(d.Keys))}
	read := func(n int) {
		name := d.Keys[n]
		if i, err := k.c.s.coordination.Get(ctx, store.Key{Namespace: ns, Name: name}, d.Eventual); err != nil {
			out.Items[n] = nodeapi.Item{Key: name, Version: version(0), Error: rpc.ToAnswer(err, false)}
		} else {
			out.Items[n] = item(i)
		}
	}
	k.each(len(d.Keys), read)
	return &out, nil
}

// each calls `do` with the numbers 0 to n-1. It calls `do` concurrently, as far as the subject's
// share of helpers allows.
func (k *call) each(n int, do func(int)) {
	var next atomic.Int64
	all := func() {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			do(int(i))
		}
	}
	var others sync.WaitGroup
	subject := k.c.part.subject
	for range min(n, manyAtOnce) - 1 {
		if !k.c.s.helpers.Take(subject, 1) {
			break // all helpers of the subject are in use, so this call continues without a helper
		}
		others.Go(func() {
			defer k.c.s.helpers.Give(subject, 1)
			all()
		})
	}
	all()
	others.Wait()
}

// bytesOf returns the value of a put request.
func bytesOf(d *nodeapi.PutData) ([]byte, error) { return valueOf(d.Value, d.ValueBase64) }

// valueOf decodes a value that is given either as text or as base64.
func valueOf(text *string, base64 []byte) ([]byte, error) {
	switch {
	case text != nil && base64 != nil:
		return nil, rpc.Invalid("value and valueBase64: give one of them")
	case text != nil:
		return []byte(*text), nil
	case base64 != nil:
		return base64, nil
	}
	return nil, rpc.Invalid("there is no value: give value or valueBase64 (\"\" is a value)")
}

func put(ctx context.Context, k *call, d *nodeapi.PutData) (any, error) {
	value, err := bytesOf(d)
	if err != nil {
		return nil, err
	}
	ctx, key, err := k.keyToWrite(ctx, d.Key)
	if err != nil {
		return nil, err
	}
	v, err := k.c.s.coordination.Put(ctx, key, value, d.Lease)
	return &nodeapi.PutAnswer{Version: version(v)}, err
}

func cas(ctx context.Context, k *call, d *nodeapi.CASData) (any, error) {
	value, err := bytesOf(&d.PutData)
	if err != nil {
		return nil, err
	}
	expected, err := parseVersion(d.Version)
	if err != nil {
		return nil, err
	}
	ctx, key, err := k.keyToWrite(ctx, d.Key)
	if err != nil {
		return nil, err
	}
	i, swapped, err := k.c.s.coordination.CompareAndSwap(ctx, key, expected, value, d.Lease)
	return &nodeapi.CASAnswer{Swapped: swapped, Item: item(i)}, err
}

func remove(ctx context.Context, k *call, d *nodeapi.DeleteData) (any, error) {
	key, err := k.key(ctx, d.Key)
	if err != nil {
		return nil, err
	}
	if d.Version == "" {
		v, err := k.c.s.config.Store.Delete(ctx, key)
		return &nodeapi.DeleteAnswer{Deleted: true, Item: gone(key, v)}, err
	}
	expected, err := parseVersion(d.Version)
	if err != nil {
		return nil, err
	}
	i, deleted, err := k.c.s.config.Store.CompareAndDelete(ctx, key, expected)
	if err != nil || deleted {
		return &nodeapi.DeleteAnswer{Deleted: deleted, Item: gone(key, i.Version)}, err
	}
	// From here on, an error means that the transaction wrote nothing.
	v, err := k.c.s.coordination.Resolve(ctx, i, false)
	if err != nil {
		return nil, asRead(err)
	}
	return &nodeapi.DeleteAnswer{Item: item(v)}, nil
}

func gone(key store.Key, v wire.Version) nodeapi.Item {
	return nodeapi.Item{Key: key.Name, Version: version(v)}
}

// increment reads a key and writes it by compare-and-swap, and repeats this until no other write
// comes in between. Increments of the same key at one server take turns. So only one increment of
// each node competes.
func increment(ctx context.Context, k *call, d *nodeapi.IncrementData) (any, error) {
	ctx, key, err := k.keyToWrite(ctx, d.Key)
	if err != nil {
		return nil, err
	}
	by := int64(1)
	if d.By != nil {
		by = *d.By
	}
	done, err := k.c.s.turns.Wait(ctx, key)
	if err != nil {
		return nil, asRead(err)
	}
	defer done()
	i, err := k.c.s.coordination.Get(ctx, key, false)
	if err != nil {
		return nil, asRead(err)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		number := int64(0)
		if i.Found {
			if number, err = strconv.ParseInt(string(i.Value), 10, 64); err != nil {
				return nil, rpc.Invalid("the value of %q is not a decimal number of 64 bits", key.Name)
			}
		}
		if by > 0 && number > math.MaxInt64-by || by < 0 && number < math.MinInt64-by {
			return nil, rpc.Invalid("%d and %d are together beyond 64 bits", number, by)
		}
		text := strconv.FormatInt(number+by, 10)
		now, swapped, err := k.c.s.coordination.CompareAndSwap(ctx, key, i.Version, []byte(text), i.Lease)
		switch {
		case err != nil:
			return nil, err
		case swapped:
			return &nodeapi.IncrementAnswer{Number: number + by, Value: text, Version: version(now.Version)}, nil
		}
		i = now
		// Wait for a random time, because other writers compete. Then one of them succeeds.
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return nil, asRead(ctx.Err())
		}
	}
}

// asRead converts an error to an error that says that nothing was written.
func asRead(err error) error {
	var e *nodeapi.Error
	if errors.As(err, &e) {
		return err
	}
	return rpc.ToAnswer(err, false)
}
