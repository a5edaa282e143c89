package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/internal/await"
)

func item(key, value, version string) nodeapi.Item {
	return nodeapi.Item{Key: key, Found: true, Value: &value, Version: version}
}

func keyOf(r nodeapi.Request) string {
	var k nodeapi.Key
	_ = json.Unmarshal(r.Data, &k)
	return k.Key
}

func TestWaitsForTheServer(t *testing.T) {
	f := newFake(t)
	time.AfterFunc(100*time.Millisecond, func() { f.start() })
	f.connect(Config{})
}

func TestServerNeverComes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nobody")
	_, err := Connect(t.Context(), Config{Socket: socket, Wait: 50 * time.Millisecond})
	wantCode(t, err, CodeUnavailable)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, socket) || !strings.Contains(e.Message, "no such file") ||
		!strings.Contains(e.Do, nodeapi.SocketVariable) || !strings.Contains(e.Do, "netcraq-sidecar") {
		t.Errorf("%v; %s", err, e.Do)
	}
	if !strings.HasSuffix(err.Error(), "("+e.Do+")") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	t.Setenv(nodeapi.SocketVariable, socket+"2")
	if _, err = Connect(t.Context(), Config{Wait: 10 * time.Millisecond}); !strings.Contains(err.Error(), socket+"2") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err = Connect(ctx, Config{Socket: "tcp://127.0.0.1:1"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestWaitsAloud checks that a program that waits for its server logs it once.
func TestWaitsAloud(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	socket := filepath.Join(t.TempDir(), "nobody")
	if _, err := Connect(t.Context(), Config{Socket: socket, Wait: silentWait + 500*time.Millisecond}); err == nil {
		t.Fatal("there is a server")
	}
	text := log.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, socket) || !strings.Contains(text,
		nodeapi.SocketVariable) {
		t.Errorf("the log has %q", text)
	}
}

func TestServerRefusesTheGreeting(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(`{"id":0,"error":{"code":"permission_denied","message":"not you"}}` + "\n"))
			c.Close()
		}
	}()
	_, err = Connect(soon(t), Config{Socket: socket})
	wantCode(t, err, CodePermissionDenied)
}

// A server executes a request and then ends the connection in the middle of the answer. The client
// sends the request again under its number.
func TestCutInTheMiddleOfALine(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if r.Func != nodeapi.FuncPut && r.Func != nodeapi.FuncGet {
			return false
		}
		if p.number == 0 {
			fmt.Fprintf(p, `{"id":%d,"data":{"versi`, r.ID)
			p.Close()
			return true
		}
		p.answer(r.ID, item(keyOf(r), "v", "1.1"))
		return true
	}
	c := f.start().connect(Config{})
	v, err := c.Put(soon(t), "k", []byte("v"))
	if err != nil || v != "1.1" {
		t.Fatal(v, err)
	}
	puts := f.of(nodeapi.FuncPut)
	if len(puts) != 2 || puts[0].Once == 0 || puts[0].Once != puts[1].Once || puts[0].ID != puts[1].ID {
		t.Errorf("puts: %+v", puts)
	}
	if f.hellos[0].Client != f.hellos[1].Client || len(f.hellos[0].Client) != 32 {
		t.Errorf("hellos: %+v", f.hellos)
	}
}

// A restarted server does not know what was executed. Writes under way fail with an error that says
// so, reads are repeated, and later requests use a new identity.
func TestRestartedServer(t *testing.T) {
	f := newFake(t)
	f.known = func(string) bool { return false }
	asked := make(chan struct{}, 2)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if p.number == 0 {
			asked <- struct{}{}
			return true
		}
		p.answer(r.ID, item(keyOf(r), "v", "1.1"))
		return true
	}
	c := f.start().connect(Config{})
	var wg sync.WaitGroup
	var putErr, getErr error
	wg.Go(func() { _, putErr = c.Put(soon(t), "k", []byte("v")) })
	wg.Go(func() { _, getErr = c.Get(soon(t), "k") })
	<-asked
	<-asked
	f.peer(0).Close()
	wg.Wait()
	wantCode(t, putErr, CodeOutcomeUnknown)
	if getErr != nil {
		t.Error(getErr)
	}
	if _, err := c.Put(soon(t), "k", nil); err != nil {
		t.Error(err)
	}
	if n := f.count(nodeapi.FuncPut); n != 2 {
		t.Errorf("%d puts were sent, want 2", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.hellos[len(f.hellos)-1]; last.Client == f.hellos[0].Client {
		t.Error("the numbers of a server that has forgotten them go on under the same identity")
	}
}

func TestAnswersOutOfOrder(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	var waiting []func()
	f.hook = func(p *peer, r nodeapi.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		waiting = append(waiting, func() { p.answer(r.ID, item(keyOf(r), "of "+keyOf(r), "1.1")) })
		if len(waiting) == 20 {
			for _, say := range slices.Backward(waiting) {
				say()
			}
		}
		return true
	}
	c := f.start().connect(Config{})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			if it, err := c.Get(soon(t), key); err != nil || string(it.Value) != "of "+key {
				t.Error(it, err)
			}
		})
	}
	wg.Wait()
}

