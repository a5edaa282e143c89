package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/soheilhy/cmux"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// text is an answer message of this process.
type text string

func (m text) Size() int                       { return len(m) }
func (m text) MarshalTo(b []byte) (int, error) { return copy(b, m), nil }

// answers makes the answers of this process to messages that begin with "serve". The remaining part
// of the message selects the answer.
type answers struct {
	mu      sync.Mutex
	began   int
	ended   []error // for each waiting request that has ended, the error of its context
	release chan struct{}
}

func (a *answers) do(ctx context.Context, message string) (Message, error) {
	what := strings.TrimPrefix(message, "serve ")
	switch {
	case what == "panic":
		panic("in Serve")
	case what == "fail":
		st, err := status.New(codes.OutOfRange, "no: 50 % of \"µ\"").WithDetails(&errdetails.ErrorInfo{Reason: "why"})
		if err != nil {
			return nil, err
		}
		return nil, st.Err()
	case what == "metadata":
		md, _ := metadata.FromIncomingContext(ctx)
		_, limited := ctx.Deadline()
		return text(fmt.Sprint(len(md), md.Get("token"), limited)), nil
	case what == "wait":
		a.mu.Lock()
		a.began++
		a.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-a.release:
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ended = append(a.ended, ctx.Err())
		return text("late"), ctx.Err()
	}
	return text(what), nil
}

func (a *answers) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began - len(a.ended)
}

func (a *answers) last() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended[len(a.ended)-1]
}

// TestServed checks that a client gets answers of this process as from a gRPC server. It tries
// small answers, answers larger than any window, and errors with messages and details. The context
// must have the client's metadata and deadline, and end with the request. Requests that need
// decoding go to the gRPC server.
func TestServed(t *testing.T) {
	b := newBed(t)
	c := b.dial(t)
	for _, m := range []string{"", "a", strings.Repeat("b", 70_000), strings.Repeat("c", 3_000_000)} {
		answer, who, err := ask(t.Context(), c, "/x/Echo", "serve "+m)
		if err != nil || answer != m || who != "" {
			t.Errorf("%d bytes: %d came back, by %q: %v", len(m), len(answer), who, err)
		}
	}
	_, _, err := ask(t.Context(), c, "/x/Echo", "serve fail")
	st := status.Convert(err)
	if st.Code() != codes.OutOfRange || st.Message() != "no: 50 % of \"µ\"" || len(st.Details()) != 1 {
		t.Errorf("an error: %v, details %v", err, st.Details())
	}

	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", "t")
	if answer, _, err := ask(ctx, c, "/x/Echo", "serve metadata"); err != nil || answer != "1 [t] false" {
		t.Errorf("metadata: %q, %v", answer, err)
	}
	limited, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if answer, _, err := ask(limited, c, "/x/Echo", "serve metadata"); err != nil || answer != "1 [t] true" {
		t.Errorf("a deadline: %q, %v", answer, err)
	}
	binary := metadata.AppendToOutgoingContext(t.Context(), "x-bin", "\xff")
	if _, who, err := ask(binary, c, "/x/Echo", "serve metadata"); err != nil || who != "" && who != "local" {
		t.Errorf("binary metadata: %v", err)
	} else if n := b.local.seen.Load(); n != 1 {
		t.Errorf("binary metadata: gRPC's server was asked %d times", n)
	}
}

// TestServedNow checks that a client gets answers that need no waiting in the same way, whatever
// their size. Other requests are served with waiting. Requests that need decoding go to the gRPC
// server.
func TestServedNow(t *testing.T) {
	b := newBed(t)
	c := b.dial(t)
	for _, m := range []string{"", "a", strings.Repeat("b", 70_000), strings.Repeat("c", 3_000_000)} {
		answer, who, err := ask(t.Context(), c, "/x/Echo", "serve now "+m)
		if err != nil || answer != m || who != "" {
			t.Errorf("%d bytes: %d came back, by %q: %v", len(m), len(answer), who, err)
		}
	}
	if answer, _, err := ask(t.Context(), c, "/x/Echo", "serve now not"); err != nil || answer != "now not" {
		t.Errorf("what could not be answered at once: %q, %v", answer, err)
	}
	binary := metadata.AppendToOutgoingContext(t.Context(), "x-bin", "\xff")
	if _, who, err := ask(binary, c, "/x/Echo", "serve now a"); err != nil || who != "local" {
		t.Errorf("binary metadata: by %q, %v", who, err)
	}
}

