package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/netcraq/netcraq/internal/testutil/growth"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// raw is a codec for messages that are plain bytes.
type raw struct{}

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (raw) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

// server is a gRPC server that echoes requests. It puts its name into the trailer.
type server struct {
	name  string
	grpc  *grpc.Server
	addr  string
	block chan struct{} // a call of "/x/Wait" ends when block is closed or the client leaves
	ended atomic.Int32  // number of calls of "/x/Wait" that ended because the client left
	seen  atomic.Int32  // number of requests
}

func (s *server) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	stream.SetTrailer(metadata.Pairs("who", s.name))
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("token")) > 0 {
		stream.SetHeader(metadata.Pairs("token", md.Get("token")[0]))
	}
	for n := 0; ; n++ {
		var b []byte
		if err := stream.RecvMsg(&b); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		s.seen.Add(1)
		if string(b) == "burst" { // this message ends the stream, whatever else the client sends
			for range 3 {
				large := make([]byte, 1<<20)
				if err := stream.SendMsg(&large); err != nil {
					return err
				}
			}
			return status.Error(codes.FailedPrecondition, "enough")
		}
		switch method {
		case "/x/Fail":
			return status.Error(codes.FailedPrecondition, "no: 50 % of \"µ\"")
		case "/x/Wait":
			select {
			case <-s.block:
			case <-stream.Context().Done():
				s.ended.Add(1)
				return stream.Context().Err()
			}
		}
		if err := stream.SendMsg(&b); err != nil {
			return err
		}
	}
}

func newServer(t testing.TB, name, address string) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{name: name, addr: l.Addr().String(), block: make(chan struct{})}
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(s.handle),
		grpc.MaxRecvMsgSize(64<<20))
	go s.grpc.Serve(l)
	t.Cleanup(s.grpc.Stop)
	return s
}

// router lets the relay forward messages, except for those that begin with "local". It changes
// messages that begin with "wrap". It makes this process answer those that begin with "serve".
type router struct {
	mu    sync.Mutex
	heads []string
	sizes []int
	done  map[codes.Code]int
	own   answers
	first string // preferred endpoint of all requests
	sent  []bool // for each request, whether it went to first
}

func (r *router) May(method string) bool { return method != "/x/Stream" }

func (r *router) Plan(method string, _ func(string) string, m []byte) *Plan {
	switch {
	case bytes.HasPrefix(m, []byte("local")):
		return nil
	case string(m) == "panic in Plan":
		panic("in Plan")
	case string(m) == "panic in See":
		return &Plan{Message: [][]byte{m}, See: func([]byte, int) { panic("in See") }}
	case bytes.HasPrefix(m, []byte("serve")):
		message := string(m)
		plan := &Plan{Serve: func(ctx context.Context) (Message, error) { return r.own.do(ctx, message) }}
		if rest, now := strings.CutPrefix(message, "serve now "); now {
			plan.Now = func() (Message, bool) { return text(rest), rest != "not" }
		}
		return plan
	case bytes.HasPrefix(m, []byte("wrap")):
		return &Plan{Method: "/x/Echo", Message: [][]byte{[]byte("<"), m, []byte(">")},
			Answer: func(m []byte) ([][]byte, bool) {
				return [][]byte{m[1 : len(m)-1]}, !bytes.Contains(m, []byte("not"))
			}}
	}
	return &Plan{Message: [][]byte{m}, First: r.first, Sent: func(first bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = append(r.sent, first)
	}, See: func(head []byte, size int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heads, r.sizes = append(r.heads, string(head[:min(len(head), 8)])), append(r.sizes, size)
	}, Done: func(code codes.Code, _ time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done[code]++
	}, Refused: func(_ codes.Code, text string) bool { return strings.Contains(text, "wrap") }}
}

func (r *router) count(code codes.Code) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[code]
}

// bed is a test bed: a relay in front of some servers.
type bed struct {
	*Relay
	router *router
	local  *server
	addr   string
	faults atomic.Int32 // number of panics that ended a connection
}

