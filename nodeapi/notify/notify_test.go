package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
	"github.com/netcraq/netcraq/nodeapi/keys"
)

// patience is how long a test waits for something that should happen soon, even on a busy machine.
const patience = 20 * time.Second

// bed simulates a controller that behaves as a test requires, and has the sockets of two chains'
// switches.
type bed struct {
	t        *testing.T
	server   *httptest.Server
	services [2]*net.UDPConn // sockets of the switches of chains 1 and 2; mu guards changes
	log      syncbuffer.Buffer
	registry *prometheus.Registry

	mu sync.Mutex
	// writes the controller's answer; nil means to accept the request
	answer  func(http.ResponseWriter, *admin.WatchRequest)
	asked   []admin.WatchRequest
	unknown map[uint32]bool // keys that the controller refuses
	ttl     int
}

func newBed(t *testing.T) *bed {
	t.Helper()
	x := &bed{t: t, unknown: map[uint32]bool{}, ttl: 30, registry: prometheus.NewPedanticRegistry()}
	for i := range x.services {
		x.services[i] = listen(t)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/chains", func(w http.ResponseWriter, _ *http.Request) {
		var all []admin.Chain
		x.mu.Lock()
		defer x.mu.Unlock()
		for i, s := range x.services {
			all = append(all, admin.Chain{Name: fmt.Sprint("c", i+1), ID: uint8(i + 1),
				// chain 1 has values of 16 bytes, and chain 2 of 128 bytes
				ServiceAddress: s.LocalAddr().String(), ValueBytes: 16 << (3 * i)})
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	mux.HandleFunc("PUT /v1/watches", func(w http.ResponseWriter, r *http.Request) {
		var q admin.WatchRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		x.mu.Lock()
		x.asked = append(x.asked, q)
		answer := x.answer
		out := admin.Watch{TTLSeconds: x.ttl}
		for _, id := range q.KeyIDs {
			if x.unknown[id] {
				out.Refused = append(out.Refused, id)
			}
		}
		x.mu.Unlock()
		if answer != nil {
			answer(w, &q)
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	x.server = httptest.NewServer(mux)
	t.Cleanup(x.server.Close)
	return x
}

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// quick has short intervals and timeouts for tests.
var quick = pace{gather: 20 * time.Millisecond, settle: 20 * time.Millisecond, request: 2 * time.Second,
	end: 200 * time.Millisecond, failed: 5 * time.Millisecond, failures: 50 * time.Millisecond,
	refused: 20 * time.Millisecond,
	absent:  50 * time.Millisecond, chains: time.Millisecond, lost: time.Millisecond}

func (x *bed) receiver(o Options, p pace) *Receiver {
	x.t.Helper()
	o.Admin, o.Metrics = admin.NewClient(x.server.URL), x.registry
	o.Log = slog.New(slog.NewTextHandler(&x.log, nil))
	r := newReceiver(o, p)
	r.work.Go(r.run)
	x.t.Cleanup(func() {
		r.Close()
		r.Close()
		if n, err := testutil.GatherAndCount(x.registry); err != nil || n > 0 {
			x.t.Errorf("%d metrics are left: %v", n, err)
		}
	})
	return r
}

// answers sets the function that writes the controller's answer. With nil, the controller accepts
// requests.
func (x *bed) answers(f func(http.ResponseWriter, *admin.WatchRequest)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answer = f
}

// moveTo changes the service address of chain 1.
func (x *bed) moveTo(s *net.UDPConn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.services[0] = s
}

func (x *bed) service() *net.UDPConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.services[0]
}

// fails makes the controller answer with an error code.
func (x *bed) fails(code string) {
	x.answers(func(w http.ResponseWriter, _ *admin.WatchRequest) {
		e := admin.Errorf(code, "the test says %s", code)
		w.WriteHeader(e.Status)
		_, _ = w.Write(admin.MarshalError(e))
	})
}

// last returns the last request to the controller, and the number of requests.
func (x *bed) last() (admin.WatchRequest, int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.asked) == 0 {
		return admin.WatchRequest{}, 0
	}
	return x.asked[len(x.asked)-1], len(x.asked)
}

// holds waits until the last request to the controller had exactly these keys.
func (x *bed) holds(ids ...uint32) admin.WatchRequest {
	x.t.Helper()
	slices.Sort(ids)
	var got admin.WatchRequest
	poll.Until(x.t, patience, fmt.Sprintf("the controller is told of %d", ids), func() bool {
		var n int
		got, n = x.last()
		return n > 0 && slices.Equal(got.KeyIDs, ids)
	}, func() string { return fmt.Sprint(got) })
	return got
}

func (x *bed) said(text string) int { return strings.Count(x.log.String(), text) }

// ear is a follower of a key, which stores the reports that it gets.
type ear struct {
	mu    sync.Mutex
	news  []keys.News
	hints int
}

func (e *ear) told(n keys.News) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.Version == 0 {
		e.hints++
	} else {
		e.news = append(e.news, n)
	}
}

func (e *ear) heard() ([]keys.News, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.news), e.hints
}

// helped waits until Helps returns the wanted result for a key.
func helped(t *testing.T, r *Receiver, id wire.Key, want bool) {
	t.Helper()
	poll.Until(t, patience, fmt.Sprintf("%v is helped: %v", id, want), func() bool { return r.Helps(id) == want })
}

func packet(t *testing.T, p wire.Packet, profile wire.Profile) []byte {
	t.Helper()
	b, err := p.Marshal(profile)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func send(t *testing.T, from *net.UDPConn, to netip.AddrPort, b []byte) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort(b, to); err != nil {
		t.Fatal(err)
	}
}

func at(w admin.WatchRequest) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(w.Address), w.Port)
}

