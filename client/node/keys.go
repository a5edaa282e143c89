package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Version is the version of a key. Its form is EPOCH.SEQUENCE, and "0.0" means that the key was
// never written. Versions come from answers.
type Version string

// Never is the version of a key that was never written.
const Never Version = "0.0"

// Newer reports whether v is newer than another version of the same key.
func (v Version) Newer(than Version) bool {
	e1, s1 := v.parts()
	e2, s2 := than.parts()
	return e1 > e2 || e1 == e2 && s1 > s2
}

func (v Version) parts() (epoch, sequence uint64) {
	e, s, ok := strings.Cut(string(v), ".")
	if !ok {
		e, s = "0", string(v)
	}
	epoch, _ = strconv.ParseUint(e, 10, 64) // an invalid version counts as "0.0"
	sequence, _ = strconv.ParseUint(s, 10, 64)
	return epoch, sequence
}

// Item is the state of a key.
type Item struct {
	Key string
	// If Found is false, the key has no value. Version is then Never, or the version of the
	// deletion.
	Found   bool
	Value   []byte
	Version Version
	Lease   string // the lease with which the key expires
	// Err says why this key could not be read. Only GetMany and List set it.
	Err error
}

// Option changes a single call. Each call accepts the options that its comment names, and In.
type Option struct {
	kind   optionKind
	text   string
	time   time.Duration
	number int
}

type optionKind uint8

const (
	optEventual optionKind = iota + 1
	optNamespace
	optLease
	optVersion
	optTTL
	optWait
	optInstance
	optNearest
	optKeysOnly
	optPageSize
)

// Eventual allows a read to return the last committed value known to the nearest chain member.
func Eventual() Option { return Option{kind: optEventual} }

// In selects the namespace of a call.
func In(namespace string) Option { return Option{kind: optNamespace, text: namespace} }

// WithLease binds the written key, the lock or the registration to a lease. It then expires with
// the lease. The caller keeps the lease alive.
func WithLease(lease string) Option { return Option{kind: optLease, text: lease} }

// IfVersion makes a deletion conditional on the key's version.
func IfVersion(v Version) Option { return Option{kind: optVersion, text: string(v)} }

type options struct {
	eventual, nearest         bool
	keysOnly                  bool
	pageSize                  int
	namespace, lease, version string
	instance                  string
	ttl                       time.Duration
	wait                      time.Duration // -1 means until the context ends
}

func gather(list []Option) options {
	o := options{wait: -1}
	for _, x := range list {
		switch x.kind {
		case optEventual:
			o.eventual = true
		case optNamespace:
			o.namespace = x.text
		case optLease:
			o.lease = x.text
		case optVersion:
			o.version = x.text
		case optTTL:
			o.ttl = x.time
		case optWait:
			o.wait = x.time
		case optInstance:
			o.instance = x.text
		case optNearest:
			o.nearest = true
		case optKeysOnly:
			o.keysOnly = true
		case optPageSize:
			o.pageSize = x.number
		}
	}
	return o
}

// begin appends the members with which the JSON of a request for a key begins.
func (o *options) begin(b []byte, key string) []byte {
	b = append(b, '{')
	if o.namespace != "" {
		b = append(appendText(append(b, `"namespace":`...), o.namespace), ',')
	}
	return appendText(append(b, `"key":`...), key)
}

func checkKey(fn, key string) error {
	if !utf8.ValidString(key) {
		return &Error{Code: CodeInvalidArgument, Message: fmt.Sprintf("%s: the key %q is not UTF-8", fn, key)}
	}
	return nil
}

// answerOf parses the data of an answer to the function fn.
func answerOf[T any](fn string, line []byte) (*T, error) {
	var r response[T]
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, because(err, CodeInternal, "", "%s: the answer makes no sense: %v", fn, err)
	}
	if r.Error != nil {
		return nil, r.Error
	}
	if r.Data == nil {
		r.Data = new(T)
	}
	return r.Data, nil
}

// ask makes a call and reads its answer.
func ask[T any](ctx context.Context, c *Client, k *call) (*T, error) {
	defer k.free()
	if err := c.do(ctx, k); err != nil {
		return nil, err
	}
	return answerOf[T](k.fn, k.answer)
}

// askFor makes a call whose data it encodes with package json.
func askFor[T any](ctx context.Context, c *Client, fn string, data any, set func(*call)) (*T, error) {
	k := newCall(fn)
	b, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	k.data = append(k.data, b...)
	if set != nil {
		set(k)
	}
	return ask[T](ctx, c, k)
}

func itemOf(i *nodeapi.Item) Item {
	item := Item{Key: i.Key, Found: i.Found, Version: Version(i.Version), Lease: i.Lease, Value: i.ValueBase64}
	if i.Value != nil {
		item.Value = []byte(*i.Value)
	}
	if item.Found && item.Value == nil {
		item.Value = []byte{}
	}
	if i.Error != nil {
		item.Err = i.Error
	}
	return item
}

