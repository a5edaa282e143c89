package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

const soon = 20 * time.Second // generous limit for what happens at once on an idle machine

// start makes a server on a Unix socket. It is closed at the end of the test.
func start(t testing.TB, c Config) (*Server, string) {
	t.Helper()
	if c.Store == nil {
		c.Store = store.NewMemory(1024 + cell.Plain.Overhead())
	}
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.Streams == nil {
		c.Streams = &broker.Options{Dir: filepath.Join(t.TempDir(), "streams")}
	}
	s := New(c)
	path := filepath.Join(t.TempDir(), "node.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != ErrClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, path
}

// line is a client's connection that uses JSON.
type line struct {
	t testing.TB
	net.Conn
	r       *bufio.Reader
	cursors []string // cursors that the method leases has received
}

func dial(t testing.TB, path string) *line {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * soon))
	return &line{t, nc, bufio.NewReader(nc), nil}
}

func (l *line) send(text string) {
	l.t.Helper()
	if _, err := l.Write([]byte(text + "\n")); err != nil {
		l.t.Fatalf("sending %.100q: %v", text, err)
	}
}

func (l *line) receive() string {
	l.t.Helper()
	text, err := l.r.ReadString('\n')
	if err != nil {
		l.t.Fatalf("receiving: %v (%q)", err, text)
	}
	return strings.TrimSuffix(text, "\n")
}

// ask sends a request, and checks the answer.
func (l *line) ask(request, want string) {
	l.t.Helper()
	l.send(request)
	l.expect(want)
}

func (l *line) expect(want string) {
	l.t.Helper()
	if got := l.receive(); got != want {
		l.t.Errorf("answered\n     %s\nwant %s", got, want)
	}
}

// expectPart waits for a message, and checks that it contains the text want.
func (l *line) expectPart(want string) {
	l.t.Helper()
	if got := l.receive(); !strings.Contains(got, want) {
		l.t.Errorf("answered\n     %s\nwant ...%s...", got, want)
	}
}

// expectAll waits for as many messages as there are texts. Each message must contain a different
// text, in any order.
func (l *line) expectAll(texts ...string) {
	l.t.Helper()
	var got []string
	for range texts {
		got = append(got, l.receive())
	}
	for _, want := range texts {
		if !slices.ContainsFunc(got, func(one string) bool { return strings.Contains(one, want) }) {
			l.t.Errorf("answered\n     %s\nwithout %s", strings.Join(got, "\n     "), want)
		}
	}
}

// expectEnd waits until the server ends the connection.
func (l *line) expectEnd() {
	l.t.Helper()
	if text, err := l.r.ReadString('\n'); err == nil {
		l.t.Errorf("the connection goes on: %q", text)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		l.t.Error("the connection goes on")
	}
}

// TestKeys checks that every function for keys works as documented, and that its answers have the
// documented form.
func TestKeys(t *testing.T) {
	_, path := start(t, Config{Name: "test", Node: "n1"})
	l := dial(t, path)
	for _, c := range []struct{ request, want string }{
		{`{"id":1,"func":"hello","data":{"agent":"a test"}}`,
			`{"id":1,"data":{"server":"test","node":"n1","namespace":"default","known":false,"maxValue":1024,` +
				`"inFlight":1024,"maxMessage":262144,"durable":false,"maxList":256}}`},
		{`{"id":2,"func":"ping"}`, `{"id":2,"data":{}}`},
		{`{"id":3,"func":"get","data":{"key":"k"}}`, `{"id":3,"data":{"key":"k","found":false,"version":"0.0"}}`},
		{`{"id":4,"func":"put","data":{"key":"k","value":"v"}}`, `{"id":4,"data":{"version":"1.1"}}`},
		{`{"id":5,"func":"get","data":{"key":"k","eventual":true}}`,
			`{"id":5,"data":{"key":"k","found":true,"value":"v","version":"1.1"}}`},
		{`{"id":6,"func":"put","data":{"key":"k","valueBase64":"/w=="}}`, `{"id":6,"data":{"version":"1.2"}}`},
		{`{"id":7,"func":"get","data":{"key":"k"}}`,
			`{"id":7,"data":{"key":"k","found":true,"valueBase64":"/w==","version":"1.2"}}`},
		{`{"id":8,"func":"cas","data":{"key":"k","value":"","version":"1.1"}}`,
			`{"id":8,"data":{"swapped":false,"key":"k","found":true,"valueBase64":"/w==","version":"1.2"}}`},
		{`{"id":9,"func":"cas","data":{"key":"k","value":"","version":"1.2"}}`,
			`{"id":9,"data":{"swapped":true,"key":"k","found":true,"value":"","version":"1.3"}}`},
		{`{"id":10,"func":"delete","data":{"key":"k","version":"1.2"}}`,
			`{"id":10,"data":{"deleted":false,"key":"k","found":true,"value":"","version":"1.3"}}`},
		{`{"id":11,"func":"delete","data":{"key":"k","version":"1.3"}}`,
			`{"id":11,"data":{"deleted":true,"key":"k","found":false,"version":"1.4"}}`},
		{`{"id":12,"func":"increment","data":{"key":"n"}}`,
			`{"id":12,"data":{"number":1,"value":"1","version":"1.1"}}`},
		{`{"id":13,"func":"increment","data":{"key":"n","by":-9223372036854775808}}`,
			`{"id":13,"data":{"number":-9223372036854775807,"value":"-9223372036854775807","version":"1.2"}}`},
		{`{"id":14,"func":"increment","data":{"key":"n","by":-2}}`, `{"id":14,"error":{"code":"invalid_argument",` +
			`"message":"-9223372036854775807 and -2 are together beyond 64 bits"}}`},
		{`{"id":15,"func":"getMany","data":{"keys":["n","none"]}}`,
			`{"id":15,"data":{"items":[{"key":"n","found":true,"value":"-9223372036854775807","version":"1.2"},` +
				`{"key":"none","found":false,"version":"0.0"}]}}`},
		{`{"id":16,"func":"delete","data":{"key":"n"}}`,
			`{"id":16,"data":{"deleted":true,"key":"n","found":false,"version":"1.3"}}`},
		{`{"id":17,"func":"get","data":{"key":"k","namespace":"other"}}`,
			`{"id":17,"data":{"key":"k","found":false,"version":"0.0"}}`},
	} {
		l.ask(c.request, c.want)
	}
}

