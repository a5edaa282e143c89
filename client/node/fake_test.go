package node

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/internal/await"
)

// patience bounds the wait for anything that must happen.
const patience = 20 * time.Second

// fake is a node server that misbehaves as a test requires. It answers requests that its hook does
// not handle with {}.
type fake struct {
	t      *testing.T
	socket string
	hook   func(p *peer, r nodeapi.Request) bool // returns true if it has handled the request
	// reports whether the server knows the client; if nil, it knows the clients that have greeted
	// it before
	known func(client string) bool
	done  sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	peers    []*peer
	clients  map[string]bool
	hellos   []nodeapi.Hello
	requests []nodeapi.Request // all requests except hello
}

// peer is a client's connection to the fake.
type peer struct {
	f *fake
	net.Conn
	number int
	client string
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, socket: filepath.Join(t.TempDir(), "s"), clients: map[string]bool{}}
	t.Cleanup(func() {
		f.stop()
		f.done.Wait()
	})
	return f
}

func (f *fake) start() *fake {
	f.t.Helper()
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			p := &peer{f: f, Conn: conn, number: len(f.peers)}
			f.peers = append(f.peers, p)
			f.mu.Unlock()
			f.done.Go(p.serve)
		}
	})
	return f
}

// stop ends the fake and all its connections.
func (f *fake) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		_ = f.listener.Close()
	}
	for _, p := range f.peers {
		_ = p.Close()
	}
}

func (p *peer) serve() {
	defer p.Close()
	lines := bufio.NewScanner(p)
	lines.Buffer(nil, nodeapi.MaxMessage)
	for lines.Scan() {
		var r nodeapi.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			p.f.t.Errorf("the client sent %q: %v", lines.Text(), err)
			return
		}
		f := p.f
		if r.Func == nodeapi.FuncHello {
			var hello nodeapi.Hello
			_ = json.Unmarshal(r.Data, &hello)
			f.mu.Lock()
			p.client = hello.Client
			known := f.clients[hello.Client]
			if f.known != nil {
				known = f.known(hello.Client)
			}
			f.clients[hello.Client] = true
			f.hellos = append(f.hellos, hello)
			f.mu.Unlock()
			p.answer(r.ID, nodeapi.HelloAnswer{Server: "fake", Known: known, InFlight: nodeapi.MaxInFlight})
			continue
		}
		f.mu.Lock()
		f.requests = append(f.requests, r)
		f.mu.Unlock()
		if f.hook == nil || !f.hook(p, r) {
			p.answer(r.ID, struct{}{})
		}
	}
}

func (p *peer) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format+"\n", args...) // the client may have closed the connection
}

func (p *peer) answer(id uint64, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		p.f.t.Error(err)
	}
	p.say(`{"id":%d,"data":%s}`, id, b)
}

func (p *peer) more(id uint64, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		p.f.t.Error(err)
	}
	p.say(`{"id":%d,"data":%s,"more":true}`, id, b)
}

func (p *peer) fail(id uint64, code Code) {
	p.say(`{"id":%d,"error":{"code":%q,"message":"said by the fake"}}`, id, code)
}

// count counts the requests of a function.
func (f *fake) count(fn string) int {
	return len(f.of(fn))
}

func (f *fake) of(fn string) []nodeapi.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []nodeapi.Request
	for _, r := range f.requests {
		if r.Func == fn {
			list = append(list, r)
		}
	}
	return list
}

// peer returns the i-th connection.
func (f *fake) peer(i int) *peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers[i]
}

// conns returns the number of connections so far.
func (f *fake) conns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.peers)
}

// connect makes a client of the fake. At the end of the test, the client is closed, and none of its
// goroutines may remain.
func (f *fake) connect(cfg Config) *Client {
	f.t.Helper()
	cfg.Socket = f.socket
	return connectTo(f.t, cfg)
}

func connectTo(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // Close does not wait for calls under way.
		_ = c.Close(ctx)
		defer func() {
			if ours() > 0 {
				t.Log(stacks())
			}
		}()
		await.Until(t, patience, "the client's goroutines to end", func() bool { return ours() == 0 })
	})
	return c
}

// ours counts the package's goroutines, except for those of tests and the fake.
func ours() int {
	n := 0
	for _, s := range strings.Split(stacks(), "\n\n") {
		if strings.Contains(s, "client/node.(*Client)") && !strings.Contains(s, "testing.tRunner") {
			n++
		}
	}
	return n
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func wantCode(t *testing.T, err error, code Code) {
	t.Helper()
	if CodeOf(err) != code {
		t.Fatalf("the error is %v (%q), want %q", err, CodeOf(err), code)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
