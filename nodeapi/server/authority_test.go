package server

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

// changing is a policy that the test can change.
type changing struct {
	t  *testing.T
	mu sync.Mutex
	p  *authority.Policy
}

func (c *changing) set(callers string) {
	c.t.Helper()
	p, err := authority.ParsePolicy([]byte("callers: "+callers), authority.System{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.p = p
}

func (c *changing) now() *authority.Policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.p
}

func (c *changing) Namespace(ctx context.Context, who authority.Caller) (string, error) {
	return c.now().Namespace(ctx, who)
}

func (c *changing) Authorize(ctx context.Context, who authority.Caller, v authority.Verb, ns string) error {
	return c.now().Authorize(ctx, who, v, ns)
}

func (c *changing) Subject(who authority.Caller) string { return c.now().Subject(who) }

// TestAuthority checks that a caller can do only what the policy permits.
func TestAuthority(t *testing.T) {
	me := fmt.Sprintf(`user: "%d"`, os.Getuid())
	policy := &changing{t: t}
	policy.set(`[{` + me + `, namespace: blue, access: {blue: write, green: read}}]`)
	_, path := start(t, Config{Authority: policy})
	l := dial(t, path)
	l.ask(`{"id":1,"func":"put","data":{"key":"a","value":"x"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	l.ask(`{"id":2,"func":"get","data":{"namespace":"green","key":"a"}}`,
		`{"id":2,"data":{"key":"a","found":false,"version":"0.0"}}`)
	for _, request := range []string{
		`{"id":3,"func":"put","data":{"namespace":"green","key":"a","value":"x"}}`,
		`{"id":3,"func":"cas","data":{"namespace":"green","key":"a","value":"x","version":"0.0"}}`,
		`{"id":3,"func":"delete","data":{"namespace":"green","key":"a"}}`,
		`{"id":3,"func":"increment","data":{"namespace":"green","key":"a"}}`,
		`{"id":3,"func":"get","data":{"namespace":"red","key":"a"}}`,
		`{"id":3,"func":"getMany","data":{"namespace":"red","keys":["a"]}}`,
	} {
		l.send(request)
		l.expectPart(`"code":"permission_denied"`)
	}
	for _, ns := range []string{"../green", "Green", "gr\u0435en", "green\u0000", "green/", "*"} {
		l.send(`{"id":4,"func":"get","data":{"namespace":"` + ns + `","key":"a"}}`)
		l.expectPart(`"code":"invalid_argument"`)
		l.send(`{"id":4,"func":"hello","data":{"namespace":"` + ns + `"}}`)
		l.expectPart(`"code":"invalid_argument"`)
	}
	// A namespace in the hello gives no rights.
	l.send(`{"id":5,"func":"hello","data":{"namespace":"red"}}`)
	l.receive()
	l.send(`{"id":6,"func":"get","data":{"key":"a"}}`)
	l.expectPart(`(rule policy)`)

	// After a right is revoked, a watch must end before it reports anything more.
	l.send(`{"id":7,"func":"watch","data":{"namespace":"blue","keys":["a"]}}`)
	l.expectPart(`"started":true`)
	l.expectPart(`"value":"x"`)
	policy.set(`[{` + me + `, namespace: red, access: {red: read}}, {tcp: true, access: {blue: write}}]`)
	l.send(`{"id":8,"func":"put","data":{"namespace":"blue","key":"a","value":"y"}}`)
	l.expectPart(`"code":"permission_denied"`)

	// A caller that the policy does not name must be refused, with the reason.
	policy.set(`[{tcp: true, access: {"*": write}}]`)
	stranger := dial(t, path)
	stranger.expectPart(`the policy does not name uid`)
	stranger.expectEnd()
}

// TestWatchEndsWithTheRight revokes the right to watch, and then changes a key. The watch must end
// without reporting the change.
func TestWatchEndsWithTheRight(t *testing.T) {
	me := fmt.Sprintf(`user: "%d"`, os.Getuid())
	policy := &changing{t: t}
	policy.set(`[{` + me + `, namespace: blue, access: {blue: write}}]`)
	s, path := start(t, Config{Authority: policy})
	l := dial(t, path)
	l.ask(`{"id":1,"func":"put","data":{"key":"a","value":"x"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	l.send(`{"id":2,"func":"watch","data":{"keys":["a"]}}`)
	l.expectPart(`"started":true`)
	l.expectPart(`"value":"x"`)
	policy.set(`[{` + me + `, access: {red: read}}]`)
	if _, err := s.config.Store.Put(context.Background(), blueKey("a"), []byte("secret")); err != nil {
		t.Fatal(err)
	}
	got := l.receive()
	if strings.Contains(got, "secret") || !strings.Contains(got, `"code":"permission_denied"`) {
		t.Errorf("a watch without a right: %s", got)
	}
}

// TestCreate checks a caller that may write existing keys but may not create keys.
func TestCreate(t *testing.T) {
	s, path := start(t, Config{Authority: noCreating{everybody{"blue"}}})
	l := dial(t, path)
	for _, request := range []string{`{"id":1,"func":"put","data":{"key":"a","value":"x"}}`,
		`{"id":1,"func":"cas","data":{"key":"a","value":"x","version":"0.0"}}`, `{"id":1,"func":"increment","data":{"key":"a"}}`} {
		l.send(request)
		l.expectPart("it may make none")
	}
	if _, err := s.config.Store.Put(context.Background(), blueKey("a"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	l.ask(`{"id":2,"func":"put","data":{"key":"a","value":"2"}}`, `{"id":2,"data":{"version":"1.2"}}`)
}

func blueKey(name string) store.Key { return store.Key{Namespace: "blue", Name: name} }

type noCreating struct{ everybody }

func (noCreating) Authorize(_ context.Context, _ authority.Caller, v authority.Verb, _ string) error {
	if v == authority.Create {
		return &nodeapi.Error{Code: nodeapi.CodePermissionDenied, Message: "it may make none"}
	}
	return nil
}

// TestQuotasOfNamespaces checks that requests beyond the quotas of a namespace are refused.
func TestQuotasOfNamespaces(t *testing.T) {
	_, path := start(t, Config{Quotas: authority.NewQuotas(func(string) authority.Quota {
		return authority.Quota{Connections: 2, Watches: 3, RequestsPerSecond: 0.001, Burst: 10}
	}, nil)})
	l, second := dial(t, path), dial(t, path)
	second.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	l.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	third := dial(t, path)
	third.expectPart("2 connections to this node, of at most 2")
	third.expectEnd()
	l.send(`{"id":2,"func":"watch","data":{"keys":["a","b","c"]}}`)
	l.expectPart(`"started":true`)
	l.expectPart(`"events"`)
	second.send(`{"id":3,"func":"watch","data":{"keys":["d"]}}`)
	second.expectPart("3 watches at this node, of at most 3, and asks for 1 more")
	l.send(`{"id":4,"func":"cancel","data":{"id":2}}`)
	l.receive()
	l.receive()
	second.send(`{"id":5,"func":"watch","data":{"keys":["d"]}}`)
	second.expectPart(`"started":true`)
	for i := range 10 {
		l.send(fmt.Sprintf(`{"id":%d,"func":"get","data":{"key":"a"}}`, 10+i))
	}
	refusals := 0
	for range 10 {
		if strings.Contains(l.receive(), "more than 0.001 requests a second") {
			refusals++
		}
	}
	if refusals != 6 { // pings and a cancel count as requests, too
		t.Errorf("%d of a flood are refused, want 6", refusals)
	}
}

// TestPolicyServed checks that the server asks its policy for each function. Functions that only
// read must need the right to read, and all others the right to write.
func TestPolicyServed(t *testing.T) {
	p := &changing{t: t}
	p.set(fmt.Sprintf(`[{user: "%d", namespace: shop, access: {shop: read}}]`, os.Getuid()))
	_, path := start(t, Config{Authority: p})
	l := dial(t, path)
	l.send(`{"id":1,"func":"hello"}`)
	l.expectPart(`"namespace":"shop"`)
	keys := `"key":"k","keys":["k"],"value":"v","version":"0.0","name":"n","ttlMs":1000,"lease":"000000000000","token":"1",` +
		`"service":"s","address":"a:1","instance":"i","permits":1,"stream":"s","records":[{"value":"v"}],` +
		// the space makes the split below treat this text as one field
		`"write":[{"key":"k", "delete":true}]`
	data := map[string]string{"get": `"key":"k"`, "getMany": `"keys":["k"]`, "leader": `"name":"n"`, "getService": `"service":"s"`}
	for name, only := range data {
		l.send(fmt.Sprintf(`{"id":2,"func":"%s","data":{%s}}`, name, only))
		l.expectPart(`{"id":2,"data":{`)
		l.send(fmt.Sprintf(`{"id":2,"func":"%s","data":{"namespace":"other",%s}}`, name, only))
		l.expectPart(`"permission_denied"`)
	}
	for name, f := range functions {
		if f.inline != nil || data[name] != "" {
			continue
		}
		// Keep only the fields that the function has.
		var fields []string
		for field := range strings.SplitSeq(keys, `,"`) {
			field = `"` + strings.TrimPrefix(field, `"`)
			if _, err := f.read(rpc.JSONLines{}, []byte("{"+field+"}")); err == nil {
				fields = append(fields, field)
			}
		}
		ns := "shop"
		if !f.writes {
			ns = "other"
		}
		fields = append(fields, fmt.Sprintf(`"namespace":%q`, ns))
		l.send(fmt.Sprintf(`{"id":3,"func":"%s","data":{%s}}`, name, strings.Join(fields, ",")))
		if got := l.receive(); !strings.Contains(got, `"code":"permission_denied"`) {
			t.Errorf("%s is answered %s", name, got)
		}
	}
}

// several is an authority for tests that act as one caller after another.
type several struct {
	authority.Files
	who atomic.Value
}

func (s *several) Subject(authority.Caller) string { return s.who.Load().(string) }

// TestConsumersOfOthers checks two callers that may read the same stream. One caller must not be
// able to move the other caller's consumer by using its name, or to end its subscription.
func TestConsumersOfOthers(t *testing.T) {
	who := &several{Files: authority.Files{Own: "blue"}}
	who.who.Store("one")
	_, path := start(t, Config{Authority: who, Streams: &broker.Options{}})
	l := dial(t, path)
	l.send(`{"id":1,"func":"openStream","data":{"stream":"s","config":{}}}`)
	l.expectPart(`"made":true`)
	l.send(`{"id":1,"func":"append","data":{"stream":"s","records":[{"value":"a"},{"value":"b"},{"value":"c"}]}}`)
	l.expectPart(`"appended":3`)
	read := func(name, more string) int {
		t.Helper()
		l.send(`{"id":2,"func":"read","data":{"stream":"s","maxRecords":1,"consumer":"` + name + `"` + more + `}}`)
		answer := l.receive()
		found := regexp.MustCompile(`"offset":(\d+)`).FindStringSubmatch(answer)
		if found == nil {
			t.Fatal(answer)
		}
		n, _ := strconv.Atoi(found[1])
		return n
	}
	if at := read("me", `,"offset":1`); at != 1 {
		t.Fatalf("it reads at %d", at)
	}
	who.who.Store("other")
	for _, name := range []string{"me", `one\u0000me`} {
		if at := read(name, ""); at != 0 {
			t.Errorf("another caller's %q begins at %d", name, at)
		}
		read(name, `,"offset":3`)
	}
	who.who.Store("one")
	if at := read("me", ""); at != 1 {
		t.Errorf("it reads on at %d", at)
	}
}
