package server

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestTooLong checks that a message that is too long ends its connection, and that the client gets
// the reason. It tests both framings.
func TestTooLong(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	head := `{"id":1,"func":"ping"`
	// this message has exactly the maximum length, including its newline
	l.send(head + strings.Repeat(" ", nodeapi.MaxMessage-len(head)-2) + "}")
	l.expect(`{"id":1,"data":{}}`)
	l.send(head + strings.Repeat(" ", nodeapi.MaxMessage-len(head)-1) + "}")
	l.expectPart(`{"id":0,"error":{"code":"too_large","message":"a message has at most 262144 bytes`)
	l.expectEnd()

	c := dial(t, path)
	_, _ = c.Write(binary.BigEndian.AppendUint32([]byte(nodeapi.Preface), 0xFFFFFFFF))
	if got, _ := io.ReadAll(c.r); !strings.Contains(string(got), "too_large") {
		t.Errorf("%q", got)
	}
}

// TestBrowser checks that a web page that makes a browser connect to the port has no effect. The
// first bytes that a browser sends are not a request, so the server must ignore the rest.
func TestBrowser(t *testing.T) {
	st := store.NewMemory(100)
	_, path := start(t, Config{Store: st})
	l := dial(t, path)
	l.send("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n" + `{"id":1,"func":"put","data":{"key":"k","value":"v"}}`)
	l.expectPart(`{"id":0,"error":{"code":"invalid_argument"`)
	l.expectEnd()
	if i, _ := st.Get(t.Context(), store.Key{Namespace: "default", Name: "k"}, false); i.Found {
		t.Error("the body was taken for a request")
	}
}

// TestUnread checks a client that does not read. The server must stop reading the client's
// requests, and close the connection at a limit. Other clients must not be affected.
func TestUnread(t *testing.T) {
	_, path := start(t, Config{Store: store.NewMemory(2000),
		Limits: Limits{unsent: 64 << 10, StallTime: 200 * time.Millisecond}})
	other := dial(t, path)
	other.ask(`{"id":1,"func":"put","data":{"key":"k","value":"`+strings.Repeat("v", 1000)+`"}}`, `{"id":1,"data":{"version":"1.1"}}`)
	for name, request := range map[string]string{
		"answers": `{"id":%d,"func":"getMany","data":{"keys":["k"` + strings.Repeat(`,"k"`, 200) + `]}}` + "\n",
		"errors":  "{\"id\":%d,\"func\":\"" + strings.Repeat("f", 1000) + "\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := dial(t, path)
			var err error
			for n := 1; err == nil; n++ {
				_, err = fmt.Fprintf(l, request, n)
				if n%50 == 0 {
					other.send(`{"id":1,"func":"get","data":{"key":"none"}}`)
					other.expect(`{"id":1,"data":{"key":"none","found":false,"version":"0.0"}}`)
				}
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("it is not cut off")
			}
		})
	}
}

// TestSlowWatcher checks that a watch waits for a client that does not read. When the client reads
// again, it must get the newest version, and the number of skipped versions.
func TestSlowWatcher(t *testing.T) {
	_, path := start(t, Config{Store: store.NewMemory(2000), Limits: Limits{unsent: 64 << 10}})
	w, l := dial(t, path), dial(t, path)
	w.ask(`{"id":1,"func":"watch","data":{"keys":["k"]}}`, `{"id":1,"data":{"started":true},"more":true}`)
	w.expectPart(`"found":false`)
	const writes = 1500
	value := strings.Repeat("v", 1000)
	for n := 1; n <= writes; n++ {
		l.send(fmt.Sprintf(`{"id":1,"func":"put","data":{"key":"k","value":"%d%s"}}`, n, value))
		l.expect(fmt.Sprintf(`{"id":1,"data":{"version":"1.%d"}}`, n))
	}
	told := 0
	for {
		told++
		text := w.receive()
		if strings.Contains(text, fmt.Sprintf(`"version":"1.%d"`, writes)) {
			break
		}
	}
	if told >= writes {
		t.Errorf("each of %d versions was told to a client that did not read", told)
	}
}

// TestHalfMessage checks that the server does not wait forever for the rest of a message.
func TestHalfMessage(t *testing.T) {
	_, path := start(t, Config{Limits: Limits{MessageTime: 50 * time.Millisecond}})
	idle := dial(t, path)
	idle.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	for _, half := range []string{`{"id":1,`, nodeapi.Preface[:2], nodeapi.Preface + "\x00\x00\x00\x10half"} {
		l := dial(t, path)
		_, _ = l.Write([]byte(half))
		l.expectEnd()
	}
	idle.ask(`{"id":2,"func":"ping"}`, `{"id":2,"data":{}}`) // a pause between messages is allowed
}

// TestInFlight checks that the server stops reading from a connection that has the maximum number
// of requests under way.
func TestInFlight(t *testing.T) {
	slow := &slowStore{Store: store.NewMemory(100), hold: make(chan struct{})}
	_, path := start(t, Config{Store: slow, Limits: Limits{inFlight: 4}})
	l := dial(t, path)
	for id := 1; id <= 10; id++ {
		l.send(fmt.Sprintf(`{"id":%d,"func":"get","timeoutMs":60000,"data":{"key":"slow"}}`, id))
	}
	poll.Until(t, soon, "4 wait", func() bool { return slow.waiting.Load() == 4 })
	other := dial(t, path)
	other.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	if n := slow.waiting.Load(); n != 4 {
		t.Errorf("%d are under way", n)
	}
	close(slow.hold)
	for range 10 {
		l.expectPart(`"found":false`)
	}
}

