package server

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestTransact checks the comparisons, writes and answers of transactions.
func TestTransact(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	txn := func(data, want string) {
		t.Helper()
		l.ask(`{"id":1,"func":"transact","data":`+data+`}`, `{"id":1,"data":`+want+`}`)
	}
	is := func(key, want string) {
		t.Helper()
		l.ask(`{"id":2,"func":"get","data":{"key":"`+key+`"}}`, `{"id":2,"data":{"key":"`+key+`",`+want+`}}`)
	}
	txn(`{"write":[{"key":"a","value":"1"},{"key":"b","valueBase64":"/w=="},{"key":"c","value":""}]}`,
		`{"done":true,"versions":["1.1","1.1","1.1"]}`)
	is("b", `"found":true,"valueBase64":"/w==","version":"1.1"`)
	txn(`{"compare":[{"key":"a","version":"1.1"},{"key":"b","valueBase64":"/w=="},{"key":"c","value":""},`+
		`{"key":"d","absent":true},{"key":"e","version":"0.0"}],`+
		`"write":[{"key":"a","value":"2"},{"key":"b","delete":true},{"key":"e","value":"5"},{"key":"never","delete":true}]}`,
		`{"done":true,"versions":["1.2","1.2","1.1","0.0"]}`)
	is("a", `"found":true,"value":"2","version":"1.2"`)
	is("b", `"found":false,"version":"1.2"`)
	is("never", `"found":false,"version":"0.0"`)
	// These transactions have only comparisons. The first ones hold, and then follows one of each
	// kind that does not hold.
	txn(`{"compare":[{"key":"b","absent":true},{"key":"b2","absent":true}]}`, `{"done":true}`)
	for _, c := range []struct{ compare, failed string }{
		{`{"key":"a","version":"1.1"}`, `{"key":"a","found":true,"value":"2","version":"1.2"}`},
		{`{"key":"a","version":"0.0"}`, `{"key":"a","found":true,"value":"2","version":"1.2"}`},
		{`{"key":"a","version":"7.1"}`, `{"key":"a","found":true,"value":"2","version":"1.2"}`},
		{`{"key":"a","value":"3"}`, `{"key":"a","found":true,"value":"2","version":"1.2"}`},
		{`{"key":"a","absent":true}`, `{"key":"a","found":true,"value":"2","version":"1.2"}`},
		{`{"key":"b","value":""}`, `{"key":"b","found":false,"version":"1.2"}`},
		{`{"key":"b","version":"0.0"}`, `{"key":"b","found":false,"version":"1.2"}`},
		{`{"key":"a","version":"1.2"},{"key":"b","value":"x"},{"key":"e","version":"9.9"}`,
			`{"key":"b","found":false,"version":"1.2"},{"key":"e","found":true,"value":"5","version":"1.1"}`},
	} {
		txn(`{"compare":[`+c.compare+`],"write":[{"key":"a","value":"no"},{"key":"new","value":"no"},{"key":"c","delete":true}]}`,
			`{"done":false,"failed":[`+c.failed+`]}`)
	}
	is("a", `"found":true,"value":"2","version":"1.2"`)
	is("c", `"found":true,"value":"","version":"1.1"`)
	is("new", `"found":false,"version":"0.0"`)

	lease := l.grant()
	txn(`{"write":[{"key":"bound","value":"x","lease":"`+lease+`"},{"key":"free","value":"x"}]}`,
		`{"done":true,"versions":["1.1","1.1"]}`)
	txn(`{"compare":[{"key":"bound","value":"x"}],"write":[{"key":"free","value":"y"}]}`, `{"done":true,"versions":["1.2"]}`)
	l.ask(`{"id":1,"func":"revoke","data":{"lease":"`+lease+`"}}`, `{"id":1,"data":{}}`)
	txn(`{"compare":[{"key":"bound","absent":true}],"write":[{"key":"free","value":"z"}]}`, `{"done":true,"versions":["1.3"]}`)
	l.send(`{"id":3,"func":"transact","data":{"write":[{"key":"free","value":"q"},{"key":"bound","value":"x","lease":"` + lease + `"}]}}`)
	l.expectPart(`"code":"lease_gone"`)
	is("free", `"found":true,"value":"z","version":"1.3"`)
}

