package server

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"slices"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/coordination"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
)

const (
	// listBytes is the maximum size of the items in an answer as JSON, in bytes. Even the longest
	// possible item is shorter, which is a durable value in which JSON escapes every byte.
	listBytes = nodeapi.MaxMessage * 3 / 4
	// keysOnlyBytes is the maximum size, in bytes, of the values that a store reads for an answer
	// without values.
	keysOnlyBytes = 1 << 20
	// listChunk is the number of keys that are read between two checks of the answer's size.
	listChunk = 4 * manyAtOnce
)

// afterReserved is greater than all names that begin with [cell.ReservedPrefix]. It is less than
// all other names after these, because no name contains the byte 0xFF.
const afterReserved = cell.ReservedPrefix + "\xff"

// lister collects the items of one page of a list.
type lister struct {
	k        *call
	r        store.Range
	keysOnly bool
	answer   nodeapi.ListAnswer
	bytes    int // approximate size of the answer in bytes
	looked   int // number of names that were examined
}

func checkLimit(limit int) error {
	switch {
	case limit < 0:
		return rpc.Invalid("the limit is %d; it is 1 to %d", limit, nodeapi.MaxList)
	case limit > nodeapi.MaxList:
		return nodeapi.Errorf(nodeapi.CodeTooLarge, "ask for less, and for the next page with the answer's cursor",
			"the limit is %d; it is 1 to %d", limit, nodeapi.MaxList)
	}
	return nil
}

// listing runs a function that makes a page of a list. It returns an error if the caller's account
// permits no more pages, or its share of concurrent lists is used up.
func (k *call) listing(page func() (any, error)) (any, error) {
	if err := k.c.account.List(); err != nil {
		return nil, err
	}
	subject := k.c.part.subject
	if !k.c.s.lists.Take(subject, 1) {
		return nil, nodeapi.Errorf(nodeapi.CodeQuotaExceeded, "send it again later",
			"%s has its share of the lists that are under way at this node", subject)
	}
	defer k.c.s.lists.Give(subject, 1)
	return page()
}

// counts counts each name of a page, except the first, as a request. The first name is covered by
// the list request itself.
func (k *call) counts(names []store.Listed) error {
	if len(names) < 2 {
		return nil
	}
	return k.c.account.Request(len(names) - 1)
}

func listKeys(ctx context.Context, k *call, d *nodeapi.ListData) (any, error) {
	if err := checkLimit(d.Limit); err != nil {
		return nil, err
	}
	if d.Prefix != "" { // a prefix must be valid in the same way as a name
		if err := checkKey(d.Prefix); err != nil {
			return nil, err
		}
	}
	ns, err := k.place(ctx, d.Namespace)
	if err != nil {
		return nil, err
	}
	l := lister{k: k, keysOnly: d.KeysOnly, answer: nodeapi.ListAnswer{Items: []nodeapi.Item{}},
		r: store.Range{Namespace: ns, Prefix: d.Prefix, Most: d.Limit, Bytes: listBytes}}
	set(&l.r.Most, nodeapi.DefaultList)
	if d.KeysOnly {
		l.r.Bytes = keysOnlyBytes
	}
	if l.r.After, err = openCursor(ns, d.Prefix, d.Cursor); err != nil {
		return nil, err
	}
	return k.listing(func() (any, error) { return l.page(ctx) })
}

// page reads names and their keys until the page is full or no more names exist.
func (l *lister) page(ctx context.Context) (any, error) {
	most := l.r.Most
	for {
		l.r.Most = most - l.looked
		p, err := l.k.c.s.config.Store.Page(ctx, l.r)
		if err != nil {
			return nil, err
		}
		reserved := slices.IndexFunc(p.Names, func(n store.Listed) bool { return cell.Reserved(n.Key.Name) })
		if reserved >= 0 {
			p.Names = p.Names[:reserved]
		}
		full, err := l.add(ctx, p.Names)
		if err != nil {
			return nil, err
		}
		switch {
		case full:
		case reserved >= 0: // skip these names, because reserved names are not visible to programs
			l.r.After = afterReserved
			if l.looked < most {
				continue
			}
		case !p.More:
			return &l.answer, nil
		}
		l.answer.Cursor = sealCursor(l.r)
		return &l.answer, nil
	}
}

