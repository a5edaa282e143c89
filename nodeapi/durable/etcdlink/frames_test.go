package etcdlink

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var requireLeader = hpack.HeaderField{Name: "hasleader", Value: "true"}

// peer is a server that the test controls frame by frame.
type peer struct {
	t       *testing.T
	nc      net.Conn
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

func newPeer(t *testing.T, o Options) (*peer, *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	made := make(chan *peer, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			t.Error(err)
			close(made)
			return
		}
		p := &peer{t: t, nc: nc}
		in := bufio.NewReader(nc)
		if _, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface))); err != nil {
			t.Error(err)
		}
		p.framer = http2.NewFramer(nc, in)
		p.encoder = hpack.NewEncoder(&p.block)
		_ = p.framer.WriteSettings()
		made <- p
	}()
	c := connect(t, l.Addr().String(), o)
	p := <-made
	if p == nil {
		t.FailNow()
	}
	t.Cleanup(func() { p.nc.Close() })
	return p, c
}

// request waits for a request, and returns the id of its stream.
func (p *peer) request() uint32 {
	p.t.Helper()
	return p.frame(http2.FrameData)
}

// frame waits for a frame of the given kind, and returns the id of its stream.
func (p *peer) frame(kind http2.FrameType) uint32 {
	p.t.Helper()
	_ = p.nc.SetReadDeadline(time.Now().Add(soon))
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			p.t.Fatal(err)
		}
		if f.Header().Type == kind {
			return f.Header().StreamID
		}
	}
}

func (p *peer) headers(id uint32, end bool, fields ...string) {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true,
		EndStream: end})
}

// answer sends the answer to a get of a key.
func (p *peer) answer(id uint32, key string) {
	b, err := (&pb.RangeResponse{Count: int64(len(key)), Kvs: kvs(key)}).Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	p.headers(id, false, ":status", "200", "content-type", "application/grpc")
	_ = p.framer.WriteData(id, false, append([]byte{0, 0, 0, 0, byte(len(b))}, b...))
	p.headers(id, true, "grpc-status", "0")
}

// TestAnswers checks what a caller gets for the various ways in which a server can end a call.
func TestAnswers(t *testing.T) {
	ok := func(p *peer, id uint32) { p.headers(id, false, ":status", "200", "content-type", "application/grpc") }
	for _, c := range []struct {
		name    string
		answer  func(p *peer, id uint32)
		want    codes.Code
		notSent bool
		usable  bool
	}{
		{"refused", func(p *peer, id uint32) { _ = p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, 0, true, true},
		{"reset", func(p *peer, id uint32) { _ = p.framer.WriteRSTStream(id, http2.ErrCodeInternal) }, codes.Unavailable,
			false, true},
		{"sent away", func(p *peer, _ uint32) { _ = p.framer.WriteGoAway(0, http2.ErrCodeNo, nil) }, 0, true, false},
		{"closed", func(p *peer, _ uint32) { p.nc.Close() }, codes.Unavailable, false, false},
		{"a proxy's error", func(p *peer, id uint32) { p.headers(id, true, ":status", "502") }, codes.Unavailable, false, true},
		{"no status", func(p *peer, id uint32) { ok(p, id); _ = p.framer.WriteData(id, true, []byte{0, 0, 0, 0, 0}) },
			codes.Internal, false, true},
		{"no message", func(p *peer, id uint32) { ok(p, id); p.headers(id, true, "grpc-status", "0") }, codes.Internal, false,
			true},
		{"half a message", func(p *peer, id uint32) {
			ok(p, id)
			_ = p.framer.WriteData(id, false, []byte{0, 0, 0, 0, 9, 1})
			p.headers(id, true, "grpc-status", "0")
		}, codes.Internal, false, true},
		{"compressed", func(p *peer, id uint32) {
			ok(p, id)
			_ = p.framer.WriteData(id, false, []byte{1, 0, 0, 0, 0})
			p.headers(id, true, "grpc-status", "0")
		}, codes.Internal, false, true},
		{"not a status", func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "grpc-status", "x") }, codes.Unknown,
			false, true},
		{"headers in upper case", func(p *peer, id uint32) { p.headers(id, true, ":status", "200", "Grpc-Status", "0") },
			codes.Internal, false, true},
		{"a frame that is too large", func(p *peer, _ uint32) { _, _ = p.nc.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}) },
			codes.Unavailable, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, conn := newPeer(t, Options{})
			ended := make(chan error, 1)
			go func() { ended <- conn.get(t.Context(), "k", 0) }()
			c.answer(p, p.request())
			var err error
			select {
			case err = <-ended:
			case <-time.After(soon):
				t.Fatal("the call does not end")
			}
			if c.notSent && !errors.Is(err, ErrNotSent) || !c.notSent && status.Code(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
			if conn.Usable() != c.usable {
				t.Errorf("it is usable: %v, want %v", conn.Usable(), c.usable)
			}
			if c.usable {
				go func() { ended <- conn.get(t.Context(), "next", 0) }()
				p.answer(p.request(), "next")
				if err := <-ended; err != nil {
					t.Errorf("the next call: %v", err)
				}
			}
		})
	}
}