// TestTransactRefusals checks that invalid transactions are refused with a reason, and write
// nothing.
func TestTransactRefusals(t *testing.T) {
	m := store.NewMemory(20_000)
	_, path := start(t, Config{Store: m})
	l := dial(t, path)
	many := func(n int, list, rest string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"key":"%s%d",%s}`, list, i, rest))
		}
		return `"` + list + `":[` + strings.Join(all, ",") + `]`
	}
	long := func(n int) string { return `"value":"` + strings.Repeat("x", n) + `"` }
	for _, c := range []struct{ data, code, says string }{
		{`{}`, "invalid_argument", "nothing to compare and nothing to write"},
		{`{"compare":[],"write":[]}`, "invalid_argument", "nothing to compare"},
		{`{` + many(32, "compare", `"absent":true`) + `,` + many(33, "write", `"value":"v"`) + `}`, "too_large", "at most 64 together"},
		{`{` + many(8, "write", long(nodeapi.MaxTransactBytes/8-5)) + `}`, "too_large", "at most 131072"},
		{`{"write":[{"key":"k","value":"1"},{"key":"k","delete":true}]}`, "invalid_argument", `\"k\" is written twice`},
		{`{"compare":[{"key":"k","absent":true},{"key":"k","version":"0.0"}]}`, "invalid_argument", "compared twice"},
		{`{"compare":[{"key":"k"}]}`, "invalid_argument", "0 conditions"},
		{`{"compare":[{"key":"k","absent":false}]}`, "invalid_argument", "0 conditions"},
		{`{"compare":[{"key":"k","version":"1.1","value":""}]}`, "invalid_argument", "2 conditions"},
		{`{"compare":[{"key":"k","value":"","valueBase64":""}]}`, "invalid_argument", "give one of them"},
		{`{"compare":[{"key":"k","version":"newest"}]}`, "invalid_argument", "not a version"},
		{`{"write":[{"key":"k"}]}`, "invalid_argument", "there is no value"},
		{`{"write":[{"key":"k","value":"v","delete":true}]}`, "invalid_argument", "no value"},
		{`{"write":[{"key":"k","lease":"0123456789ab","delete":true}]}`, "invalid_argument", "no lease"},
		{`{"write":[{"key":"","value":"v"}]}`, "invalid_argument", "no name"},
		{`{"write":[{"key":"a","value":"v"},{"key":"~lock/l","value":"v"}]}`, "permission_denied", "node API's own"},
		{`{"compare":[{"key":"~lock/l","absent":true}]}`, "permission_denied", "node API's own"},
		{`{"write":[{"key":"a","value":"v"},{"key":"b",` + long(20_000) + `}]}`, "too_large", "takes 20000 bytes"},
		{`{"write":[{"key":"a","value":"v"},{"key":"b","value":"v","lease":"nonsense"}]}`, "invalid_argument", "lease"},
		{`{"namespace":"../x","write":[{"key":"a","value":"v"}]}`, "invalid_argument", ""},
		{`{"write":[{"key":"a","value":"v","version":"1.1"}]}`, "invalid_argument", "version"},
		{`{"write":{"key":"a"}}`, "invalid_argument", ""},
	} {
		l.send(`{"id":1,"func":"transact","data":` + c.data + `}`)
		if got := l.receive(); !strings.Contains(got, `"code":"`+c.code+`"`) || !strings.Contains(got, c.says) {
			t.Errorf("%.100s: answered %.300s; want %s that says %s", c.data, got, c.code, c.says)
		}
	}
	if keys, _ := m.List(t.Context(), "default", ""); len(keys) > 0 {
		t.Errorf("written: %v", keys)
	}
	// A transaction of the maximum size must succeed.
	l.send(`{"id":1,"func":"transact","data":{` + many(32, "compare", `"absent":true`) + `,` + many(32, "write", long(4000)) + `}}`)
	l.expectPart(`"done":true`)
}