// counted is a connection that counts the calls of Write.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (c *counted) NetConn() net.Conn { return c.Conn }

// TestAnsweredAtOnce checks that the reader writes all answers to a batch of frames together, in
// the order of the requests.
func TestAnsweredAtOnce(t *testing.T) {
	b := newBed(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := rawClient(t, l.Addr().String())
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	relayed := &counted{Conn: nc}
	b.serve(relayed)
	begun := false
	for !begun { // wait until the relay has acknowledged the settings
		f, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		s, ok := f.(*http2.SettingsFrame)
		begun = ok && s.IsAck()
	}
	before := relayed.writes.Load()
	var together bytes.Buffer
	client := &raws{c.nc, http2.NewFramer(&together, nil)}
	client.framer.WritePing(false, [8]byte{1})
	client.request(t, 1, "/x/Echo", "1S", "serve now a")
	client.request(t, 3, "/x/Echo", "1S", "serve now b")
	if _, err := c.nc.Write(together.Bytes()); err != nil {
		t.Fatal(err)
	}
	var came []string
	for range 7 {
		f, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		came = append(came, fmt.Sprint(f.Header().Type, " ", f.Header().StreamID))
	}
	if want := "PING 0,HEADERS 1,DATA 1,HEADERS 1,HEADERS 3,DATA 3,HEADERS 3"; strings.Join(came, ",") != want {
		t.Errorf("there came %v, want %s", came, want)
	}
	if n := relayed.writes.Load() - before; n != 1 {
		t.Errorf("it was written in %d calls", n)
	}
}

// TestWritable checks that a connection stops being writable when its peer has not read for long,
// and is writable when the peer reads again. For a connection that is not a socket, this is
// unknown.
func TestWritable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	writable := writableOf(tls.Server(&cmux.MuxConn{Conn: nc}, &tls.Config{}))
	if writable == nil || !writable() {
		t.Fatal("a new connection cannot be written to")
	}
	written := 0
	for writable() && written < 1<<30 {
		n, err := nc.Write(make([]byte, mostAtOnce))
		if err != nil {
			t.Fatal(err)
		}
		written += n
	}
	if written < mostAtOnce || written >= 1<<30 {
		t.Errorf("%d bytes that nobody reads are taken", written)
	}
	go io.Copy(io.Discard, peer)
	poll.Until(t, 10*time.Second, "it can be written to again", writable)
	nc.Close()
	if writable() {
		t.Error("a closed connection can be written to")
	}
	one, other := net.Pipe()
	defer other.Close()
	if writableOf(one) != nil {
		t.Error("it is said of a pipe whether it can be written to")
	}
}