// Get reads a key. If the key has no value, that is not an error, and Found is false. Options:
// Eventual.
func (c *Client) Get(ctx context.Context, key string, opts ...Option) (Item, error) {
	if err := checkKey(nodeapi.FuncGet, key); err != nil {
		return Item{}, err
	}
	o := gather(opts)
	k := newCall(nodeapi.FuncGet)
	k.data = o.begin(k.data, key)
	if o.eventual {
		k.data = append(k.data, `,"eventual":true`...)
	}
	k.data = append(k.data, '}')
	answer, err := ask[nodeapi.Item](ctx, c, k)
	if err != nil {
		return Item{}, err
	}
	return itemOf(answer), nil
}

// GetMany reads several keys. The order of the reads is not defined. The items are in the order of
// keys. If a key could not be read, its item has an Err. Options: Eventual.
func (c *Client) GetMany(ctx context.Context, keys []string, opts ...Option) ([]Item, error) {
	for _, key := range keys {
		if err := checkKey(nodeapi.FuncGetMany, key); err != nil {
			return nil, err
		}
	}
	o := gather(opts)
	items := make([]Item, 0, len(keys))
	for len(keys) > 0 {
		some := keys[:min(len(keys), nodeapi.MaxMany)]
		keys = keys[len(some):]
		answer, err := askFor[nodeapi.GetManyAnswer](ctx, c, nodeapi.FuncGetMany,
			nodeapi.GetManyData{Namespace: o.namespace, Keys: some, Eventual: o.eventual}, nil)
		if err != nil {
			return nil, err
		}
		if len(answer.Items) != len(some) {
			return nil, &Error{Code: CodeInternal, Message: fmt.Sprintf("getMany: %d keys were asked for, %d answered",
				len(some), len(answer.Items))}
		}
		for i := range answer.Items {
			items = append(items, itemOf(&answer.Items[i]))
		}
	}
	return items, nil
}

// Put writes a value, creates the key if it does not exist, and returns the new version. Options:
// WithLease.
func (c *Client) Put(ctx context.Context, key string, value []byte, opts ...Option) (Version, error) {
	if err := checkKey(nodeapi.FuncPut, key); err != nil {
		return "", err
	}
	o := gather(opts)
	k := newCall(nodeapi.FuncPut)
	k.changes = true
	k.data = append(o.lessee(appendValue(o.begin(k.data, key), value)), '}')
	answer, err := ask[nodeapi.PutAnswer](ctx, c, k)
	if err != nil {
		return "", err
	}
	return Version(answer.Version), nil
}

func (o *options) lessee(b []byte) []byte {
	if o.lease != "" {
		b = appendText(append(b, `,"lease":`...), o.lease)
	}
	return b
}

// CAS writes a value if the key's version is the given one. Never as the version means that the key
// was never written. The item is the key's state after the call, whether it was written or not.
// Options: WithLease.
func (c *Client) CAS(ctx context.Context, key string, version Version, value []byte, opts ...Option) (
	item Item, swapped bool, err error) {
	if err := checkKey(nodeapi.FuncCAS, key); err != nil {
		return Item{}, false, err
	}
	o := gather(opts)
	k := newCall(nodeapi.FuncCAS)
	k.changes = true
	k.data = o.lessee(appendValue(o.begin(k.data, key), value))
	k.data = append(appendText(append(k.data, `,"version":`...), string(version)), '}')
	answer, err := ask[nodeapi.CASAnswer](ctx, c, k)
	if err != nil {
		return Item{}, false, err
	}
	return itemOf(&answer.Item), answer.Swapped, nil
}

// Delete removes a key's value. Deleting a key that does not exist succeeds. The item is the key's
// state after the call. With the option IfVersion, deleted is false if the key has another version.
func (c *Client) Delete(ctx context.Context, key string, opts ...Option) (item Item, deleted bool, err error) {
	if err := checkKey(nodeapi.FuncDelete, key); err != nil {
		return Item{}, false, err
	}
	o := gather(opts)
	k := newCall(nodeapi.FuncDelete)
	k.changes = true
	k.data = o.begin(k.data, key)
	if o.version != "" {
		k.data = appendText(append(k.data, `,"version":`...), o.version)
	}
	k.data = append(k.data, '}')
	answer, err := ask[nodeapi.DeleteAnswer](ctx, c, k)
	if err != nil {
		return Item{}, false, err
	}
	return itemOf(&answer.Item), answer.Deleted, nil
}

// Increment adds `by` to a key's value and returns the sum. The value is a signed 64-bit decimal
// number, as text. A key without a value counts as 0.
func (c *Client) Increment(ctx context.Context, key string, by int64, opts ...Option) (int64, Version, error) {
	if err := checkKey(nodeapi.FuncIncrement, key); err != nil {
		return 0, "", err
	}
	o := gather(opts)
	k := newCall(nodeapi.FuncIncrement)
	k.changes = true
	k.data = append(strconv.AppendInt(append(o.begin(k.data, key), `,"by":`...), by, 10), '}')
	answer, err := ask[nodeapi.IncrementAnswer](ctx, c, k)
	if err != nil {
		return 0, "", err
	}
	return answer.Number, Version(answer.Version), nil
}