// TestTransactLongAnswer checks that the answer to a failed transaction fits into a message, and
// lists all keys whose comparison failed.
func TestTransactLongAnswer(t *testing.T) {
	_, path := start(t, Config{Store: store.NewMemory(16 << 10)})
	l := dial(t, path)
	var compare []nodeapi.Comparison
	for i := range nodeapi.MaxTransact {
		name := strings.Repeat(`"`, nodeapi.MaxKeyName-2) + fmt.Sprintf("%02d", i)
		data, _ := json.Marshal(nodeapi.PutData{Key: nodeapi.Key{Key: name}, Value: new(strings.Repeat("\x01", 10_000))})
		l.send(`{"id":1,"func":"put","data":` + string(data) + `}`)
		l.expectPart(`"version"`)
		compare = append(compare, nodeapi.Comparison{Key: name, Absent: true})
	}
	data, _ := json.Marshal(nodeapi.TransactData{Compare: compare})
	l.send(`{"id":1,"func":"transact","data":` + string(data) + `}`)
	text := l.receive()
	var answer struct{ Data nodeapi.TransactAnswer }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(text) >= nodeapi.MaxMessage {
		t.Fatal(len(text), err)
	}
	with := 0
	for i, item := range answer.Data.Failed {
		if item.Key != compare[i].Key || !item.Found || item.Version != "1.1" || (item.Value != nil) != (i < 3) {
			t.Fatalf("%d: %.100q, %v, %s", i, item.Key, item.Found, item.Version)
		}
		if item.Value != nil {
			with++
		}
	}
	if len(answer.Data.Failed) != nodeapi.MaxTransact || with != 3 {
		t.Errorf("%d items, %d with their value", len(answer.Data.Failed), with)
	}
}

// verbs is an authority that permits all callers the listed verbs in each namespace.
type verbs map[string][]authority.Verb

func (verbs) Namespace(context.Context, authority.Caller) (string, error) { return "blue", nil }
func (verbs) Subject(authority.Caller) string                             { return "s" }
func (v verbs) Authorize(_ context.Context, _ authority.Caller, verb authority.Verb, ns string) error {
	for _, may := range v[ns] {
		if may == verb {
			return nil
		}
	}
	return nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "may not %s in %s", verb, ns)
}