// TestServedGoes checks when the context of a request ends that this process answers. It ends when
// the client leaves, when the timeout passes, and when the relay is closed. Close waits for the
// request.
func TestServedGoes(t *testing.T) {
	b := newBed(t)
	c := b.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	var asked sync.WaitGroup
	asked.Go(func() {
		if _, _, err := ask(ctx, c, "/x/Echo", "serve wait"); status.Code(err) != codes.Canceled {
			t.Errorf("a canceled request: %v", err)
		}
	})
	poll.Until(t, 10*time.Second, "it waits", func() bool { return b.router.own.waiting() == 1 })
	cancel()
	asked.Wait()
	poll.Until(t, 10*time.Second, "its context ends", func() bool { return b.router.own.waiting() == 0 })

	// The relay also enforces the timeout by its own clock, because a client's packets may no
	// longer arrive.
	h := rawClient(t, b.addr)
	h.request(t, 1, "/x/Echo", "50m", "serve wait")
	poll.Until(t, 10*time.Second, "it has waited", func() bool {
		b.router.own.mu.Lock()
		defer b.router.own.mu.Unlock()
		return len(b.router.own.ended) == 2
	})
	if err := b.router.own.last(); err != context.DeadlineExceeded {
		t.Errorf("a request whose time was over: %v", err)
	}
	if got := h.trailer(t, 1); got != "4" {
		t.Errorf("a request whose time was over ended with status %s", got)
	}

	// Drain must wait for the request in late. (Close would cancel the request.)
	var late sync.WaitGroup
	late.Go(func() {
		if answer, _, err := ask(t.Context(), c, "/x/Echo", "serve wait"); err != nil || answer != "late" {
			t.Errorf("a request that was under way: %q, %v", answer, err)
		}
	})
	poll.Until(t, 10*time.Second, "it waits", func() bool { return b.router.own.waiting() == 1 })
	drained := make(chan struct{})
	go func() {
		b.Drain(context.Background())
		close(drained)
	}()
	select {
	case <-drained:
		t.Error("drained with a request under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(b.router.own.release)
	late.Wait()
	<-drained
}

// TestServedClosed checks that Close cancels the answers in progress and waits for their end.
func TestServedClosed(t *testing.T) {
	b := newBed(t)
	c := b.dial(t)
	var asked sync.WaitGroup
	asked.Go(func() {
		if _, _, err := ask(t.Context(), c, "/x/Echo", "serve wait"); status.Code(err) != codes.Unavailable {
			t.Errorf("a request at a relay that is closed: %v", err)
		}
	})
	poll.Until(t, 10*time.Second, "it waits", func() bool { return b.router.own.waiting() == 1 })
	b.Close()
	if n := b.router.own.waiting(); n != 0 {
		t.Errorf("closed with %d requests under way", n)
	}
	asked.Wait()
}

// TestTimeout checks the parsing of clients' timeouts.
func TestTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{"1H": time.Hour, "20M": 20 * time.Minute, "3S": 3 * time.Second,
		"4m": 4 * time.Millisecond, "5u": 5 * time.Microsecond, "6n": 6, "0n": 0, "99999999H": maxTimeout,
		"99999999M": 99999999 * time.Minute} {
		if got, ok := timeoutOf(value); !ok || got != want {
			t.Errorf("%s: %v, %v", value, got, ok)
		}
	}
	for _, bad := range []string{"", "1", "H", "1s", "-1S", "+1S", "1.5S", "123456789S"} {
		if got, ok := timeoutOf(bad); ok {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

// BenchmarkServed measures the cost of a request that this process answers, without and with gRPC's
// server. Many requests are concurrent.
func BenchmarkServed(b *testing.B) {
	for _, way := range []string{"serve", "local"} {
		b.Run(way, func(b *testing.B) {
			bed := newBed(b)
			c := bed.dial(b)
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, _, err := ask(b.Context(), c, "/x/Echo", way+" "); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// raws is a client that sends frames that the test makes.
type raws struct {
	nc     net.Conn
	framer *http2.Framer
}

func rawClient(t *testing.T, address string) *raws {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(nc, http2.ClientPreface)
	f := http2.NewFramer(nc, nc)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	return &raws{nc, f}
}

// request sends a complete request as frames.
func (r *raws) request(t *testing.T, stream uint32, method, timeout, message string) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", timeout}} {
		enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	m := append([]byte{0}, binary.BigEndian.AppendUint32(nil, uint32(len(message)))...)
	if err := errors.Join(r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
		EndHeaders: true}), r.framer.WriteData(stream, true, append(m, message...))); err != nil {
		t.Fatal(err)
	}
}

// trailer reads frames until a stream has ended. It returns the stream's grpc-status.
func (r *raws) trailer(t *testing.T, stream uint32) string {
	t.Helper()
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == stream && h.StreamEnded() {
			for _, f := range h.Fields {
				if f.Name == "grpc-status" {
					return f.Value
				}
			}
			return ""
		}
	}
}