func (r *Receiver) counted(result string) int {
	return int(testutil.ToFloat64(r.count.results[result]))
}

const (
	wide  = wire.Profile1024 // the profile of chain 2
	small = wire.Profile128  // the profile of chain 1
)

var keyA, keyB = wire.MakeKey(1, 7), wire.MakeKey(2, 9)

// TestTells checks that the controller gets the followed keys. Notifications of the switch must
// reach the followers of a key, and no other follower. At the end the controller must have no keys.
func TestTells(t *testing.T) {
	x := newBed(t)
	r := x.receiver(Options{}, quick)
	time.Sleep(3 * quick.gather)
	if _, n := x.last(); n > 0 {
		t.Error("the controller was asked, and nobody follows anything")
	}
	var a, b, also ear
	stopA, stopB := r.Follow(keyA, a.told), r.Follow(keyB, b.told)
	stopAlso := r.Follow(keyA, also.told)
	to := at(x.holds(uint32(keyA), uint32(keyB)))
	if !to.Addr().IsLoopback() {
		t.Errorf("at %v", to)
	}
	helped(t, r, keyA, true)
	helped(t, r, keyB, true)
	for _, e := range []*ear{&a, &b, &also} {
		poll.Until(t, patience, "what was committed before is read", func() bool { _, hints := e.heard(); return hints > 0 })
	}
	if n := testutil.ToFloat64(r.count.keys); n != 2 {
		t.Errorf("%v keys", n)
	}
	send(t, x.services[0], to, packet(t, wire.Packet{Op: wire.Notify, Key: keyA, Epoch: 3, Version: 5,
		Value: []byte("five")}, small))
	send(t, x.services[1], to, packet(t, wire.Packet{Op: wire.Notify, Key: keyB, Version: 6, Tombstone: true}, wide))
	for _, c := range []struct {
		of   *ear
		want keys.News
	}{{&a, keys.News{Key: keyA, Version: 5, Found: true, Value: []byte("five")}},
		{&also, keys.News{Key: keyA, Version: 5, Found: true, Value: []byte("five")}},
		{&b, keys.News{Key: keyB, Version: 6}}} {
		poll.Until(t, patience, "told", func() bool { news, _ := c.of.heard(); return len(news) == 1 })
		got, _ := c.of.heard()
		if g := got[0]; g.Key != c.want.Key || g.Version != c.want.Version || g.Found != c.want.Found ||
			!bytes.Equal(g.Value, c.want.Value) {
			t.Errorf("told %+v, want %+v", g, c.want)
		}
	}
	stopA()
	stopB()
	stopB()
	x.holds(uint32(keyA))
	if r.Helps(keyB) || !r.Helps(keyA) {
		t.Error("what is helped is not what is followed")
	}
	stopAlso()
	x.holds()
	if n := testutil.ToFloat64(r.count.keys); n != 0 {
		t.Errorf("%v keys", n)
	}
	_, before := x.last()
	time.Sleep(3 * quick.gather)
	if _, now := x.last(); now != before {
		t.Error("the controller is told again and again that there is nothing")
	}
	r.Follow(keyB, b.told)
	x.holds(uint32(keyB))
	r.Close()
	x.holds()
	if got, _ := x.last(); at(got) != to {
		t.Errorf("ended at %v, not %v", got, to)
	}
}