// TestRefused checks that malformed requests are refused with a reason, and that the connection
// continues.
func TestRefused(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	l.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	long := strings.Repeat("k", 257)
	for request, want := range map[string]string{
		`{"id":2,"func":"fly"}`: `there is no function \"fly\"`,
		`{"id":2}`:              `the request has no \"func\"`,
		`{"id":2,"func":"get","data":{"key":"k","kye":1}}`:                                     `unknown name \"kye\"`,
		`{"id":2,"func":"get","dat":{}}`:                                                       `unknown name \"dat\"`,
		`{"id":2,"func":"get","data":{"Key":"k"}}`:                                             `unknown name \"Key\"`,
		`{"id":2,"func":"get","data":{"key":"k","key":"l"}}`:                                   `duplicate object member name \"key\"`,
		`{"id":2,"func":"get","data":{"key":"` + "\xff" + `"}}`:                                `invalid UTF-8`,
		`{"id":2,"func":"get","data":{"key":"\ud800"}}`:                                        `invalid surrogate pair`,
		`{"id":2,"func":"get","data":{"key":""}}`:                                              `the key has no name`,
		`{"id":2,"func":"get"}`:                                                                `the key has no name`,
		`{"id":2,"func":"get","data":{"key":"a\u0000"}}`:                                       `no control characters`,
		`{"id":2,"func":"get","data":{"key":"` + long + `"}}`:                                  `"too_large"`,
		`{"id":2,"func":"get","data":{"key":"k","namespace":"-a"}}`:                            `DNS label`,
		`{"id":2,"func":"put","data":{"key":"k"}}`:                                             `there is no value`,
		`{"id":2,"func":"put","data":{"key":"k","value":"","valueBase64":"aa=="}}`:             `give one of them`,
		`{"id":2,"func":"put","data":{"key":"k","valueBase64":"a"}}`:                           `the data of put`,
		`{"id":2,"func":"put","data":{"key":"k","value":"` + strings.Repeat("v", 1025) + `"}}`: `of which 1024 are left for it`,
		`{"id":2,"func":"put","once":1,"data":{"key":"k","value":"v"}}`:                        `whose hello named no client`,
		`{"id":2,"func":"cas","data":{"key":"k","value":"v","version":"12"}}`:                  `is not a version`,
		`{"id":2,"func":"get","timeoutMs":60001,"data":{"key":"k"}}`:                           `it is at most 60000`,
		`{"id":2,"func":"get","timeoutMs":1e99,"data":{"key":"k"}}`:                            `"id":2`,
		`{"id":0,"func":"ping"}`:                                                               `an id is 1 to 2^53-1`,
		`{"id":9007199254740992,"func":"ping"}`:                                                `an id is 1 to 2^53-1`,
		`{"id":2,"func":"get","data":{"key":7}}`:                                               `the data of get: /key has the wrong type: number`,
		`{"id":-1,"func":"ping"}`:                                                              `this is not a request`,
		`{"id":1` + strings.Repeat("0", 400) + `,"func":"ping"}`:                               `this is not a request`,
		`[` + strings.Repeat("[", 200000):                                                      `this is not a request`,
		`{"id":2,"func":"hello","data":{"client":"me"}}`:                                       `32 hexadecimal digits`,
		`{"id":2,"func":"watch","data":{}}`:                                                    `a watch has keys or a prefix`,
		`{"id":2,"func":"getMany","data":{"keys":[` + strings.Repeat(`"k",`, 256) + `"k"]}}`:   `at most 256`,
		"\x00\x01": `this is not a request`,
	} {
		l.send(request)
		if got := l.receive(); !strings.Contains(got, want) || !strings.Contains(got, `"error":{"code":"`) {
			t.Errorf("%.100q is answered %q, want %q", request, got, want)
		}
	}
	for _, name := range []string{"~lock/a", "~"} {
		l.ask(`{"id":2,"func":"get","data":{"key":"`+name+`"}}`, `{"id":2,"error":{"code":"permission_denied","message":"\"`+name+
			`\": names that begin with ~ are the node API's own","do":"choose another name"}}`)
	}
	l.send(" \r") // an empty line is not a message
	l.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
}