// TestReaderGivesUpInAFrame checks that no bytes are lost if the reading call gives up in the
// middle of a frame.
func TestReaderGivesUpInAFrame(t *testing.T) {
	p, c := newPeer(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, other := make(chan error, 1), make(chan error, 1)
	go func() { ended <- c.get(ctx, "first", 0) }()
	p.request()
	go func() { other <- c.get(t.Context(), "other", 0) }()
	id := p.request()
	var b bytes.Buffer
	kept := p.framer
	p.framer = http2.NewFramer(&b, nil)
	p.answer(id, "other")
	p.framer = kept
	for i, part := range [][]byte{b.Bytes()[:4], b.Bytes()[4:20], b.Bytes()[20:30], b.Bytes()[30:]} {
		if _, err := p.nc.Write(part); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			cancel()
			if err := <-ended; status.Code(err) != codes.Canceled {
				t.Fatal(err)
			}
			p.frame(http2.FrameRSTStream)
		}
	}
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// TestSilentServer checks that a silent server gets a ping. If it does not answer, the calls must
// end.
func TestSilentServer(t *testing.T) {
	p, c := newPeer(t, Options{Silence: 200 * time.Millisecond, Answer: 500 * time.Millisecond})
	ended := make(chan error, 1)
	go func() { ended <- c.get(t.Context(), "k", 0) }()
	p.request()
	for range 3 { // the server answers these pings
		p.frame(http2.FramePing)
		_ = p.framer.WritePing(true, [8]byte{'n', 'c'})
	}
	p.frame(http2.FramePing)
	select {
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("the call does not end")
	}
}

// ends waits until a call has ended, and returns its error.
func ends(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(soon):
		t.Fatal("the call does not end")
		return nil
	}
}

// TestLastStream checks that the last call that the connection accepts is answered, even if it is
// the only call.
func TestLastStream(t *testing.T) {
	p, c := newPeer(t, Options{})
	c.mu.Lock()
	c.last = lastStream + 1
	c.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- c.get(t.Context(), "last", 0) }()
	p.answer(p.request(), "last")
	if err := ends(t, ended); err != nil {
		t.Error(err)
	}
	if err := c.get(t.Context(), "k", 0); !errors.Is(err, ErrNotSent) {
		t.Errorf("the call after the last one: %v", err)
	}
	<-c.Done()
}

// TestRefusesWhatItAnswers checks a server that begins to answer a call and then claims that it has
// not processed the call. The claim must be ignored, because the caller would otherwise make the
// call again.
func TestRefusesWhatItAnswers(t *testing.T) {
	for name, refuse := range map[string]func(p *peer, id uint32){
		"reset":   func(p *peer, id uint32) { _ = p.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream) },
		"go away": func(p *peer, _ uint32) { _ = p.framer.WriteGoAway(0, http2.ErrCodeNo, nil) },
	} {
		p, c := newPeer(t, Options{})
		ended := make(chan error, 1)
		go func() { ended <- c.get(t.Context(), "k", 0) }()
		id := p.request()
		p.headers(id, false, ":status", "200", "content-type", "application/grpc")
		refuse(p, id)
		if err := ends(t, ended); errors.Is(err, ErrNotSent) || status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReaderGivesUpWithinHeaders checks that the reading call can give up between the frames of
// another answer's headers. The call to which the headers belong must end, because the reader has
// dropped some of the headers.
func TestReaderGivesUpWithinHeaders(t *testing.T) {
	p, c := newPeer(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, other := make(chan error, 1), make(chan error, 1)
	go func() { ended <- c.get(ctx, "first", 0) }()
	p.request()
	go func() { other <- c.get(t.Context(), "other", 0) }()
	id := p.request()
	p.block.Reset()
	_ = p.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = p.encoder.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "8"})
	block := p.block.Bytes()
	_ = p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:1], EndStream: true})
	time.Sleep(50 * time.Millisecond) // the reader has received the first frame by now
	cancel()
	if err := ends(t, ended); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	p.frame(http2.FrameRSTStream)
	_ = p.framer.WriteContinuation(id, true, block[1:])
	if err := ends(t, other); status.Code(err) != codes.Unavailable && status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// TestServerReadsNothing checks a server that no longer reads, but still sends. The contexts and
// timeouts of calls must still end the calls.
func TestServerReadsNothing(t *testing.T) {
	p, c := newPeer(t, Options{Silence: 300 * time.Millisecond, Answer: 300 * time.Millisecond})
	_ = p.nc.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = p.framer.WriteWindowUpdate(0, 1<<30)
	_ = p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	stop := make(chan struct{})
	sending := make(chan struct{})
	go func() { // the server sends frames that make it look alive
		defer close(sending)
		for n := byte(0); ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_ = p.framer.WritePing(false, [8]byte{n})
			}
		}
	}()
	defer func() { close(stop); <-sending }()
	waiting := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	go func() { waiting <- c.get(ctx, "k", 0) }()
	long := make(chan error, 1)
	go func() {
		for {
			if err := c.get(ctx, string(make([]byte, 16<<20)), 0); !errors.Is(err, ErrNotSent) {
				long <- err
				return
			}
			time.Sleep(time.Millisecond) // wait until the settings have arrived
		}
	}()
	for _, ended := range []chan error{waiting, long} {
		if err := ends(t, ended); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
	}
	if c.Usable() {
		t.Error("the connection goes on")
	}
}
