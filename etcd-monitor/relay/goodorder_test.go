package relay

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestMalformedThenData checks that a malformed HEADERS frame ends only its stream (RFC 9113,
// 8.1.1). The peer may already have sent further frames on that stream, and these must not end the
// connection.
func TestMalformedThenData(t *testing.T) {
	b := newBed(t)
	c := rawClient(t, b.addr)
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":path", Value: "/x/Echo"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "x-meta", Value: "a\x01b"}} {
		e.WriteField(f)
	}
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	c.framer.WriteData(1, true, []byte("\x00\x00\x00\x00\x05hello"))
	c.framer.WritePing(false, [8]byte{1})
	c.nc.SetReadDeadline(time.Now().Add(5 * time.Second))
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		t.Log(f)
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			t.Fatalf("GOAWAY %v %s", f.ErrCode, f.DebugData())
		case *http2.PingFrame:
			if f.IsAck() {
				return
			}
		}
	}
}

// pipes is a listener for in-process connections.
type pipes struct{ c chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.c
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return nil }

// TestDrainSlowClient checks that the last answer on a draining connection reaches a client that
// takes 2 s to read it.
func TestDrainSlowClient(t *testing.T) {
	s := newServer(t, "s", "127.0.0.1:0")
	b := newBed(t, s.addr)
	mine, its := net.Pipe()
	p := pipes{make(chan net.Conn, 1)}
	p.c <- its
	go b.Serve(p)
	c := &raws{mine, http2.NewFramer(mine, mine)}
	mine.SetDeadline(time.Now().Add(20 * time.Second))
	big := strings.Repeat("y", 300<<10)
	go func() {
		mine.Write([]byte(http2.ClientPreface))
		c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8 << 20})
		c.framer.WriteWindowUpdate(0, 8<<20)
		var text bytes.Buffer
		x := &raws{framer: http2.NewFramer(&text, nil)}
		x.request(t, 1, "/x/Echo", "19S", big[:200<<10])
		whole := text.Bytes()
		n := 9 + 5 + (200 << 10)
		head, body := whole[:len(whole)-n], whole[len(whole)-n+9:]
		mine.Write(head)
		for len(body) > 0 {
			part := body[:min(16384, len(body))]
			body = body[len(part):]
			c.framer.WriteData(1, len(body) == 0, part)
		}
	}()
	got, drained := 0, false
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			got += len(f.Data())
			if !drained {
				drained = true
				go b.Drain(context.Background())
			}
			time.Sleep(150 * time.Millisecond) // 13 frames take 2 s
			if f.StreamEnded() {
				return
			}
		case *http2.MetaHeadersFrame, *http2.HeadersFrame:
			if f.Header().Flags.Has(http2.FlagHeadersEndStream) {
				t.Log("whole ", got)
				return
			}
		}
	}
}
