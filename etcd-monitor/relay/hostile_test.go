package relay

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestSinkIsThere checks that a stream has its sink before other goroutines can find it. So if a
// connection ends while streams are opened, all their sinks learn of the end.
func TestSinkIsThere(t *testing.T) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	c := newConn(one, true, limits{}, func(fault any, _ []byte) { t.Error(fault) })
	c.accept = func(h *half, fields []hpack.HeaderField) beginner {
		if len(c.streams) != 0 {
			t.Error("the stream is in the table before it has a sink")
		}
		return &call{client: &client{r: &Relay{}, over: true}, down: h, fields: fields}
	}
	c.settled = true
	begin := func(id uint32) error {
		return c.onHeaders(&http2.MetaHeadersFrame{HeadersFrame: &http2.HeadersFrame{FrameHeader: http2.FrameHeader{
			Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndStream, StreamID: id}}})
	}
	if err := begin(1); err != nil {
		t.Fatal(err)
	}
	c.fail(io.EOF)
	if err := begin(3); err == nil || len(c.streams) != 0 {
		t.Errorf("a stream begins on a connection that has ended: %v, %d streams", err, len(c.streams))
	}
}

// TestResetWhileBeginning makes clients reset their connections while they open streams, with some
// bytes changed. Nothing may be left behind, and other clients must be served.
func TestResetWhileBeginning(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	var text bytes.Buffer
	c := &raws{framer: http2.NewFramer(&text, nil)}
	text.WriteString(http2.ClientPreface)
	c.framer.WriteSettings()
	for id := uint32(1); id < 60; id += 2 {
		c.request(t, id, "/x/Echo", "1S", []string{"local", "x"}[id/2%2])
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				nc, err := net.Dial("tcp", b.addr)
				if err != nil {
					t.Error(err)
					return
				}
				nc.(*net.TCPConn).SetLinger(0)
				sent := bytes.Clone(text.Bytes()[:len(http2.ClientPreface)+1+rand.IntN(text.Len()-len(http2.ClientPreface)-1)])
				for range rand.IntN(4) {
					sent[len(http2.ClientPreface)+rand.IntN(len(sent)-len(http2.ClientPreface))] = byte(rand.IntN(256))
				}
				nc.Write(sent)
				nc.Close()
			}
		})
	}
	all.Wait()
	if answer, _, err := ask(t.Context(), b.dial(t), "/x/Echo", "hello"); err != nil || answer != "hello" {
		t.Error(answer, err)
	}
	poll.Until(t, 20*time.Second, "one client is left, and no stream of others", func() bool {
		b.mu.Lock()
		n := len(b.clients)
		b.mu.Unlock()
		return n == 1 && streams(b) == 0
	})
}

// streams returns the number of open streams to etcd.
func streams(b *bed) (n int) {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	for _, m := range b.pool.up {
		m.conn.mu.Lock()
		n += len(m.conn.streams)
		m.conn.mu.Unlock()
	}
	return n
}

// refusal reads until the relay ends the connection or a stream. It returns the type and the code
// of the first RST_STREAM or GOAWAY frame.
func (r *raws) refusal(t *testing.T) (http2.FrameType, http2.ErrCode) {
	t.Helper()
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			t.Error("nothing was refused: ", err)
			return 0, 0
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return http2.FrameRSTStream, f.ErrCode
		case *http2.GoAwayFrame:
			return http2.FrameGoAway, f.ErrCode
		}
	}
}