func TestGarbage(t *testing.T) {
	for _, garbage := range []string{
		"HTTP/1.1 400 Bad Request\r\n\r\n", "{}}\n", "[1,2]\n", "{\"id\":\"x\"}\n", "\x00\xff\n", strings.Repeat("x", 5<<20),
	} {
		t.Run(fmt.Sprintf("%.6q", garbage), func(t *testing.T) {
			f := newFake(t)
			f.hook = func(p *peer, r nodeapi.Request) bool {
				if p.number < 2 {
					_, _ = p.Write([]byte(garbage))
					return true
				}
				p.answer(r.ID, item(keyOf(r), "v", "1.1"))
				return true
			}
			c := f.start().connect(Config{})
			if it, err := c.Get(soon(t), "k"); err != nil || string(it.Value) != "v" {
				t.Errorf("%v, %v", it, err)
			}
		})
	}
}

func TestMessagesOfANewerServer(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.say(`{"push":"hello","data":{"id":7}}`)
		p.say(`{"id":999999,"data":{"x":1},"more":true}`)
		p.say(`{"news":[1,{"id":3}],"id":%d,"data":{"key":"k","found":true,"value":"v","version":"1.1","color":"red"}}`, r.ID)
		return true
	}
	c := f.start().connect(Config{})
	if it, err := c.Get(soon(t), "k"); err != nil || string(it.Value) != "v" || f.conns() != 1 {
		t.Error(it, err, f.conns())
	}
}

func TestSlowServer(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool { return r.Func == nodeapi.FuncPut || r.Func == nodeapi.FuncGet }
	c := f.start().connect(Config{Timeout: 50 * time.Millisecond})
	_, err := c.Get(t.Context(), "k")
	wantCode(t, err, CodeTimeout)
	_, err = c.Put(t.Context(), "k", nil)
	wantCode(t, err, CodeOutcomeUnknown)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = c.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || CodeOf(err) != CodeTimeout {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err = c.Get(ctx, "k"); !errors.Is(err, context.Canceled) || CodeOf(err) != CodeCanceled {
		t.Error(err)
	}
	await.Until(t, patience, "the server to be told of four that nobody waits for", func() bool {
		return f.count(nodeapi.FuncCancel) == 4
	})
	// The server now answers calls that have ended.
	for _, r := range f.of(nodeapi.FuncGet) {
		f.peer(0).answer(r.ID, item("k", "late", "1.1"))
	}
	if _, err := c.Leader(soon(t), "x"); err != nil || f.conns() != 1 {
		t.Error(err, f.conns())
	}
	for _, r := range append(f.of(nodeapi.FuncGet), f.of(nodeapi.FuncPut)...) {
		if r.TimeoutMillis > 50 && keyOf(r) != "" || r.Func == nodeapi.FuncPut && r.TimeoutMillis < 1 {
			t.Errorf("%s has %d ms", r.Func, r.TimeoutMillis)
		}
	}
}

func TestInFlightIsBounded(t *testing.T) {
	f := newFake(t)
	hold := make(chan struct{})
	var now, most atomic.Int32
	f.hook = func(p *peer, r nodeapi.Request) bool {
		most.Store(max(most.Load(), now.Add(1)))
		f.done.Go(func() {
			<-hold
			now.Add(-1)
			p.answer(r.ID, item(keyOf(r), "v", "1.1"))
		})
		return true
	}
	c := f.start().connect(Config{InFlight: 3})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := c.Get(soon(t), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	await.Until(t, patience, "three calls under way, and seven that wait", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return now.Load() == 3 && len(c.ordinary.queue) == 7
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Put(ctx, "k", nil)
	wantCode(t, err, CodeTimeout) // CodeTimeout means that the call had no effect.
	close(hold)
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d calls were under way at once", most.Load())
	}
}

// If a server does not read, its callers still return at their timeouts.
func TestServerDoesNotRead(t *testing.T) {
	f := newFake(t)
	resume := make(chan struct{})
	f.hook = func(p *peer, r nodeapi.Request) bool {
		<-resume
		return false
	}
	c := f.start().connect(Config{})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := c.Put(ctx, "k", bytes.Repeat([]byte("x"), 200<<10))
			wantCodes(t, err, CodeOutcomeUnknown, CodeTimeout)
		})
	}
	wg.Wait()
	close(resume)
	if _, err := c.Get(soon(t), "k"); err != nil {
		t.Error(err)
	}
}