// TestTransactRights checks the rights that a transaction needs. These are the right to read
// compared keys, and the rights to write and create written keys. A refusal must reveal nothing
// about the keys, and nothing may be written.
func TestTransactRights(t *testing.T) {
	m := store.NewMemory(100)
	ctx := t.Context()
	put := func(ns, name string) {
		t.Helper()
		c := cell.Cell{Value: []byte("secret")}
		if _, err := m.Put(ctx, store.Key{Namespace: ns, Name: name}, c.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"blue", "reads", "writes", "makes", "nothing"} {
		put(ns, "k")
	}
	_, path := start(t, Config{Store: m, Authority: verbs{"reads": {authority.Read}, "writes": {authority.Write},
		"makes": {authority.Write, authority.Create}, "blue": {authority.Read, authority.Write, authority.Create}}})
	l := dial(t, path)
	const fails, holds = `"compare":[{"key":"k","value":"wrong"}]`, `"compare":[{"key":"k","value":"secret"}]`
	const absent, byVersion = `"compare":[{"key":"x","absent":true}]`, `"compare":[{"key":"k","version":"1.1"}]`
	const writes, makes = `"write":[{"key":"k","value":"w"}]`, `"write":[{"key":"k","value":"w"},{"key":"new","value":"w"}]`
	for _, c := range []struct{ ns, data, want string }{
		{"reads", fails, `"failed":[{"key":"k","found":true,"value":"secret"`},
		{"reads", holds, `{"done":true}`},
		{"reads", holds + `,` + writes, `may not write in reads`},
		{"writes", fails, `may not read in writes`},
		{"writes", holds + `,` + writes, `may not read in writes`},
		{"writes", absent + `,` + writes, `may not read in writes`},
		{"writes", byVersion + `,` + writes, `may not read in writes`},
		{"writes", makes, `may not create in writes`},
		{"writes", writes, `{"done":true,"versions":["1.2"]}`},
		{"makes", makes, `{"done":true,"versions":["1.2","1.1"]}`},
		{"nothing", fails, `may not read in nothing`},
		{"nothing", makes, `may not write in nothing`},
		{"blue", fails + `,` + writes, `"done":false`},
	} {
		l.send(`{"id":1,"func":"transact","data":{"namespace":"` + c.ns + `",` + c.data + `}}`)
		got := l.receive()
		if !strings.Contains(got, c.want) || strings.Contains(c.want, "may not") && strings.Contains(got, "secret") {
			t.Errorf("%s, %s: answered %s; want %s", c.ns, c.data, got, c.want)
		}
	}
	for ns, want := range map[string]string{"reads": "1.1", "writes": "1.2", "makes": "1.2", "nothing": "1.1", "blue": "1.1"} {
		i, err := m.Get(ctx, store.Key{Namespace: ns, Name: "k"}, false)
		if err != nil || version(i.Version) != want {
			t.Errorf("%s: %+v, %v", ns, i, err)
		}
	}

	// With a policy, a transaction needs the same rights as a put.
	policy := &changing{t: t}
	policy.set(`[{user: "` + fmt.Sprint(os.Getuid()) + `", namespace: blue, access: {blue: write, green: read}}]`)
	_, path = start(t, Config{Authority: policy})
	l = dial(t, path)
	for ns, refused := range map[string]bool{"blue": false, "green": true, "red": true} {
		l.send(`{"id":1,"func":"transact","data":{"namespace":"` + ns + `",` + makes + `}}`)
		if got := l.receive(); strings.Contains(got, `"code":"permission_denied"`) != refused {
			t.Errorf("%s: %s", ns, got)
		}
	}
}

// TestTransactCounts checks that each key of a transaction counts as a request, as in getMany.
func TestTransactCounts(t *testing.T) {
	quotas := authority.NewQuotas(func(string) authority.Quota {
		return authority.Quota{Connections: 10, Watches: 10, RequestsPerSecond: 0.001, Burst: 10}
	}, nil)
	_, path := start(t, Config{Quotas: quotas})
	l := dial(t, path)
	const six = `{"id":1,"func":"transact","data":{"compare":[{"key":"a","absent":true},{"key":"b","absent":true},` +
		`{"key":"c","absent":true}],"write":[{"key":"d","value":""},{"key":"e","value":""},{"key":"f","value":""}]}}`
	l.send(six)
	l.expectPart(`"done":true`)
	l.send(six)
	l.expectPart(`"code":"quota_exceeded"`)
}

// TestTransactOnce checks that a transaction that is sent again with the same Once is executed only
// once.
func TestTransactOnce(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	l.send(`{"id":1,"func":"hello","data":{"client":"` + clientA + `"}}`)
	l.receive()
	const request = `{"id":2,"func":"transact","once":1,"data":{"compare":[{"key":"a","absent":true}],"write":[{"key":"a","value":"1"}]}}`
	for range 2 {
		l.ask(request, `{"id":2,"data":{"done":true,"versions":["1.1"]}}`)
	}
	const failing = `{"id":2,"func":"transact","once":2,"data":{"compare":[{"key":"a","absent":true}],"write":[{"key":"b","value":"1"}]}}`
	l.ask(failing, `{"id":2,"data":{"done":false,"failed":[{"key":"a","found":true,"value":"1","version":"1.1"}]}}`)
	l.ask(`{"id":3,"func":"delete","data":{"key":"a"}}`, `{"id":3,"data":{"deleted":true,"key":"a","found":false,"version":"1.2"}}`)
	l.ask(failing, `{"id":2,"data":{"done":false,"failed":[{"key":"a","found":true,"value":"1","version":"1.1"}]}}`)
	l.send(strings.Replace(failing, `"b"`, `"c"`, 1))
	l.expectPart(`once 2 was another request`)
}

// volatileOnly is a store that has only volatile keys.
type volatileOnly struct{ store.Store }

func (volatileOnly) Transact(_ context.Context, t store.Transaction) (store.Transacted, error) {
	return store.Transacted{}, store.Volatile(store.Key{Namespace: t.Namespace, Name: t.Names()[0]})
}

// TestTransactVolatile checks that volatile keys are refused, whether or not the comparisons would
// hold.
func TestTransactVolatile(t *testing.T) {
	_, path := start(t, Config{Store: volatileOnly{store.NewMemory(100)}})
	l := dial(t, path)
	for _, data := range []string{`"write":[{"key":"k","value":"v"}]`, `"compare":[{"key":"k","absent":true}]`,
		`"compare":[{"key":"k","value":"v"}],"write":[{"key":"l","delete":true}]`, `"compare":[{"key":"k","version":"1.1"}]`} {
		l.send(`{"id":1,"func":"transact","data":{` + data + `}}`)
		l.expectPart(`"code":"invalid_argument","message":"no transaction can have the key \"k\" of the namespace default: it is volatile`)
	}
}

// TestTransactTransfers checks many connections that move amounts between two accounts by
// transactions. The sum must stay the same, whichever kind of comparison they use.
func TestTransactTransfers(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	l.ask(`{"id":1,"func":"transact","data":{"write":[{"key":"a","value":"100"},{"key":"b","value":"100"}]}}`,
		`{"id":1,"data":{"done":true,"versions":["1.1","1.1"]}}`)
	var work sync.WaitGroup
	for who := range 8 {
		work.Go(func() {
			l := dial(t, path)
			for moved := 0; moved < 20; {
				got, failed := l.getMany("a", "b")
				if failed != nil {
					t.Error(failed)
					return
				}
				d := nodeapi.TransactData{}
				for n, i := range got {
					var balance int
					fmt.Sscan(*i.Value, &balance)
					if (n == 0) == (who%2 == 0) {
						balance--
					} else {
						balance++
					}
					c := nodeapi.Comparison{Key: i.Key, Version: i.Version}
					if who < 4 {
						c.Version, c.Value = "", i.Value
					}
					d.Compare = append(d.Compare, c)
					d.Write = append(d.Write, nodeapi.TransactWrite{Key: i.Key, Value: new(fmt.Sprint(balance))})
				}
				data, _ := json.Marshal(d)
				l.send(`{"id":3,"func":"transact","data":` + string(data) + `}`)
				switch text := l.receive(); {
				case strings.Contains(text, `"done":true`):
					moved++
				case !strings.Contains(text, `"failed":[{`):
					t.Error(text)
					return
				}
			}
		})
	}
	work.Wait()
	// the same amount was moved in both directions, so both accounts are unchanged
	for _, key := range []string{"a", "b"} {
		l.send(`{"id":1,"func":"get","data":{"key":"` + key + `"}}`)
		l.expectPart(`"value":"100"`)
	}
}

func (l *line) getMany(keys ...string) ([]nodeapi.Item, *nodeapi.Error) {
	l.t.Helper()
	data, _ := json.Marshal(nodeapi.GetManyData{Keys: keys})
	l.send(`{"id":2,"func":"getMany","data":` + string(data) + `}`)
	var answer struct {
		Data  nodeapi.GetManyAnswer
		Error *nodeapi.Error
	}
	if err := json.Unmarshal([]byte(l.receive()), &answer); err != nil {
		l.t.Error(err)
	}
	return answer.Data.Items, answer.Error
}