// add appends keys to the answer, and sets After to the name of the last key. The result `full`
// reports that the next key does not fit into the answer.
func (l *lister) add(ctx context.Context, names []store.Listed) (full bool, err error) {
	if err := l.k.counts(names); err != nil {
		return false, err
	}
	l.looked += len(names)
	for some := range slices.Chunk(names, listChunk) {
		items := make([]nodeapi.Item, len(some))
		l.k.each(len(some), func(n int) { items[n] = l.item(ctx, some[n]) })
		if err := ctx.Err(); err != nil {
			return false, err
		}
		for n, i := range items {
			if i.Found || i.Error != nil {
				size := itemBytes(&i)
				if l.bytes+size > listBytes && len(l.answer.Items) > 0 {
					return true, nil
				}
				l.bytes += size
				l.answer.Items = append(l.answer.Items, i)
			}
			l.r.After = some[n].Key.Name
		}
	}
	return false, nil
}

// item returns the state of a key as programs see it.
func (l *lister) item(ctx context.Context, n store.Listed) nodeapi.Item {
	c := l.k.c.s.coordination
	var v coordination.Value
	var err error
	if n.Read {
		v, err = c.Resolve(ctx, n.Item, false)
	} else {
		v, err = c.Get(ctx, n.Key, false)
	}
	if err != nil {
		return nodeapi.Item{Key: n.Key.Name, Version: version(n.Version), Error: rpc.ToAnswer(err, false)}
	}
	out := item(v)
	if l.keysOnly {
		out.Value, out.ValueBase64 = nil, nil
	}
	return out
}

// itemBytes returns an upper bound for the size of an item in JSON.
func itemBytes(i *nodeapi.Item) int {
	n := 128 + jsonBytes(i.Key) + len(i.Lease) + base64.StdEncoding.EncodedLen(len(i.ValueBase64))
	if i.Value != nil {
		n += jsonBytes(*i.Value)
	}
	if e := i.Error; e != nil {
		n += jsonBytes(e.Message) + jsonBytes(e.Do)
	}
	return n
}

func jsonBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		switch b := s[i]; {
		case b < ' ':
			n += 5
		case b == '"' || b == '\\':
			n++
		}
	}
	return n
}

// A cursor consists of a byte for its format, a checksum, and the name after which the next page
// begins. The checksum detects damaged cursors, and cursors of other lists. A caller can forge a
// cursor, but this does not help the caller. Wherever a page begins, it contains only keys that the
// caller may read.
const (
	cursorFormat = 1
	cursorSum    = 8
)

func sumOf(namespace, prefix, after string) []byte {
	sum := sha256.Sum256([]byte(namespace + "\x00" + prefix + "\x00" + after))
	return sum[:cursorSum]
}

func sealCursor(r store.Range) string {
	b := append([]byte{cursorFormat}, sumOf(r.Namespace, r.Prefix, r.After)...)
	return base64.RawURLEncoding.EncodeToString(append(b, r.After...))
}

func openCursor(namespace, prefix, cursor string) (after string, err error) {
	if cursor == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && len(b) > 1+cursorSum && b[0] == cursorFormat {
		after = string(b[1+cursorSum:])
		if string(b[1:1+cursorSum]) == string(sumOf(namespace, prefix, after)) {
			return after, nil
		}
	}
	return "", nodeapi.Errorf(nodeapi.CodeInvalidArgument,
		"pass the cursor of the page before, with the same prefix and namespace, or begin again without a cursor",
		"this is not a cursor of a list of the prefix %.64q in the namespace %s", prefix, namespace)
}
