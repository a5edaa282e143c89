package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// namesOnly is a store whose pages contain only names, like the store of volatile keys.
type namesOnly struct{ store.Store }

func (s namesOnly) Page(ctx context.Context, r store.Range) (store.Page, error) {
	p, err := s.Store.Page(ctx, r)
	for i := range p.Names {
		p.Names[i] = store.Listed{Item: store.Item{Key: p.Names[i].Key}}
	}
	return p, err
}

func (l *line) put(key, value string) {
	l.t.Helper()
	l.send(fmt.Sprintf(`{"id":1,"func":"put","data":{"key":%q,"value":%q}}`, key, value))
	l.expectPart(`"version"`)
}

// list requests one page of a list.
func (l *line) list(d nodeapi.ListData) (*nodeapi.ListAnswer, *nodeapi.Error) {
	l.t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		l.t.Fatal(err)
	}
	l.send(fmt.Sprintf(`{"id":2,"func":"list","timeoutMs":60000,"data":%s}`, data))
	text := l.receive()
	if len(text) >= nodeapi.MaxMessage {
		l.t.Errorf("an answer of %d bytes", len(text))
	}
	var answer struct {
		Data  *nodeapi.ListAnswer
		Error *nodeapi.Error
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		l.t.Fatal(err)
	}
	return answer.Data, answer.Error
}

// listAll requests all pages of a list. It returns the items and the number of pages.
func (l *line) listAll(d nodeapi.ListData) (items []nodeapi.Item, pages int) {
	l.t.Helper()
	for {
		got, failed := l.list(d)
		if failed != nil {
			l.t.Fatal(failed)
		}
		if d.Limit > 0 && len(got.Items) > d.Limit {
			l.t.Errorf("%d items in a page of %d", len(got.Items), d.Limit)
		}
		pages++
		items = append(items, got.Items...)
		if d.Cursor = got.Cursor; d.Cursor == "" {
			return items, pages
		}
	}
}

func namesOf(items []nodeapi.Item) (names []string) {
	for _, i := range items {
		names = append(names, i.Key)
	}
	return names
}

// TestList checks that each key with a value is listed exactly once, in order, for any page size.
// The list must not have deleted keys, keys whose lease has ended, keys without the prefix,
// reserved keys of the node API, or keys of other namespaces.
func TestList(t *testing.T) {
	for name, st := range map[string]store.Store{"read by the store": store.NewMemory(1025),
		"read by the server": namesOnly{store.NewMemory(1025)}} {
		t.Run(name, func(t *testing.T) {
			_, path := start(t, Config{Store: st})
			l := dial(t, path)
			for _, key := range []string{"conf/b", "conf/a", "conf", "conf/c", "other", "é", "conf/gone", "conf/\xf0\x9f\x8d\x90"} {
				l.put(key, "of "+key)
			}
			l.ask(`{"id":1,"func":"delete","data":{"key":"conf/gone"}}`, `{"id":1,"data":{"deleted":true,"key":"conf/gone","found":false,"version":"1.2"}}`)
			l.send(`{"id":1,"func":"put","data":{"key":"conf/d","value":"x","namespace":"another"}}`)
			l.expectPart(`"version"`)
			l.send(`{"id":1,"func":"lock","data":{"name":"l"}}`) // the lock makes reserved names, which begin with ~
			l.expectPart(`"held":true`)
			lease := l.grant()
			l.send(`{"id":1,"func":"put","data":{"key":"conf/lives","valueBase64":"/w==","lease":"` + lease + `"}}`)
			l.expectPart(`"version"`)
			gone := l.grant()
			l.send(`{"id":1,"func":"put","data":{"key":"conf/lapsed","value":"x","lease":"` + gone + `"}}`)
			l.expectPart(`"version"`)
			l.ask(`{"id":1,"func":"revoke","data":{"lease":"`+gone+`"}}`, `{"id":1,"data":{}}`)

			conf := []string{"conf/a", "conf/b", "conf/c", "conf/lives", "conf/\xf0\x9f\x8d\x90"}
			all := append(append([]string{"conf"}, conf...), "other", "é")
			for limit := range 10 {
				for prefix, want := range map[string][]string{"conf/": conf, "": all, "none": nil, "conf/a": {"conf/a"}} {
					items, pages := l.listAll(nodeapi.ListData{Prefix: prefix, Limit: limit})
					if !slices.Equal(namesOf(items), want) {
						t.Errorf("prefix %q, limit %d: %q in %d pages, want %q", prefix, limit, namesOf(items), pages, want)
					}
					if limit == 0 && pages != 1 {
						t.Errorf("prefix %q: %d pages", prefix, pages)
					}
				}
			}
			l.ask(`{"id":3,"func":"list","data":{"prefix":"conf/","limit":1}}`, `{"id":3,"data":{"items":[{"key":"conf/a","found":true,`+
				`"value":"of conf/a","version":"1.1"}],"cursor":"`+sealCursor(store.Range{Namespace: "default", Prefix: "conf/", After: "conf/a"})+`"}}`)
			l.ask(`{"id":3,"func":"list","data":{"prefix":"conf/l"}}`, `{"id":3,"data":{"items":[{"key":"conf/lives","found":true,`+
				`"valueBase64":"/w==","version":"1.1","lease":"`+lease+`"}]}}`)
			l.ask(`{"id":3,"func":"list","data":{"prefix":"conf/l","keysOnly":true}}`, `{"id":3,"data":{"items":[{"key":"conf/lives",`+
				`"found":true,"version":"1.1","lease":"`+lease+`"}]}}`)
		})
	}
}