// TestRefused checks that a violation of HTTP/2 ends the stream or the connection, with the right
// error code.
func TestRefused(t *testing.T) {
	b := newBed(t)
	head := func(id uint32) string {
		var text bytes.Buffer
		c := &raws{framer: http2.NewFramer(&text, nil)}
		c.request(t, id, "/x/Wait", "9S", "x")
		whole := text.String()
		return strings.TrimSuffix(whole, whole[len(whole)-15:]) // all but the DATA frame
	}
	frame := func(kind http2.FrameType, flags http2.Flags, id uint32, payload string) string {
		h := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
		return string(binary.BigEndian.AppendUint32(append(h, byte(flags)), id)) + payload
	}
	full := strings.Repeat(frame(http2.FrameData, 0, 1, strings.Repeat("x", maxFrame)), streamWindow/maxFrame)
	asked := head(1) + frame(http2.FrameData, 0, 1, "\x00\x00\x00\x00\x01x") // a request that waits for an etcd
	for name, sent := range map[string]struct {
		text string
		kind http2.FrameType
		code http2.ErrCode
	}{
		"a frame of 16,385":           {frame(http2.FrameData, 0, 1, full[:maxFrame+1]), http2.FrameGoAway, http2.ErrCodeFrameSize},
		"a header of 16 MiB":          {"\xff\xff\xff\x00\x00\x00\x00\x00\x01", http2.FrameGoAway, http2.ErrCodeFrameSize},
		"more than a window":          {asked + full + full, http2.FrameRSTStream, http2.ErrCodeFlowControl},
		"data before the stream":      {frame(http2.FrameData, 0, 7, "x"), http2.FrameGoAway, http2.ErrCodeProtocol},
		"a reset before the stream":   {frame(http2.FrameRSTStream, 0, 7, "\x00\x00\x00\x08"), http2.FrameGoAway, http2.ErrCodeProtocol},
		"a window before the stream":  {frame(http2.FrameWindowUpdate, 0, 7, "\x00\x00\x00\x08"), http2.FrameGoAway, http2.ErrCodeProtocol},
		"headers that are no end":     {head(1) + head(1), http2.FrameRSTStream, http2.ErrCodeProtocol},
		"a window above the greatest": {frame(http2.FrameSettings, 0, 0, "\x00\x04\xff\xff\xff\xff"), http2.FrameGoAway, http2.ErrCodeFlowControl},
	} {
		c := rawClient(t, b.addr)
		c.nc.Write([]byte(sent.text))
		if kind, code := c.refusal(t); kind != sent.kind || code != sent.code {
			t.Errorf("%s: %v %v, want %v %v", name, kind, code, sent.kind, sent.code)
		}
	}
	nc, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(nc, http2.ClientPreface+head(1))
	if kind, code := (&raws{nc, http2.NewFramer(nc, nc)}).refusal(t); kind != http2.FrameGoAway ||
		code != http2.ErrCodeProtocol {
		t.Errorf("no settings: %v %v", kind, code)
	}
}

// TestConnectionHeader checks that a request with a header that HTTP/2 forbids goes to the gRPC
// server, which refuses it.
func TestConnectionHeader(t *testing.T) {
	k := &client{r: &Relay{Config: Config{Router: &router{}}}}
	fields := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/x/Echo"},
		{Name: "content-type", Value: "application/grpc"}}
	if !k.collects(&call{fields: fields}) {
		t.Error("a request is not collected")
	}
	if k.collects(&call{fields: append(fields, hpack.HeaderField{Name: "connection", Value: "close"})}) {
		t.Error("a request with the header connection is collected")
	}
}

// TestPanicEndsOneConnection checks that a panic ends only the connection where it happened. Other
// clients continue, even if this was the connection to etcd.
func TestPanicEndsOneConnection(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	other := b.dial(t)
	for n, where := range []string{"panic in Plan", "panic in See", "serve panic"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if answer, _, err := ask(ctx, b.dial(t), "/x/Echo", where); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %q, %v", where, answer, err)
		}
		poll.Until(t, 10*time.Second, where+": the fault is reported", func() bool { return b.faults.Load() == int32(n+1) })
		if answer, _, err := ask(ctx, other, "/x/Echo", "hello"); err != nil || answer != "hello" {
			t.Errorf("after %s: %q, %v", where, answer, err)
		}
		cancel()
	}
}

// TestLastWord checks that an ended connection is closed even if its peer reads nothing.
func TestLastWord(t *testing.T) {
	one, other := net.Pipe()
	defer other.Close()
	c := newConn(one, true, limits{}, nil)
	c.start()
	ended := make(chan struct{})
	go func() {
		c.writer()
		close(ended)
	}()
	poll.Until(t, 10*time.Second, "it writes", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.writing
	})
	c.fail(errors.New("the peer sent nonsense"))
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("its writer waits for the peer")
	}
}

// TestNextConnection checks that a late report of a connection's end does not remove the endpoint's
// next connection.
func TestNextConnection(t *testing.T) {
	p, l := &pool{}, &link{}
	before, now := &conn{}, &conn{}
	p.ready(l, before)
	p.gone(before)
	p.ready(l, now)
	p.gone(before)
	if len(p.up) != 1 || p.up[0].conn != now {
		t.Errorf("in use: %v", p.up)
	}
}