// TestForged checks that only datagrams that a chain's switch may have sent are reported. All other
// datagrams must be dropped and counted, and must have no effect.
func TestForged(t *testing.T) {
	x := newBed(t)
	r := x.receiver(Options{}, quick)
	var e ear
	r.Follow(keyA, e.told)
	r.Follow(keyB, e.told)
	to := at(x.holds(uint32(keyA), uint32(keyB)))
	helped(t, r, keyA, true)
	good := wire.Packet{Op: wire.Notify, Key: keyA, Version: 5, Value: []byte("x")}
	but := func(change func(*wire.Packet)) []byte {
		p := good
		change(&p)
		return packet(t, p, small)
	}
	long := packet(t, good, small)
	long[6], long[7] = 0, 17 // set the length field to 17, which is longer than the values of chain 1
	for _, c := range []struct {
		what   string
		from   *net.UDPConn
		b      []byte
		result string
	}{
		{"from somebody's port", listen(t), packet(t, good, small), badSource},
		{"from another chain's address", x.services[1], packet(t, good, wide), badSource},
		{"nothing", x.services[0], nil, badLength},
		{"half a packet", x.services[0], packet(t, good, small)[:20], badLength},
		{"without all of its value", x.services[0], packet(t, good, small)[:wire.HeaderBytes+15], badLength},
		{"of a wider chain", x.services[0], packet(t, good, wide), badLength},
		{"a byte too long", x.services[0], append(packet(t, good, small), 0), badLength},
		{"oversize", x.services[0], make([]byte, 60000), badLength},
		{"a value that does not fit", x.services[0], long, badLength},
		{"no op", x.services[0], append([]byte{99}, packet(t, good, small)[1:]...), badOp},
		{"an acknowledgement", x.services[0], but(func(p *wire.Packet) { p.Op = wire.Ack }), badOp},
		{"a reply", x.services[0], but(func(p *wire.Packet) { p.Op = wire.ReadReply }), badOp},
		{"a session's", x.services[0], but(func(p *wire.Packet) { p.Session = 1 }), badContent},
		{"a request's", x.services[0], but(func(p *wire.Packet) { p.Request = 1 }), badContent},
		{"a status", x.services[0], but(func(p *wire.Packet) { p.Status = wire.Denied }), badContent},
		{"no version", x.services[0], but(func(p *wire.Packet) { p.Version = 0 }), badContent},
		{"a key that nobody follows", x.services[0], but(func(p *wire.Packet) { p.Key++ }), badKey},
	} {
		before := r.counted(c.result)
		send(t, c.from, to, c.b)
		poll.Until(t, patience, c.what+" is dropped", func() bool { return r.counted(c.result) == before+1 },
			func() string { return fmt.Sprint(results) })
	}
	if news, _ := e.heard(); len(news) > 0 {
		t.Errorf("told %+v", news)
	}
	send(t, x.services[0], to, packet(t, good, small))
	poll.Until(t, patience, "told", func() bool { news, _ := e.heard(); return len(news) == 1 })
	if n := r.counted(told); n != 1 {
		t.Errorf("%d told", n)
	}
	if n := strings.Count(x.log.String(), "\n"); n > 1 {
		t.Errorf("forgers write to the log:\n%s", &x.log)
	}
}

// TestFlood checks that the receiver survives a flood of datagrams. It must count the datagrams
// that the kernel dropped, and trigger reads of the keys.
func TestFlood(t *testing.T) {
	x := newBed(t)
	r := x.receiver(Options{}, quick)
	hold, entered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var e ear
	r.Follow(keyA, func(n keys.News) {
		if n.Version == 1 {
			once.Do(func() { close(entered); <-hold }) // block the receiving goroutine
		}
		e.told(n)
	})
	to := at(x.holds(uint32(keyA)))
	helped(t, r, keyA, true)
	poll.Until(t, patience, "read once", func() bool { _, hints := e.heard(); return hints == 1 })
	note := func(v wire.Version) []byte {
		return packet(t, wire.Packet{Op: wire.Notify, Key: keyA, Version: v}, small)
	}
	send(t, x.services[0], to, note(1))
	<-entered
	forger, junk := listen(t), make([]byte, 8000)
	const many = 20000 // more datagrams than fit into any buffer that the kernel grants here
	for i := range many {
		_, _ = forger.WriteToUDPAddrPort(junk[:40+i%2*7960], to)
	}
	close(hold)
	poll.Until(t, patience, "what comes after a flood is told", func() bool {
		send(t, x.services[0], to, note(2))
		news, _ := e.heard()
		return len(news) > 0 && news[len(news)-1].Version == 2
	})
	poll.Until(t, patience, "the keys are read", func() bool {
		send(t, x.services[0], to, note(2))
		_, hints := e.heard()
		return r.counted(overflown) > 0 && hints > 1
	}, func() string { return fmt.Sprint(r.counted(overflown), " lost") })
	if all := r.counted(overflown) + r.counted(badSource); all > many+100 || all < many/2 {
		t.Errorf("%d lost and %d dropped, of %d", r.counted(overflown), r.counted(badSource), many)
	}
}

