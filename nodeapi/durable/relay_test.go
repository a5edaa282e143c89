package durable

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// relay is a connection to etcd that a test can cut.
type relay struct {
	url, to string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]struct{}
}

func newRelay(t *testing.T, url string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{url: "http://" + l.Addr().String(), to: url[strings.Index(url, "://")+3:], conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() { l.Close(); r.cut() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", r.to)
			r.mu.Lock()
			if err != nil || r.isCut {
				in.Close()
				if out != nil {
					out.Close()
				}
				r.mu.Unlock()
				continue
			}
			r.conns[in], r.conns[out] = struct{}{}, struct{}{}
			r.mu.Unlock()
			for _, ends := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(ends[0], ends[1])
					ends[0].Close()
					ends[1].Close()
				}()
			}
		}
	}()
	return r
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = true
	for c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = false
}