// TestAnyOrder checks that requests under way do not wait for each other. Each answer must be sent
// as soon as it is ready.
func TestAnyOrder(t *testing.T) {
	slow := &slowStore{Store: store.NewMemory(100), hold: make(chan struct{})}
	_, path := start(t, Config{Store: slow})
	l := dial(t, path)
	l.send(`{"id":1,"func":"get","data":{"key":"slow"}}`)
	l.ask(`{"id":2,"func":"get","data":{"key":"k"}}`, `{"id":2,"data":{"key":"k","found":false,"version":"0.0"}}`)
	l.send(`{"id":1,"func":"ping"}`) // a function that is executed inline never counts as under way
	l.expect(`{"id":1,"data":{}}`)
	l.ask(`{"id":1,"func":"get","data":{"key":"k"}}`,
		`{"id":1,"error":{"code":"invalid_argument","message":"id 1: a request of this id is under way on this connection"}}`)
	l.send(`{"id":3,"func":"get","data":{"key":"slow"}}`)
	l.send(`{"id":4,"func":"cancel","data":{"id":3}}`)
	l.expectAll(`{"id":4,"data":{}}`, `{"id":3,"error":{"code":"canceled","message":"the request was canceled"}}`)
	l.ask(`{"id":5,"func":"get","timeoutMs":1,"data":{"key":"slow"}}`,
		`{"id":5,"error":{"code":"timeout","message":"the request's time has run out"}}`)
	l.send(`{"id":6,"func":"put","timeoutMs":1,"data":{"key":"slow","value":"v"}}`)
	l.expectPart(`{"id":6,"error":{"code":"outcome_unknown"`)
	close(slow.hold)
	l.expect(`{"id":1,"data":{"key":"slow","found":false,"version":"0.0"}}`)
}

// slowStore is a store in which calls for the key "slow" wait until the channel hold is closed.
type slowStore struct {
	store.Store
	hold    chan struct{}
	waiting atomic.Int32
}

func (s *slowStore) wait(ctx context.Context, key store.Key) error {
	if key.Name != "slow" {
		return nil
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-s.hold:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("slow: %w", ctx.Err())
	}
}

func (s *slowStore) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	if err := s.wait(ctx, key); err != nil {
		return store.Item{}, err
	}
	return s.Store.Get(ctx, key, eventual)
}

func (s *slowStore) Put(ctx context.Context, key store.Key, value []byte) (wire.Version, error) {
	if err := s.wait(ctx, key); err != nil {
		return 0, err
	}
	return s.Store.Put(ctx, key, value)
}

// TestWatch checks that a watch begins with the state, continues with changes, and ends when it is
// canceled.
func TestWatch(t *testing.T) {
	_, path := start(t, Config{})
	w, l := dial(t, path), dial(t, path)
	l.ask(`{"id":1,"func":"put","data":{"key":"a/1","value":"x"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	w.send(`{"id":7,"func":"watch","data":{"prefix":"a/"}}`)
	w.expect(`{"id":7,"data":{"started":true},"more":true}`)
	w.expect(`{"id":7,"data":{"events":[{"key":"a/1","found":true,"value":"x","version":"1.1"}]},"more":true}`)
	l.ask(`{"id":1,"func":"put","data":{"key":"b","value":"x"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	l.ask(`{"id":1,"func":"delete","data":{"key":"a/1"}}`,
		`{"id":1,"data":{"deleted":true,"key":"a/1","found":false,"version":"1.2"}}`)
	w.expect(`{"id":7,"data":{"events":[{"key":"a/1","found":false,"version":"1.2"}]},"more":true}`)
	w.send(`{"id":8,"func":"watch","data":{"keys":["b","c"],"after":{"b":"1.1"}}}`)
	w.expect(`{"id":8,"data":{"started":true},"more":true}`)
	w.expect(`{"id":8,"data":{"events":[{"key":"c","found":false,"version":"0.0"}]},"more":true}`)
	w.send(`{"id":9,"func":"cancel","data":{"id":7}}`)
	w.expectAll(`{"id":9,"data":{}}`, `{"id":7,"error":{"code":"canceled","message":"the request was canceled"}}`)
	l.ask(`{"id":1,"func":"put","data":{"key":"a/1","value":"x"}}`, `{"id":1,"data":{"version":"1.3"}}`)
	l.ask(`{"id":1,"func":"put","data":{"key":"c","value":"x"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	w.expect(`{"id":8,"data":{"events":[{"key":"c","found":true,"value":"x","version":"1.1"}]},"more":true}`)
}
