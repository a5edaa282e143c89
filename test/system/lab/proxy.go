package lab

import (
	_ "embed"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy between a controller and a switch. A test can cut it to simulate a broken
// network.
type Proxy struct {
	Addr string
	mu   sync.Mutex
	cut  bool
	open map[net.Conn]bool
}

func StartProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &Proxy{Addr: l.Addr().String(), open: map[net.Conn]bool{}}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil || !p.add(in, out) {
				in.Close()
				continue
			}
			go p.copy(in, out)
			go p.copy(out, in)
		}
	}()
	return p
}

func (p *Proxy) add(in, out net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		out.Close()
		return false
	}
	p.open[in], p.open[out] = true, true
	return true
}

func (p *Proxy) copy(from, to net.Conn) {
	io.Copy(to, from)
	from.Close()
	to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, from)
	delete(p.open, to)
}

// SetCut(true) breaks all connections and refuses new ones. SetCut(false) allows connections again.
func (p *Proxy) SetCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		for c := range p.open {
			c.Close()
		}
	}
}