// TestBounds checks that the controller gets many keys in one request, up to the limit.
func TestBounds(t *testing.T) {
	x := newBed(t)
	p := quick
	p.gather = 300 * time.Millisecond
	r := x.receiver(Options{Keys: 100}, p)
	var e ear
	var stops []func()
	var first []uint32
	for i := range 300 {
		id := wire.MakeKey(1, uint32(1000-i))
		stops = append(stops, r.Follow(id, e.told))
		first = append(first, uint32(id))
	}
	x.holds(slices.Clone(first[:100])...)
	if _, n := x.last(); n > 5 {
		t.Errorf("the controller was asked %d times", n)
	}
	helped(t, r, wire.Key(first[99]), true)
	if r.Helps(wire.Key(first[100])) {
		t.Error("a key beyond the bound is helped")
	}
	stops[0]()
	stops[50]()
	want := slices.Concat(first[1:50], first[51:102])
	x.holds(want...)
	helped(t, r, wire.Key(first[101]), true)
}

// TestRefusals checks that keys that the controller refuses do not count as reported by the switch.
// If the controller refuses a key later, the key must be read.
func TestRefusals(t *testing.T) {
	x := newBed(t)
	x.ttl = 1
	x.unknown[uint32(keyB)] = true
	r := x.receiver(Options{}, quick)
	var a, b ear
	r.Follow(keyA, a.told)
	r.Follow(keyB, b.told)
	x.holds(uint32(keyA), uint32(keyB))
	helped(t, r, keyA, true)
	if r.Helps(keyB) {
		t.Error("a key that is refused is helped")
	}
	if _, n := b.heard(); n > 0 {
		t.Error("a key that is refused is read for it")
	}
	x.mu.Lock()
	x.unknown = map[uint32]bool{uint32(keyA): true}
	x.mu.Unlock()
	_, before := a.heard()
	helped(t, r, keyA, false)
	helped(t, r, keyB, true)
	poll.Until(t, patience, "it is read", func() bool { _, n := a.heard(); return n > before })
	x.mu.Lock()
	x.unknown[uint32(keyB)] = true
	x.mu.Unlock()
	poll.Until(t, patience, "that all are refused is said", func() bool { return x.said("does not allow this host any notifications") == 1 })
}

const off, on = "the server polls watched keys, because", "the switch tells of keys"

// TestWithout checks a controller that does not support watches, or refuses them. Periodic reads
// then find all changes, and this must be logged once. When the controller accepts watches, they
// must work.
func TestWithout(t *testing.T) {
	for _, code := range []string{admin.CodeNotFound, admin.CodePermissionDenied, admin.CodeFailedPrecondition,
		admin.CodeInvalidArgument, admin.CodeUnavailable, admin.CodeInternal, "garbage"} {
		t.Run(code, func(t *testing.T) {
			x := newBed(t)
			x.fails(code)
			if code == "garbage" {
				x.answers(func(w http.ResponseWriter, _ *admin.WatchRequest) { fmt.Fprint(w, "<html>") })
			}
			r := x.receiver(Options{}, quick)
			var e ear
			r.Follow(keyA, e.told)
			poll.Until(t, patience, "it is tried again", func() bool { _, n := x.last(); return n >= 4 })
			if _, hints := e.heard(); r.Helps(keyA) || hints > 0 {
				t.Error("the key is helped")
			}
			if n := x.said(off); n != 1 {
				t.Errorf("said %d times:\n%s", n, &x.log)
			}
			x.answers(nil)
			helped(t, r, keyA, true)
			if x.said(on) != 1 {
				t.Errorf("not said:\n%s", &x.log)
			}
		})
	}
}