// grant grants a lease, and returns its name.
func (l *line) grant() string {
	l.t.Helper()
	l.send(`{"id":1,"func":"grant","data":{"ttlMs":60000}}`)
	var answer struct{ Data nodeapi.LeaseAnswer }
	if err := json.Unmarshal([]byte(l.receive()), &answer); err != nil {
		l.t.Fatal(err)
	}
	return answer.Data.Lease
}

// TestListMeanwhile checks that each key that remains is listed exactly once, while other keys are
// created and deleted.
func TestListMeanwhile(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	var stay []string
	for n := range 50 {
		name := fmt.Sprintf("k%02d", n)
		stay = append(stay, name)
		l.put(name, "v")
	}
	over, other := make(chan struct{}), dial(t, path)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			default:
			}
			name := fmt.Sprintf("k%02d+", n%60)
			other.put(name, "v")
			other.send(fmt.Sprintf(`{"id":1,"func":"delete","data":{"key":"k%02d+"}}`, (n+30)%60))
			other.receive()
		}
	})
	defer wg.Wait()
	defer close(over)
	for limit := 1; limit <= 20; limit++ {
		items, _ := l.listAll(nodeapi.ListData{Limit: limit})
		names := namesOf(items)
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("not each once, in order: %q", names)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "+") })
		if !slices.Equal(names, stay) {
			t.Errorf("of the keys that stay, with a limit of %d: %q", limit, names)
		}
	}
}

// TestListRefused checks that malformed requests are refused, with advice. A cursor must be valid
// only for its own list.
func TestListRefused(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	for _, name := range []string{"a1", "a2", "ab1", "ab2"} {
		l.put(name, "v")
	}
	page, _ := l.list(nodeapi.ListData{Prefix: "a", Limit: 2})
	if page == nil || page.Cursor == "" {
		t.Fatal("no cursor")
	}
	next, failed := l.list(nodeapi.ListData{Prefix: "a", Cursor: page.Cursor})
	if failed != nil || !slices.Equal(namesOf(next.Items), []string{"ab1", "ab2"}) || next.Cursor != "" {
		t.Error(next, failed)
	}
	const do = "or begin again without a cursor"
	for _, c := range []struct {
		d        nodeapi.ListData
		code     nodeapi.Code
		says, do string
	}{
		{nodeapi.ListData{Limit: -1}, nodeapi.CodeInvalidArgument, "it is 1 to 256", ""},
		{nodeapi.ListData{Limit: 257}, nodeapi.CodeTooLarge, "it is 1 to 256", "ask for less"},
		{nodeapi.ListData{Prefix: "~"}, nodeapi.CodePermissionDenied, "the node API's own", ""},
		{nodeapi.ListData{Prefix: strings.Repeat("x", 257)}, nodeapi.CodeTooLarge, "257 bytes", ""},
		{nodeapi.ListData{Namespace: "-a"}, nodeapi.CodeInvalidArgument, "DNS label", ""},
		{nodeapi.ListData{Cursor: "next, please"}, nodeapi.CodeInvalidArgument, `not a cursor of a list of the prefix ""`, do},
		{nodeapi.ListData{Cursor: "AQ"}, nodeapi.CodeInvalidArgument, "not a cursor", do},
		{nodeapi.ListData{Prefix: "a", Cursor: page.Cursor[:len(page.Cursor)-2]}, nodeapi.CodeInvalidArgument, "not a cursor", do},
		{nodeapi.ListData{Prefix: "ab", Cursor: page.Cursor}, nodeapi.CodeInvalidArgument, `the prefix "ab"`, do},
		{nodeapi.ListData{Prefix: "a", Namespace: "other", Cursor: page.Cursor}, nodeapi.CodeInvalidArgument, "the namespace other", do},
	} {
		_, e := l.list(c.d)
		if e == nil || e.Code != c.code || !strings.Contains(e.Message, c.says) || !strings.Contains(e.Do, c.do) {
			t.Errorf("%+v: %v, want %s: %s (%s)", c.d, e, c.code, c.says, c.do)
		}
	}
	// A forged cursor must not show a caller any other keys.
	l.send(`{"id":1,"func":"lock","data":{"name":"l"}}`)
	l.expectPart(`"held":true`)
	for _, after := range []string{"", "~", "\x00", "a1", "~lock/", "\xff"} {
		made := sealCursor(store.Range{Namespace: "default", After: after})
		got, failed := l.list(nodeapi.ListData{Cursor: made})
		if failed == nil && slices.ContainsFunc(namesOf(got.Items), func(n string) bool { return n[0] != 'a' }) {
			t.Errorf("after %q: %v", after, got)
		}
	}
}