func newBed(t testing.TB, endpoints ...string) *bed {
	t.Helper()
	b := &bed{router: &router{done: map[codes.Code]int{}, own: answers{release: make(chan struct{})}},
		local: &server{name: "local", block: make(chan struct{})}}
	inner := bufconn.Listen(1 << 16)
	b.local.grpc = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(b.local.handle),
		grpc.MaxRecvMsgSize(4<<20))
	go b.local.grpc.Serve(inner)
	b.Relay = New(Config{Router: b.router, Local: inner.Dial, Endpoints: func() []string { return endpoints },
		UserAgent: "test", Stopped: "stopped", MaxMessage: 4 << 20, PingMin: time.Minute,
		Panicked: func(any, []byte) { b.faults.Add(1) }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr().String()
	go b.Serve(l)
	t.Cleanup(func() {
		l.Close()
		b.Close()
		b.local.grpc.Stop()
	})
	return b
}

func (b *bed) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(b.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ask(ctx context.Context, c *grpc.ClientConn, method, message string) (answer, who string, err error) {
	in, out := []byte(message), []byte(nil)
	var trailer metadata.MD
	err = c.Invoke(ctx, method, &in, &out, grpc.Trailer(&trailer))
	return string(out), strings.Join(trailer.Get("who"), ","), err
}

// TestFirst checks that a request goes to its preferred member if that member is connected.
// Otherwise requests go to the members in turn.
func TestFirst(t *testing.T) {
	one, two, three := newServer(t, "one", "127.0.0.1:0"), newServer(t, "two", "127.0.0.1:0"),
		newServer(t, "three", "127.0.0.1:0")
	b := newBed(t, one.addr, "http://"+two.addr, three.addr)
	up := func(n int) {
		t.Helper()
		poll.Until(t, 10*time.Second, fmt.Sprint("there are ", n, " connections"), func() bool {
			b.pool.mu.Lock()
			defer b.pool.mu.Unlock()
			return len(b.pool.up) == n
		})
	}
	up(3)
	c := b.dial(t)
	asked := func(first string) map[string]int {
		t.Helper()
		b.router.mu.Lock()
		b.router.first, b.router.sent = first, nil
		b.router.mu.Unlock()
		whose := map[string]int{}
		for range 6 {
			_, who, err := ask(t.Context(), c, "/x/Echo", "x")
			if err != nil {
				t.Fatal(err)
			}
			whose[who]++
		}
		return whose
	}
	sent := func(first int) {
		t.Helper()
		b.router.mu.Lock()
		defer b.router.mu.Unlock()
		n := 0
		for _, is := range b.router.sent {
			if is {
				n++
			}
		}
		if n != first || len(b.router.sent) != 6 {
			t.Errorf("it is said of %d, of %d of 6, that they went to the first, want %d", n, len(b.router.sent), first)
		}
	}
	if whose := asked("http://" + two.addr); whose["two"] != 6 {
		t.Errorf("what is for the second one went to %v", whose)
	}
	sent(6)
	for _, nobody := range []string{"", "http://127.0.0.1:1"} {
		if whose := asked(nobody); whose["one"] != 2 || whose["two"] != 2 || whose["three"] != 2 {
			t.Errorf("what is for %q went to %v", nobody, whose)
		}
		sent(0)
	}
	two.grpc.Stop()
	up(2)
	if whose := asked("http://" + two.addr); whose["one"] != 3 || whose["three"] != 3 {
		t.Errorf("what is for one that is gone went to %v", whose)
	}
	sent(0)
}

// TestPassed checks that answers come back unchanged from the right server, whether they are small
// or large, from several members in turn. It also checks errors with their messages, and metadata
// in both directions.
func TestPassed(t *testing.T) {
	one, two := newServer(t, "one", "127.0.0.1:0"), newServer(t, "two", "127.0.0.1:0")
	b := newBed(t, one.addr, "http://"+two.addr)
	c := b.dial(t)
	poll.Until(t, 10*time.Second, "there are two connections", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return len(b.pool.up) == 2
	})
	whose := map[string]int{}
	for _, m := range []string{"", "a", strings.Repeat("b", 70_000), strings.Repeat("c", 3_000_000), "d"} {
		answer, who, err := ask(t.Context(), c, "/x/Echo", m)
		if err != nil || answer != m {
			t.Errorf("%d bytes: %d came back: %v", len(m), len(answer), err)
		}
		whose[who]++
	}
	if whose["one"] == 0 || whose["two"] == 0 {
		t.Errorf("members were asked so often: %v", whose)
	}
	b.router.mu.Lock()
	if want := []int{1, 70_000, 3_000_000, 1}; !slices.Equal(b.router.sizes, want) {
		t.Errorf("answers are said to have %v bytes, want %v", b.router.sizes, want)
	}
	b.router.mu.Unlock()
	for message, want := range map[string]string{"local a": "local", "wrap a": "one,two", "wrap not": "local",
		"local" + strings.Repeat("x", 2_000_000): "local"} {
		answer, who, err := ask(t.Context(), c, "/x/Echo", message)
		if err != nil || answer != message || !strings.Contains(want, who) {
			t.Errorf("%.10q: answered by %q, want %s: %d bytes, %v", message, who, want, len(answer), err)
		}
	}
	_, who, err := ask(t.Context(), c, "/x/Fail", "x")
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "no: 50 % of \"µ\"" ||
		who == "local" {
		t.Errorf("%v, by %s", err, who)
	}
	_, _, err = ask(t.Context(), c, "/x/Echo", strings.Repeat("x", 5<<20))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("a message that is too large: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", "secret")
	in, out, header := []byte("x"), []byte(nil), metadata.MD{}
	if err := c.Invoke(ctx, "/x/Echo", &in, &out, grpc.Header(&header)); err != nil || header.Get("token")[0] != "secret" {
		t.Errorf("%v, %v", header, err)
	}
	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/Stream")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		m, got := bytes.Repeat([]byte{byte(n)}, 10_000), []byte(nil)
		if err := stream.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&got); err != nil || !bytes.Equal(got, m) {
			t.Fatal(n, len(got), err)
		}
	}
	stream.CloseSend()
	if err := stream.RecvMsg(&[]byte{}); err != io.EOF {
		t.Error(err)
	}
	// A stream's end may come without data, while earlier data still waits.
	stream, err = c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/Stream")
	if err != nil {
		t.Fatal(err)
	}
	const parts = 60
	go func() {
		for n := range parts {
			m := bytes.Repeat([]byte{byte(n)}, 50_000)
			stream.SendMsg(&m)
		}
		stream.CloseSend()
	}()
	time.Sleep(100 * time.Millisecond) // by then all windows are full
	for n := range parts {
		var got []byte
		if err := stream.RecvMsg(&got); err != nil || len(got) != 50_000 || got[0] != byte(n) {
			t.Fatal(n, len(got), err)
		}
	}
	if err := stream.RecvMsg(&[]byte{}); err != io.EOF {
		t.Error(err)
	}
	if b.router.count(codes.OK) < 6 || b.router.count(codes.FailedPrecondition) != 1 {
		t.Errorf("%v", b.router.done)
	}
}

