package inprocess

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/devnet"
	"github.com/netcraq/netcraq/test/system/lab"
)

// relay lets clients with ordinary sockets use a testbed. For each chain, it has a UDP socket on
// loopback. It passes the socket's datagrams into the testbed through a host's port, to the chain's
// service address. The relay also has an admin API like the controller's. There, the chains have
// the addresses of the relay's sockets.
type relay struct {
	bed  *testbed
	host int

	// notified counts the notifications that came out of the testbed. If lossy is not 0, the relay
	// drops one of every lossy notifications, and lost counts the dropped ones.
	notified, lost, lossy atomic.Int64

	mu      sync.Mutex
	to      string // URL of the controller's admin API; "" if it is not reachable
	sockets map[string]netip.AddrPort
	conns   map[uint8]*net.UDPConn // the sockets, by chain
	// UDP ports in the testbed; the keys are the addresses of senders and of servers that are
	// notified
	ports map[netip.AddrPort]uint16
}

// newRelay makes a relay, through which clients use the testbed as the host of a switch. url is the
// URL of the relay's admin API.
func newRelay(x *testbed, host int) (r *relay, url string) {
	x.t.Helper()
	r = &relay{bed: x, host: host, sockets: map[string]netip.AddrPort{},
		conns: map[uint8]*net.UDPConn{}, ports: map[netip.AddrPort]uint16{}}
	for _, c := range x.layout.Chains {
		s, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			x.t.Fatal(err)
		}
		service := lab.ServiceAddrOf(c.ID)
		r.conns[uint8(c.ID)] = s
		r.sockets[service.String()] = s.LocalAddr().(*net.UDPAddr).AddrPort()
		done := make(chan struct{})
		go func() { defer close(done); r.serve(s, service) }()
		x.t.Cleanup(func() { s.Close(); <-done })
	}
	server := httptest.NewServer(http.HandlerFunc(r.admin))
	x.t.Cleanup(server.Close)
	return r, server.URL
}

// ask makes the relay use the controller at url; with "", it uses none.
func (r *relay) ask(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = url
}

func (r *relay) serve(s *net.UDPConn, service netip.Addr) {
	buf := make([]byte, 2048)
	for {
		n, from, err := s.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		payload := slices.Clone(buf[:n])
		port := r.portOf(from, func(p *wire.Packet, b []byte) {
			_, _ = s.WriteToUDPAddrPort(b, from) // the client may have closed its socket
		})
		f := wire.Frame{Src: netip.AddrPortFrom(lab.HostAddr(r.host), port),
			Dst:         netip.AddrPortFrom(service, wire.Port),
			EthernetSrc: [6]byte{2, 0, 0, 0, 0, byte(r.host)}}
		frame, err := f.AppendTo(nil, payload)
		if err != nil {
			continue
		}
		r.bed.network.Inject(devnet.Port{Switch: r.host, Number: 1}, frame)
	}
}

// watching changes a WatchRequest so that switches send the notifications to the testbed's host.
func (r *relay) watching(body []byte) []byte {
	var w admin.WatchRequest
	if json.Unmarshal(body, &w) != nil {
		return body
	}
	address, err := netip.ParseAddr(w.Address)
	if err != nil {
		return body
	}
	at := netip.AddrPortFrom(address, w.Port)
	w.Address = lab.HostAddr(r.host).String()
	w.Port = r.portOf(at, func(p *wire.Packet, b []byte) { r.notify(p, b, at) })
	body, _ = json.Marshal(w)
	return body
}

// notify passes a switch's notification on to the watching server.
func (r *relay) notify(p *wire.Packet, b []byte, to netip.AddrPort) {
	if p.Op != wire.Notify {
		return
	}
	n := r.notified.Add(1)
	if every := r.lossy.Load(); every > 0 && n%every == 0 {
		r.lost.Add(1)
		return
	}
	if s := r.conns[p.Key.Chain()]; s != nil {
		_, _ = s.WriteToUDPAddrPort(b, to)
	}
}

// portOf returns the UDP port of a sender in the testbed. The function back receives the packets to
// that port.
func (r *relay) portOf(from netip.AddrPort, back func(*wire.Packet, []byte)) uint16 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.ports[from]; ok {
		return p
	}
	replies := make(chan *wire.Packet, 1024)
	r.bed.mu.Lock()
	r.bed.port++
	port := r.bed.port
	r.bed.replies[port] = replies
	r.bed.mu.Unlock()
	r.ports[from] = port
	go func() {
		for p := range replies {
			if b, err := p.Marshal(wire.Profile128); err == nil {
				back(p, b)
			}
		}
	}()
	r.bed.t.Cleanup(func() {
		r.bed.mu.Lock()
		defer r.bed.mu.Unlock()
		if r.bed.replies[port] != nil {
			delete(r.bed.replies, port)
			close(replies)
		}
	})
	return port
}

// admin forwards a request to the controller. In the answer, it replaces addresses with the relay's
// addresses.
func (r *relay) admin(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	if to == "" {
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if q.URL.Path == "/v1/sessions" {
		// the client names its own host, which is not in the testbed's network
		var s admin.SessionsRequest
		if json.Unmarshal(body, &s) == nil {
			s.Address = ""
			body, _ = json.Marshal(s)
		}
	}
	if q.URL.Path == "/v1/watches" {
		body = r.watching(body)
	}
	on, err := http.NewRequestWithContext(q.Context(), q.Method, to+q.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	on.Header = q.Header.Clone()
	resp, err := http.DefaultClient.Do(on)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if resp.StatusCode == http.StatusOK && strings.HasPrefix(q.URL.Path, "/v1/chains") {
		text = r.translated(text, q.URL.Path == "/v1/chains")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	w.Write(text)
}

func (r *relay) translated(text []byte, list bool) []byte {
	chains := make([]admin.Chain, 1)
	if list {
		if json.Unmarshal(text, &chains) != nil {
			return text
		}
	} else if json.Unmarshal(text, &chains[0]) != nil {
		return text
	}
	for i := range chains {
		chains[i].ServiceAddress = r.sockets[chains[i].ServiceAddress].String()
		chains[i].Members = nil
	}
	if list {
		text, _ = json.Marshal(chains)
	} else {
		text, _ = json.Marshal(chains[0])
	}
	return text
}