// TestListOfLongValues checks that a page contains as many values as fit into an answer, however
// long the values are in JSON.
func TestListOfLongValues(t *testing.T) {
	const length = 16 << 10
	_, path := start(t, Config{Store: store.NewMemory(length + 1)})
	l := dial(t, path)
	want := map[string]string{}
	for n, b := range []string{"v", "\x01", `"`, "é"} {
		for i := range 20 {
			name := fmt.Sprintf("k%d%02d", n, i)
			want[name] = strings.Repeat(b, length/len(b))
			text, _ := json.Marshal(want[name])
			l.send(fmt.Sprintf(`{"id":1,"func":"put","data":{"key":%q,"value":%s}}`, name, text))
			l.expectPart(`"version"`)
		}
	}
	items, pages := l.listAll(nodeapi.ListData{Limit: 256})
	if len(items) != len(want) || pages < 10 || pages > 40 {
		t.Errorf("%d items in %d pages", len(items), pages)
	}
	for _, i := range items {
		if i.Value == nil || *i.Value != want[i.Key] {
			t.Errorf("the value of %s is another", i.Key)
		}
	}
	if items, pages := l.listAll(nodeapi.ListData{Limit: 256, KeysOnly: true}); len(items) != len(want) || pages != 2 {
		t.Errorf("of keys only: %d items in %d pages", len(items), pages)
	}
}

// TestListWithAKeyThatFails checks that if a key cannot be read, the other keys are still listed.
func TestListWithAKeyThatFails(t *testing.T) {
	st := store.NewMemory(100)
	_, path := start(t, Config{Store: st})
	l := dial(t, path)
	l.put("a", "v")
	l.put("c", "v")
	if _, err := st.Put(t.Context(), store.Key{Namespace: "default", Name: "b"}, []byte{0x7f}); err != nil {
		t.Fatal(err)
	}
	items, _ := l.listAll(nodeapi.ListData{})
	if !slices.Equal(namesOf(items), []string{"a", "b", "c"}) || items[1].Error == nil ||
		items[1].Error.Code != nodeapi.CodeInternal {
		t.Errorf("%+v", items)
	}
}

// asked is a store that counts its requests.
type asked struct {
	store.Store
	pages, keys atomic.Int64
}

func (s *asked) Page(ctx context.Context, r store.Range) (store.Page, error) {
	s.pages.Add(1)
	return s.Store.Page(ctx, r)
}

func (s *asked) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	s.keys.Add(1)
	return s.Store.Get(ctx, key, eventual)
}