// TestMany makes many concurrent requests of many clients, with answers of different sizes. Each
// request must get its own answer.
func TestMany(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	var all sync.WaitGroup
	for k := range 4 {
		c := b.dial(t)
		for i := range 16 {
			all.Go(func() {
				for n := range 12 {
					kind := []string{"", "local", "wrap"}[(i+n)%3]
					m := fmt.Sprint(kind, k, "/", i, "/", n, strings.Repeat("x", (i*n*37)%40_000))
					if answer, _, err := ask(t.Context(), c, "/x/Echo", m); err != nil || answer != m {
						t.Errorf("%.20q: %.20q, %v", m, answer, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	poll.Until(t, 10*time.Second, "no stream is left", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		n := 0
		for _, l := range b.pool.up {
			l.conn.mu.Lock()
			n += len(l.conn.streams) + len(l.conn.queue)
			l.conn.mu.Unlock()
		}
		return n == 0
	})
}

// TestSlowReader checks that a client that requests much and reads nothing delays no other client.
// The relay must buffer no more for it than its windows allow.
func TestSlowReader(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	nc, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	f := http2.NewFramer(nc, nil)
	io.WriteString(nc, http2.ClientPreface)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	f.WriteWindowUpdate(0, 1<<30)
	message := make([]byte, 1<<20)
	rand.Read(message)
	nc.SetWriteDeadline(time.Now().Add(3 * time.Second))
	asked := 0
	for id := uint32(1); id < 120; id += 2 {
		block.Reset()
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/x/Echo"},
			{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
			enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		prefix := make([]byte, 5)
		binary.BigEndian.PutUint32(prefix[1:], 200_000)
		f.WriteData(id, false, prefix)
		rest := message[:200_000]
		for len(rest) > 0 {
			n := min(len(rest), 16384)
			if f.WriteData(id, n == len(rest), rest[:n]) != nil {
				id = 1000 // the relay has stopped reading from the client
				break
			}
			rest = rest[n:]
		}
		asked++
	}
	other := b.dial(t)
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if answer, _, err := ask(ctx, other, "/x/Echo", "hello"); err != nil || answer != "hello" {
			t.Fatal(answer, err)
		}
		cancel()
	}
	kept := 0
	b.mu.Lock()
	for c := range b.clients {
		c.mu.Lock()
		kept += len(c.out)
		for _, h := range c.streams {
			kept += len(h.waiting)
		}
		c.mu.Unlock()
	}
	b.mu.Unlock()
	if most := 4*mostBuffered + asked*2*streamWindow; asked < 10 || kept > most {
		t.Errorf("of %d answers %d bytes are kept, more than %d", asked, kept, most)
	}
}

// TestSlowEnd checks that a stream's end comes after all its data, even if the client reads late
// and has not ended the stream itself. A gRPC server resets such a stream after its end.
func TestSlowEnd(t *testing.T) {
	b := newBed(t)
	c := b.dial(t)
	stream, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/x/Stream")
	if err != nil {
		t.Fatal(err)
	}
	m := []byte("burst")
	if err := stream.SendMsg(&m); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 10*time.Second, "the server has ended it", func() bool { return b.local.seen.Load() == 1 })
	time.Sleep(100 * time.Millisecond)
	for n := range 4 {
		err := stream.RecvMsg(&m)
		if n < 3 && (err != nil || len(m) != 1<<20) {
			t.Fatalf("message %d: %d bytes, %v", n, len(m), err)
		}
		if n == 3 && (status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "enough") {
			t.Fatalf("the end: %v", err)
		}
	}
}

// TestGoes checks that a client's requests at etcd end when the client leaves or its deadline
// passes.
func TestGoes(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	c := b.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := ask(ctx, c, "/x/Wait", "x"); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	poll.Until(t, 5*time.Second, "etcd's request has ended", func() bool { return s.ended.Load() == 1 })
	asked := s.seen.Load()
	go ask(t.Context(), c, "/x/Wait", "x")
	poll.Until(t, 5*time.Second, "it is asked", func() bool { return s.seen.Load() > asked })
	c.Close()
	poll.Until(t, 5*time.Second, "etcd's request has ended", func() bool { return s.ended.Load() == 2 })
}

// TestAway checks that requests wait for a connection to etcd as long as their clients do. The
// relay does not resend a request that was sent before etcd died. A drained relay accepts nothing
// more, and ends waiting requests.
func TestAway(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	c := b.dial(t)
	if _, _, err := ask(t.Context(), c, "/x/Echo", "x"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	asked := s.seen.Load()
	go func() {
		_, _, err := ask(t.Context(), c, "/x/Wait", "x")
		failed <- err
	}()
	poll.Until(t, 5*time.Second, "it is asked", func() bool { return s.seen.Load() > asked })
	s.grpc.Stop()
	if err := <-failed; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("etcd died: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := ask(ctx, c, "/x/Echo", "x"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("etcd is away: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, _, err := ask(t.Context(), c, "/x/Echo", "x")
		waiting <- err
	}()
	poll.Until(t, 5*time.Second, "it waits", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return len(b.pool.waiting) == 1
	})
	back := newServer(t, "back", s.addr)
	if err := <-waiting; err != nil {
		t.Errorf("etcd is back: %v", err)
	}
	back.grpc.Stop()
	poll.Until(t, 5*time.Second, "etcd is away", func() bool { return !b.Reachable() })
	go func() {
		_, _, err := ask(t.Context(), c, "/x/Echo", "x")
		waiting <- err
	}()
	poll.Until(t, 5*time.Second, "it waits", func() bool {
		b.pool.mu.Lock()
		defer b.pool.mu.Unlock()
		return len(b.pool.waiting) == 1
	})
	ending, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	b.Drain(ending)
	if err := <-waiting; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("drained: %v", err)
	}
	if ending.Err() != nil {
		t.Error("a relay whose requests have ended is not drained")
	}
}

// TestFull makes more requests than etcd permits streams. A further request waits until another one
// ends, because that one was answered or its client left.
func TestFull(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{name: "s", block: make(chan struct{})}
	s.grpc = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(s.handle),
		grpc.MaxConcurrentStreams(2))
	go s.grpc.Serve(l)
	t.Cleanup(s.grpc.Stop)
	b := newBed(t, l.Addr().String())
	c := b.dial(t)
	full := func() bool { return s.seen.Load() == 2 && b.pool.waits.Load() == 4 }
	leaves, leave := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	go ask(leaves, c, "/x/Wait", "leaves")
	poll.Until(t, 10*time.Second, "the first is asked", func() bool { return s.seen.Load() == 1 })
	for range 5 {
		asked.Go(func() {
			if _, _, err := ask(t.Context(), c, "/x/Wait", "x"); err != nil {
				t.Error(err)
			}
		})
	}
	poll.Until(t, 10*time.Second, "two are asked, four wait", full)
	leave()
	poll.Until(t, 10*time.Second, "a third has the place of the one that left", func() bool {
		return s.seen.Load() == 3
	})
	close(s.block)
	asked.Wait()
}

// TestPings checks that the relay disconnects a client that pings too often, as gRPC does.
func TestPings(t *testing.T) {
	b := newBed(t, newServer(t, "s", "127.0.0.1:0").addr)
	nc, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(nc, http2.ClientPreface)
	f := http2.NewFramer(nc, nc)
	f.WriteSettings()
	for n := range 20 {
		if f.WritePing(false, [8]byte{byte(n)}) != nil {
			break
		}
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal("it was not sent away: ", err)
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm || string(away.DebugData()) != tooManyPings {
				t.Errorf("%v %q", away.ErrCode, away.DebugData())
			}
			return
		}
	}
}

// FuzzClient checks that whatever a client sends, the relay serves other clients and keeps nothing
// of the client.
func FuzzClient(f *testing.F) {
	var valid bytes.Buffer
	valid.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&valid, nil)
	framer.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":path", "/x/Echo"}, {"content-type", "application/grpc"}} {
		enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	framer.WriteData(1, true, []byte("\x00\x00\x00\x00\x01x"))
	framer.WriteWindowUpdate(0, 1<<20)
	framer.WriteRSTStream(1, http2.ErrCodeCancel)
	framer.WriteGoAway(0, http2.ErrCodeNo, nil)
	f.Add(valid.Bytes())
	for _, cut := range []int{24, 40, 60, 80, 100} {
		f.Add(append(bytes.Clone(valid.Bytes()[:min(cut, valid.Len())]), 0xff, 0x00, 0x07))
	}
	s := newServer(f, "s", "127.0.0.1:0")
	b := newBed(f, s.addr)
	c := b.dial(f)
	watch := growth.Watch()
	f.Fuzz(func(t *testing.T, text []byte) {
		watch(t)
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(text)
		nc.(*net.TCPConn).CloseWrite()
		nc.SetDeadline(time.Now().Add(50 * time.Millisecond))
		io.Copy(io.Discard, nc)
		nc.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if answer, _, err := ask(ctx, c, "/x/Echo", "hello"); err != nil || answer != "hello" {
			t.Fatal(answer, err)
		}
	})
}