func wantCodes(t *testing.T, err error, codes ...Code) {
	t.Helper()
	if !slices.Contains(codes, CodeOf(err)) {
		t.Errorf("the error is %v, want one of %v", err, codes)
	}
}

// A server that refuses a request because it is shutting down has not executed it, so the client
// sends it to the successor.
func TestServerRefusesAsItDrains(t *testing.T) {
	f := newFake(t)
	f.known = func(string) bool { return false }
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if p.number == 0 {
			p.fail(r.ID, CodeDraining)
			return true
		}
		p.answer(r.ID, item(keyOf(r), "v", "1.1"))
		return true
	}
	c := f.start().connect(Config{})
	if v, err := c.Put(soon(t), "k", []byte("v")); err != nil || v != "1.1" {
		t.Error(v, err)
	}
}

// A server that announces its shutdown still answers requests under way. New requests go to its
// successor, and the connection ends after the last answer.
func TestServerSaysThatItDrains(t *testing.T) {
	f := newFake(t)
	f.known = func(string) bool { return false }
	asked := make(chan nodeapi.Request, 10)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		switch {
		case r.Func == nodeapi.FuncWatch:
			p.more(r.ID, nodeapi.WatchAnswer{Started: true})
		case p.number == 0:
			asked <- r
		default:
			p.answer(r.ID, item(keyOf(r), "new", "1.2"))
		}
		return true
	}
	c := f.start().connect(Config{})
	w, err := c.Watch(soon(t), WatchConfig{Keys: []string{"k"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		if v, err := c.Put(soon(t), "k", []byte("v")); err != nil || v != "1.1" {
			t.Error(v, err)
		}
	})
	put := <-asked
	if !f.hellos[0].DrainNotice {
		t.Error("no notice was asked for")
	}
	f.peer(0).say(`{"id":0,"data":{"draining":true}}`)
	await.Until(t, patience, "the watch at the successor", func() bool { return f.count(nodeapi.FuncWatch) == 2 })
	if it, err := c.Get(soon(t), "k"); err != nil || string(it.Value) != "new" {
		t.Error(it, err)
	}
	f.peer(0).answer(put.ID, nodeapi.PutAnswer{Version: "1.1"})
	wg.Wait()
	await.Until(t, patience, "the old connection to end", func() bool {
		_, err := f.peer(0).Write([]byte("{\"id\":0}\n"))
		return err != nil
	})
	if n := f.count(nodeapi.FuncPut); n != 1 {
		t.Errorf("the put was sent %d times", n)
	}
}

func TestCloseWaitsForAnswers(t *testing.T) {
	f := newFake(t)
	asked := make(chan nodeapi.Request, 1)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if r.Func != nodeapi.FuncPut {
			return false
		}
		asked <- r
		return true
	}
	c := f.start().connect(Config{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if v, err := c.Put(soon(t), "k", nil); err != nil || v != "1.1" {
			t.Error(v, err)
		}
	})
	r := <-asked
	wg.Go(func() {
		if err := c.Close(soon(t)); err != nil {
			t.Error(err)
		}
	})
	await.Until(t, patience, "the client to take no calls any more", func() bool {
		_, err := c.Get(soon(t), "k")
		return CodeOf(err) == CodeClosed
	})
	f.peer(0).answer(r.ID, nodeapi.PutAnswer{Version: "1.1"})
	wg.Wait()
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	f := newFake(t)
	asked := make(chan struct{})
	f.hook = func(p *peer, r nodeapi.Request) bool {
		close(asked)
		return true
	}
	c := f.start().connect(Config{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Put(soon(t), "k", nil)
		wantCodes(t, err, CodeOutcomeUnknown)
	})
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantCode(t, c.Close(ctx), CodeTimeout)
	wg.Wait()
}

func TestErrorsOfTheServer(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.say(`{"id":%d,"error":{"code":"no_room","message":"full","do":"delete some"}}`, r.ID)
		return true
	}
	c := f.start().connect(Config{})
	_, err := c.Put(soon(t), "k", nil)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeNoRoom || e.Message != "full" || e.Do != "delete some" ||
		!errors.Is(err, &Error{Code: CodeNoRoom}) {
		t.Error(err)
	}
	_, err = c.Put(soon(t), "k\xff", nil)
	wantCode(t, err, CodeInvalidArgument)
	_, err = c.Put(soon(t), "k", make([]byte, 300<<10))
	wantCode(t, err, CodeTooLarge)
}