// TestFloodOfLists checks a caller that lists continuously. It must not cause more requests to the
// controller than its quota allows, and each key must count as a request. Requests of another
// subject must not be refused.
func TestFloodOfLists(t *testing.T) {
	st := &asked{Store: namesOnly{store.NewMemory(100)}}
	_, dial := startShared(t, Config{Store: st, Quotas: authority.NewQuotas(func(subject string) authority.Quota {
		if subject == one {
			return authority.DefaultQuota
		}
		return authority.Quota{Connections: 64, RequestsPerSecond: 0.001, Burst: 2000, ListsPerSecond: 0.001}
	}, nil)})
	l := dial(one)
	for n := range 100 {
		l.put(fmt.Sprint("mine", n), "v")
	}
	attacker := dial(another)
	for n := range 200 {
		attacker.put(fmt.Sprint("k", n), "v")
	}
	if _, failed := attacker.list(nodeapi.ListData{Limit: 150}); failed != nil {
		t.Error(failed)
	}
	before := st.pages.Load()
	for range 10 {
		_, failed := attacker.list(nodeapi.ListData{Limit: 1})
		if failed == nil || failed.Code != nodeapi.CodeQuotaExceeded || !strings.Contains(failed.Message, "pages of keys a second") ||
			!strings.Contains(failed.Do, "more keys at once") {
			t.Errorf("%v", failed)
		}
	}
	if n := st.pages.Load() - before; n != 0 {
		t.Errorf("the store was asked %d times for who had asked too often", n)
	}
	for range 20 {
		if items, _ := l.listAll(nodeapi.ListData{Limit: 50}); len(items) != 100 {
			t.Errorf("another subject has %d of 100 keys listed", len(items))
		}
	}
	_, costly := startShared(t, Config{Store: st, Quotas: authority.NewQuotas(func(subject string) authority.Quota {
		return authority.Quota{Connections: 64, RequestsPerSecond: 0.001, Burst: 320, ListsPerSecond: 1000}
	}, nil)})
	attacker = costly(another)
	st.keys.Store(0)
	if _, failed := attacker.list(nodeapi.ListData{Limit: 200}); failed != nil {
		t.Error(failed)
	}
	_, failed := attacker.list(nodeapi.ListData{Limit: 200})
	if failed == nil || failed.Code != nodeapi.CodeQuotaExceeded || !strings.Contains(failed.Message, "requests a second") {
		t.Errorf("the second 200 keys of 320 requests: %v", failed)
	}
	if n := st.keys.Load(); n != 200 {
		t.Errorf("%d keys were read for it", n)
	}
}

// TestListShares checks that the concurrent lists of one subject leave a share for another subject,
// and do not use all helpers.
func TestListShares(t *testing.T) {
	slow := &slowStore{Store: namesOnly{store.NewMemory(100)}, hold: make(chan struct{})}
	s, dial := startShared(t, Config{Store: slow, Limits: Limits{Lists: 8}})
	l := dial(one)
	l.put("k", "v")
	first := dial(another)
	if _, err := slow.Store.Put(t.Context(), store.Key{Namespace: "of-127-0-0-2", Name: "slow"}, []byte("\x00v")); err != nil {
		t.Fatal(err)
	}
	for id := 1; id <= 100; id++ {
		first.send(fmt.Sprintf(`{"id":%d,"func":"list","timeoutMs":60000}`, id))
	}
	refused := 0
	for range 96 {
		if strings.Contains(first.receive(), `its share of the lists that are under way`) {
			refused++
		}
	}
	poll.Until(t, soon, "half of the lists wait", func() bool { return slow.waiting.Load() == 4 })
	if refused != 96 {
		t.Errorf("%d of 100 were refused", refused)
	}
	if items, _ := l.listAll(nodeapi.ListData{}); len(items) != 1 {
		t.Errorf("another subject: %v", items)
	}
	close(slow.hold)
	for range 4 {
		first.expectPart(`"key":"slow"`)
	}
	if !s.lists.Take("x", 4) {
		t.Error("what was taken is not given back")
	}
}

// TestListAuthority checks that each page of a list needs the right to read the namespace.
func TestListAuthority(t *testing.T) {
	a := &changing{t: t}
	a.set(`[{all: true, namespace: mine, access: {mine: write, stock: read}}]`)
	_, path := start(t, Config{Authority: a})
	l := dial(t, path)
	for _, name := range []string{"a", "b"} {
		l.put(name, "v")
	}
	page, failed := l.list(nodeapi.ListData{Limit: 1})
	if failed != nil || page.Cursor == "" {
		t.Fatal(page, failed)
	}
	if _, failed := l.list(nodeapi.ListData{Namespace: "stock"}); failed != nil {
		t.Error(failed)
	}
	denied := func(d nodeapi.ListData) {
		t.Helper()
		if _, failed := l.list(d); failed == nil || failed.Code != nodeapi.CodePermissionDenied {
			t.Errorf("%+v: %v", d, failed)
		}
	}
	denied(nodeapi.ListData{Namespace: "theirs"})
	a.set(`[{all: true, namespace: mine, access: {stock: read}}]`)
	denied(nodeapi.ListData{Cursor: page.Cursor})
}