// TestQuotas checks that watches, connections and bytes are limited, and that released resources
// can be used again.
func TestQuotas(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{watches: 3, Connections: 2, Buffered: 64 << 10}})
	l := dial(t, path)
	l.ask(`{"id":1,"func":"watch","data":{"keys":["a","b"]}}`, `{"id":1,"data":{"started":true},"more":true}`)
	l.expectPart(`"key":"a"`)
	l.send(`{"id":2,"func":"watch","data":{"keys":["c","d"]}}`)
	l.expectPart(`{"id":2,"error":{"code":"quota_exceeded","message":"a connection watches at most 3`)
	l.send(`{"id":3,"func":"watch","data":{"prefix":"","after":{"a":"1.1","b":"1.1","c":"1.1"}}}`)
	l.expectPart(`{"id":3,"error":{"code":"quota_exceeded"`)
	l.send(`{"id":4,"func":"cancel","data":{"id":1}}`)
	l.receive()
	l.receive()
	l.ask(`{"id":2,"func":"watch","data":{"keys":["c","d"]}}`, `{"id":2,"data":{"started":true},"more":true}`)
	l.receive()

	second := dial(t, path)
	second.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	third := dial(t, path)
	third.expectPart(`{"id":0,"error":{"code":"quota_exceeded","message":"the server has its 2 connections"`)
	third.expectEnd()

	_, _ = second.Write([]byte(`{"id":1,"func":"` + strings.Repeat("x", 200<<10)))
	second.expectPart(`{"id":0,"error":{"code":"quota_exceeded","message":"the server has no memory`)
	second.expectEnd()
	poll.Until(t, soon, "all is given back", func() bool { return s.budget.held.Load() == 0 })
	l.Close()
	poll.Until(t, soon, "the first has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0
	})
}

// TestFlood opens many connections that send garbage, requests and incomplete messages. Other
// clients must be served meanwhile. Afterwards the server must hold nothing for these connections.
func TestFlood(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{Buffered: 4 << 20}})
	other := dial(t, path)
	other.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for n := range 40 {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(2 * time.Second))
			if n%2 == 0 {
				go func() { _, _ = io.Copy(io.Discard, nc) }()
			}
			_, _ = nc.Write([]byte(`{"id":1,"func":"ping"}` + "\n"))
			for i := range 200 {
				var err error
				switch n % 4 {
				case 0:
					_, err = fmt.Fprintf(nc, `{"id":%d,"func":"put","data":{"key":"k%d","value":"v"}}`+"\n", i+1, i)
				case 1:
					_, err = nc.Write([]byte(strings.Repeat("garbage\n", 100)))
				case 2:
					_, err = nc.Write([]byte(strings.Repeat("[", 1000)))
				case 3:
					_, err = fmt.Fprintf(nc, `{"id":%d,"func":"watch","data":{"prefix":""}}`+"\n", i+1)
				}
				if err != nil {
					return
				}
			}
		})
		other.ask(`{"id":1,"func":"get","data":{"key":"none"}}`, `{"id":1,"data":{"key":"none","found":false,"version":"0.0"}}`)
	}
	wg.Wait()
	poll.Until(t, soon, "all but one have ended, and hold nothing", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1 && s.budget.held.Load() == 0 && runtime.NumGoroutine() <= before+5
	}, func() string {
		return fmt.Sprint(len(s.conns), " connections, ", s.budget.held.Load(), " bytes, ", runtime.NumGoroutine(), " goroutines, before ", before)
	})
	other.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
}

// TestFloodOfMany sends many requests for many keys each. The server must limit the concurrent
// work. Keys that must wait may not need a goroutine each.
func TestFloodOfMany(t *testing.T) {
	slow := &slowStore{Store: store.NewMemory(100), hold: make(chan struct{})}
	_, path := start(t, Config{Store: slow, Limits: Limits{inFlight: 64, AtOnce: 32, Helpers: 100}})
	before := runtime.NumGoroutine()
	keys := strings.TrimSuffix(strings.Repeat(`"slow",`, 256), ",")
	const connections = 8
	for range connections {
		l := dial(t, path)
		for id := 1; id <= 64; id++ {
			l.send(fmt.Sprintf(`{"id":%d,"func":"getMany","timeoutMs":60000,"data":{"keys":[%s]}}`, id, keys))
		}
	}
	poll.Until(t, soon, "a namespace's part is read", func() bool { return slow.waiting.Load() == 24 })
	// The maximum is one goroutine for each request and each connection, plus the helpers.
	poll.Until(t, soon, "all are under way", func() bool { return runtime.NumGoroutine() >= before+connections*64 })
	time.Sleep(50 * time.Millisecond) // wait, because further goroutines would have started by then
	if n, most := runtime.NumGoroutine()-before, connections*65+100+20; n > most || slow.waiting.Load() != 24 {
		t.Errorf("%d goroutines, want at most %d, and %d reads, want 24", n, most, slow.waiting.Load())
	}
	other := dial(t, path)
	other.ask(`{"id":1,"func":"get","data":{"key":"quick","namespace":"other"}}`,
		`{"id":1,"data":{"key":"quick","found":false,"version":"0.0"}}`)
	close(slow.hold)
}