func TestRequestsAreWrittenAsTheContractSays(t *testing.T) {
	f := newFake(t)
	c := f.start().connect(Config{Namespace: "shop"})
	ctx := soon(t)
	value := "a\"b\\c\n\x01ü\u2028"
	_, _ = c.Put(ctx, value, []byte(value), In("other"), WithLease("l\"1"))
	_, _ = c.Put(ctx, "k", []byte{0xff, 0})
	_, _, _ = c.CAS(ctx, "k", "7.8", []byte("v"))
	_, _, _ = c.Delete(ctx, "k", IfVersion("1.2"))
	_, _, _ = c.Increment(ctx, "k", -5)
	_, _ = c.Get(ctx, "k", Eventual())
	_, _ = c.Transact(ctx, Transaction{
		Compare: []Comparison{HasVersion("k", "7.8"), HasValue(value, []byte(value)), HasValue("b", []byte{0xff}), IsAbsent("a")},
		Write:   []Write{PutKey("k", nil, WithLease("l")), PutKey("b", []byte{0xff}), DeleteKey("a")}}, In("other"))
	if f.hellos[0].Namespace != "shop" {
		t.Errorf("%+v", f.hellos[0])
	}
	want := []any{
		nodeapi.PutData{Key: nodeapi.Key{Namespace: "other", Key: value}, Value: &value, Lease: "l\"1"},
		nodeapi.PutData{Key: nodeapi.Key{Key: "k"}, ValueBase64: []byte{0xff, 0}},
		nodeapi.CASData{PutData: nodeapi.PutData{Key: nodeapi.Key{Key: "k"}, Value: ptr("v")}, Version: "7.8"},
		nodeapi.DeleteData{Key: nodeapi.Key{Key: "k"}, Version: "1.2"},
		nodeapi.IncrementData{Key: nodeapi.Key{Key: "k"}, By: ptr(int64(-5))},
		nodeapi.GetData{Key: nodeapi.Key{Key: "k"}, Eventual: true},
		nodeapi.TransactData{Namespace: "other",
			Compare: []nodeapi.Comparison{{Key: "k", Version: "7.8"}, {Key: value, Value: &value},
				{Key: "b", ValueBase64: []byte{0xff}}, {Key: "a", Absent: true}},
			Write: []nodeapi.TransactWrite{{Key: "k", Value: ptr(""), Lease: "l"}, {Key: "b", ValueBase64: []byte{0xff}},
				{Key: "a", Delete: true}}},
	}
	for i, w := range want {
		a, _ := json.Marshal(w)
		b, _ := json.Marshal(json.RawMessage(f.requests[i].Data))
		var x, y any
		_, _ = json.Unmarshal(a, &x), json.Unmarshal(b, &y)
		if fmt.Sprint(x) != fmt.Sprint(y) {
			t.Errorf("%s: %s, want %s", f.requests[i].Func, b, a)
		}
	}
	if r := f.requests[2]; r.Once != 3 || r.Done != 3 {
		t.Errorf("the third write has once %d, done %d", r.Once, r.Done)
	}
	if r := f.requests[6]; r.Once != 6 {
		t.Errorf("the transaction has once %d", r.Once)
	}
}

// However long a request waits, no other request reports it to the server as done before it is
// answered.
func TestWhatWaitsIsNotDone(t *testing.T) {
	f := newFake(t)
	lock := make(chan uint64, 1)
	f.hook = func(_ *peer, r nodeapi.Request) bool {
		if r.Func == nodeapi.FuncLock {
			lock <- r.ID
		}
		return r.Func == nodeapi.FuncLock
	}
	c := f.start().connect(Config{})
	ctx := soon(t)
	put := func() {
		t.Helper()
		if _, err := c.Put(ctx, "k", []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	put()
	locked := make(chan error)
	go func() {
		_, err := c.Lock(ctx, "x", WithLease("l"))
		locked <- err
	}()
	id := <-lock
	put()
	put()
	waits := f.of(nodeapi.FuncLock)[0]
	for _, r := range f.of(nodeapi.FuncPut) {
		if r.Done > waits.Once || r.Done > r.Once {
			t.Errorf("the put of once %d said done %d; the lock of once %d waits", r.Once, r.Done, waits.Once)
		}
	}
	f.peer(0).answer(id, nodeapi.LockAnswer{Held: true, Name: "x", Token: "5", Lease: "l"})
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	put()
	if r := f.of(nodeapi.FuncPut)[3]; r.Done != r.Once {
		t.Errorf("all is answered, and the put of once %d said done %d", r.Once, r.Done)
	}
}

func ptr[T any](v T) *T { return &v }

func TestVersions(t *testing.T) {
	sorted := []Version{Never, "0.1", "0.9", "0.10", "1.1", "2.0", "10.0"}
	for i, v := range sorted {
		for j, w := range sorted {
			if v.Newer(w) != (i > j) {
				t.Errorf("%s newer than %s: %v", v, w, v.Newer(w))
			}
		}
	}
	if Version("0").Newer(Never) || Never.Newer("0") {
		t.Error("0 and 0.0 are the same")
	}
}