// TestKilled checks that a server can replace a server that was killed. The killed server has not
// ended its watch at the controller, which still reserves the host for it. The next server must
// take over the watch when the killed server's port is free, and not before.
func TestKilled(t *testing.T) {
	x := newBed(t)
	old := listen(t)
	port := uint16(old.LocalAddr().(*net.UDPAddr).Port)
	said := port
	x.answers(func(w http.ResponseWriter, q *admin.WatchRequest) {
		if q.Port == port {
			_ = json.NewEncoder(w).Encode(admin.Watch{TTLSeconds: x.ttl})
			return
		}
		e := admin.Errorf(admin.CodeFailedPrecondition, "another server of this host watches")
		x.mu.Lock()
		e.WatchedAt = said
		x.mu.Unlock()
		w.WriteHeader(e.Status)
		_, _ = w.Write(admin.MarshalError(e))
	})
	r := x.receiver(Options{}, quick)
	var e ear
	r.Follow(keyA, e.told)
	poll.Until(t, patience, "it is refused again and again", func() bool { _, n := x.last(); return n >= 4 })
	if got, _ := x.last(); got.Port == port || r.Helps(keyA) {
		t.Errorf("it has the port of one that lives: %v", got)
	}
	// The server must not open privileged ports or NetCRAQ's own port, whatever a controller
	// answers.
	for _, forbidden := range []uint16{1, 1023, wire.Port} {
		x.mu.Lock()
		said = forbidden
		x.mu.Unlock()
		_, before := x.last()
		poll.Until(t, patience, "it is refused again", func() bool { _, n := x.last(); return n >= before+2 })
		if got, _ := x.last(); got.Port == forbidden {
			t.Errorf("it has the port %d", forbidden)
		}
	}
	x.mu.Lock()
	said = port
	x.mu.Unlock()
	old.Close()
	helped(t, r, keyA, true)
	got, _ := x.last()
	send(t, x.services[0], at(got), packet(t, wire.Packet{Op: wire.Notify, Key: keyA, Version: 5}, small))
	poll.Until(t, patience, "it is told", func() bool { n, _ := e.heard(); return len(n) == 1 })
}

// TestAway checks a controller that does not answer for some time. If this time is shorter than the
// duration of a watch, nothing may change. If it is longer, Helps must return false. When a
// controller answers again, the keys must be read, because its tables may have been empty.
func TestAway(t *testing.T) {
	x := newBed(t)
	x.ttl = 1
	r := x.receiver(Options{}, quick)
	var e ear
	r.Follow(keyA, e.told)
	to := at(x.holds(uint32(keyA)))
	helped(t, r, keyA, true)
	_, asked := x.last()
	poll.Until(t, patience, "it is told again before it forgets", func() bool { _, n := x.last(); return n > asked+3 })
	if !r.Helps(keyA) {
		t.Error("not helped while the controller is there")
	}
	poll.Until(t, patience, "read once", func() bool { _, n := e.heard(); return n == 1 })

	gone := make(chan struct{})
	defer close(gone)
	x.answers(func(w http.ResponseWriter, _ *admin.WatchRequest) { panic(http.ErrAbortHandler) })
	_, asked = x.last()
	poll.Until(t, patience, "it is asked in vain", func() bool { _, n := x.last(); return n > asked+1 })
	x.answers(nil)
	poll.Until(t, patience, "read since it is back", func() bool { _, n := e.heard(); return n > 1 })

	x.answers(func(http.ResponseWriter, *admin.WatchRequest) { <-gone })
	_, before := e.heard()
	helped(t, r, keyA, false)
	poll.Until(t, patience, "read since nobody tells of it", func() bool { _, n := e.heard(); return n > before })
	send(t, x.services[0], to, packet(t, wire.Packet{Op: wire.Notify, Key: keyA, Version: 5}, small))
	poll.Until(t, patience, "what the switch still says is told", func() bool { n, _ := e.heard(); return len(n) == 1 })

	ended := make(chan struct{})
	go func() { defer close(ended); r.Close() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("it waits for a controller that hangs")
	}
}

// TestMoved checks that the chains are requested again if their addresses have changed.
func TestMoved(t *testing.T) {
	x := newBed(t)
	x.ttl = 1
	r := x.receiver(Options{}, quick)
	var e ear
	r.Follow(keyA, e.told)
	to := at(x.holds(uint32(keyA)))
	x.moveTo(listen(t))
	poll.Until(t, patience, "told from where the chain is now", func() bool {
		send(t, x.service(), to, packet(t, wire.Packet{Op: wire.Notify, Key: keyA, Version: 5}, small))
		n, _ := e.heard()
		return len(n) > 0
	})
}
