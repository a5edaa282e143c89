// Package refchain is a correct chain on loopback sockets, for tests of clients. It follows
// docs/protocol.md, except that a request passes from head to tail in an instant. Between the
// clients and the chain is a simulated network that loses, duplicates and reorders packets as the
// test configures it.
//
// By default every host may use every key and every session. Keys in a realm (SetRealm) are only
// for principals (SetPrincipal) that have a grant. Leased sessions (Lease) are only for their
// holders. A host is an IPv4 address, so tests bind their clients to addresses of 127.0.0.0/8.
//
// The chain also checks its clients. It records a violation if a client sends a packet that hosts
// may not send, or reuses a request number with other content.
package refchain

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Config configures the chain and the network in front of it.
type Config struct {
	Profile wire.Profile // 0 means 128 bits
	ChainID uint8        // the top byte of the chain's keys
	// Members is the number of members; 0 means 1. Each member has its own address, in addition to
	// the service address.
	Members   int
	Sessions  uint16  // size of the session table; 0 means 4096
	Loss      float64 // probability that a packet is lost, in each direction
	Duplicate float64 // probability that a packet is delivered twice, in each direction
	// Delay is the maximum random delay. Each copy is delayed separately, so packets overtake each
	// other.
	Delay time.Duration
	Seed  uint64
}

// Chain is a running reference chain.
type Chain struct {
	cfg     Config
	conns   []*net.UDPConn // sockets; the first has the service address
	readers sync.WaitGroup

	mu       sync.Mutex
	rand     *rand.Rand
	slots    map[wire.Key]*slot
	records  map[uint16]record
	requests map[requestID][]byte
	epoch    uint16
	frozen   bool
	down     map[int]bool
	// the status with which an address answers every request, by the address's index
	refuse map[int]wire.Status
	// answer to the second copy of each write; OK means the ordinary answer
	second     wire.Status
	principals map[netip.Addr]uint16
	realms     map[wire.Key]uint16
	grants     map[grant]access
	holders    map[uint16]netip.Addr // the host that holds each leased session
	violations []string
	counts     Counts
	closed     bool
}

// Counts counts the packets by what the chain did with them.
type Counts struct {
	Requests, Replies int
	Executed          int // writes that the head executed and gave a version
	Retries           int // copies of writes that were already executed
	Old               int // writes that were older than the newest write of their session
	Denied            int // requests of hosts that lack the right
	BadSession        int // writes under a session that the chain rejects
}

type slot struct {
	version   wire.Version
	value     []byte
	tombstone bool
}

type record struct {
	request uint32
	version wire.Version
}

type requestID struct {
	session uint16
	request uint32
}

type grant struct{ principal, realm uint16 }

type access struct{ read, write bool }

// New starts a chain on 127.0.0.1 and the following addresses, on an unused port.
func New(cfg Config) (*Chain, error) {
	if cfg.Profile == 0 {
		cfg.Profile = wire.Profile128
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 4096
	}
	cfg.Members = max(cfg.Members, 1)
	c := &Chain{
		cfg: cfg, rand: rand.New(rand.NewPCG(cfg.Seed, 2)), epoch: 1,
		slots: map[wire.Key]*slot{}, records: map[uint16]record{}, requests: map[requestID][]byte{},
		down: map[int]bool{}, refuse: map[int]wire.Status{},
		principals: map[netip.Addr]uint16{}, realms: map[wire.Key]uint16{}, grants: map[grant]access{},
		holders: map[uint16]netip.Addr{},
	}
	port := 0
	for i := range cfg.Members + 1 {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, byte(1+i)), Port: port})
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("opening the reference chain's socket %d: %w", i, err)
		}
		_ = conn.SetReadBuffer(4 << 20) // the operating system may allow less
		port = conn.LocalAddr().(*net.UDPAddr).Port
		c.conns = append(c.conns, conn)
	}
	for i := range c.conns {
		c.readers.Add(1)
		go c.read(i)
	}
	return c, nil
}

// Close stops the chain.
func (c *Chain) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.readers.Wait()
}

// ValueBytes returns the maximum length of a value.
func (c *Chain) ValueBytes() int { return c.cfg.Profile.ValueBytes() }

// Addresses returns the service address and the members' addresses.
func (c *Chain) Addresses() []netip.AddrPort {
	var out []netip.AddrPort
	for _, conn := range c.conns {
		out = append(out, conn.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	return out
}

// Place gives keys slots that were never written.
func (c *Chain) Place(keys ...wire.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		c.slots[k] = &slot{tombstone: true}
	}
}

// Take removes a key's slot, and returns the slot's content. If the key had no slot, there is
// false.
func (c *Chain) Take(k wire.Key) (v wire.Version, value []byte, found, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[k]
	delete(c.slots, k)
	if s == nil {
		return 0, nil, false, false
	}
	return s.version, s.value, !s.tombstone, true
}

// Put gives a key a slot with the version v. The slot has a value, or a tombstone if found is
// false.
func (c *Chain) Put(k wire.Key, v wire.Version, value []byte, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots[k] = &slot{version: v, value: value, tombstone: !found}
}

// ID returns the number of the chain.
func (c *Chain) ID() uint8 { return c.cfg.ChainID }

// SetEpoch sets the epoch in the versions of later writes.
func (c *Chain) SetEpoch(epoch uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = epoch
}

// SetFrozen(true) makes the head refuse writes with RETRY. SetFrozen(false) ends that.
func (c *Chain) SetFrozen(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen = frozen
}

// SetDown(address, true) makes an address ignore all packets. SetDown(address, false) ends that.
// Address 0 is the service address.
func (c *Chain) SetDown(address int, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[address] = down
}

// Refuse makes an address answer every request with the status s. The status OK ends that.
func (c *Chain) Refuse(address int, s wire.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse[address] = s
}

// RefuseSecond makes the network duplicate every write and lose the answer to the first copy. The
// chain answers the second copy with the status s, as if the key, the right or the session had been
// removed between the two copies. The status OK ends that.
func (c *Chain) RefuseSecond(s wire.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.second = s
}

// SetPrincipal sets the principal of a host, a number of 16 bits. Hosts initially have 0, which
// means no principal.
func (c *Chain) SetPrincipal(host netip.Addr, principal uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.principals[host] = principal
}

// SetRealm puts a key into a realm, a number of 16 bits. The principal with the realm's number may
// do everything with the key; other principals need grants. Realm 0 removes the key from its realm,
// and then every host may use it.
func (c *Chain) SetRealm(key wire.Key, realm uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.realms[key] = realm
}

// Grant sets the rights of a principal in a realm of another principal. Without a grant, a
// principal has no rights there.
func (c *Chain) Grant(principal, realm uint16, read, write bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants[grant{principal, realm}] = access{read, write}
}

// Lease leases a session to a host. From then on, only this host may write under the session. last
// is the last request number that the chain has recorded for the session, or 0 if there is none.
func (c *Chain) Lease(session uint16, host netip.Addr, last uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders[session] = host
	c.records[session] = record{last, 0}
	for id := range c.requests {
		if id.session == session { // these requests belong to an earlier holder of the session
			delete(c.requests, id)
		}
	}
}

// mayUse reports whether a host may execute the packet's operation on the packet's key.
func (c *Chain) mayUse(host netip.Addr, p *wire.Packet) bool {
	realm, principal := c.realms[p.Key], c.principals[host]
	if realm == 0 || realm == principal {
		return true
	}
	a := c.grants[grant{principal, realm}]
	// a CAS needs both rights, because a failed CAS returns the value
	return (a.read || p.Op == wire.Write) && (a.write || p.Op == wire.Read)
}

// Counts returns the counters.
func (c *Chain) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Violations returns the violations of the protocol by clients.
func (c *Chain) Violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.violations...)
}

func (c *Chain) read(i int) {
	defer c.readers.Done()
	buf := make([]byte, 2048)
	for {
		n, from, err := c.conns[i].ReadFromUDPAddrPort(buf)
		if err != nil {
			return // the socket is closed
		}
		payload := bytes.Clone(buf[:n])
		c.network(func() { c.take(i, from, payload) })
	}
}

// network delivers a packet by calling `deliver`. It calls `deliver` never, once or twice,
// immediately or after a delay.
func (c *Chain) network(deliver func()) {
	c.mu.Lock()
	var delays []time.Duration
	if c.rand.Float64() >= c.cfg.Loss {
		delays = append(delays, c.delay())
		if c.rand.Float64() < c.cfg.Duplicate {
			delays = append(delays, c.delay())
		}
	}
	c.mu.Unlock()
	for _, d := range delays {
		if d == 0 {
			deliver()
		} else {
			time.AfterFunc(d, deliver)
		}
	}
}

func (c *Chain) delay() time.Duration {
	if c.cfg.Delay == 0 {
		return 0
	}
	return time.Duration(c.rand.Int64N(int64(c.cfg.Delay)))
}

// take handles one copy of a request that arrived at the address with index i.
func (c *Chain) take(i int, from netip.AddrPort, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.down[i] {
		return
	}
	var p wire.Packet
	if err := p.Unmarshal(payload, c.cfg.Profile); err != nil {
		c.violate("malformed packet: %v", err)
		return
	}
	c.counts.Requests++
	answerFrom := 0
	var reply *wire.Packet
	if s := c.refuse[i]; s != wire.OK {
		reply = c.answer(&p, s)
	} else if holder, leased := c.holders[p.Session]; p.Op != wire.Read && leased && holder != from.Addr() {
		c.counts.BadSession++
		reply = c.answer(&p, wire.BadSession)
		answerFrom = i // The first switch on the path answers itself.
	} else if p.Key.Chain() != c.cfg.ChainID {
		reply = c.answer(&p, wire.NoChain)
		answerFrom = i
	} else {
		reply = c.execute(&p, payload, from.Addr())
	}
	if reply != nil && c.second != wire.OK && p.Op != wire.Read {
		reply = c.answer(&p, c.second)
	}
	if reply == nil {
		return
	}
	c.counts.Replies++
	b, err := reply.Marshal(c.cfg.Profile)
	if err != nil {
		c.violate("reply: %v", err)
		return
	}
	conn := c.conns[answerFrom]
	// If the socket is closed, the packet is lost, as in a network.
	go c.network(func() { _, _ = conn.WriteToUDPAddrPort(b, from) })
}

func (c *Chain) violate(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// answer returns the reply to a request, with the status s.
func (c *Chain) answer(p *wire.Packet, s wire.Status) *wire.Packet {
	r := *p
	op, ok := p.Op.Reply()
	if !ok {
		c.violate("%v from a client", p.Op)
		return nil
	}
	r.Op, r.Flags, r.Status, r.Epoch = op, 0, s, c.epoch
	return &r
}

// committed returns the reply to a request, with the slot's content.
func (c *Chain) committed(p *wire.Packet, s wire.Status, at *slot) *wire.Packet {
	r := c.answer(p, s)
	r.Version, r.Value, r.Tombstone = at.version, bytes.Clone(at.value), at.tombstone
	return r
}

func (c *Chain) execute(p *wire.Packet, payload []byte, host netip.Addr) *wire.Packet {
	if p.Epoch != 0 || (p.Op == wire.Read && p.Flags&^wire.Eventual != 0) || (p.Op != wire.Read && p.Flags != 0) {
		c.violate("a host may not send %v", p)
		return nil
	}
	at := c.slots[p.Key]
	denied := at != nil && !c.mayUse(host, p)
	switch p.Op {
	case wire.Read:
		if denied {
			c.counts.Denied++
			return c.answer(p, wire.Denied)
		}
		if at == nil {
			return c.committed(p, wire.NotFound, &slot{tombstone: true})
		}
		if at.tombstone {
			return c.committed(p, wire.NotFound, at)
		}
		return c.committed(p, wire.OK, at)
	case wire.Write, wire.CAS:
	default:
		c.violate("a client may not send %v", p)
		return nil
	}
	if p.Session != 0 {
		id := requestID{p.Session, p.Request}
		if first, ok := c.requests[id]; ok && !bytes.Equal(first, payload) {
			c.violate("session %d sends request %d with other content", p.Session, p.Request)
		}
		c.requests[id] = payload
		if p.Request == 0 {
			c.violate("session %d sends request 0", p.Session)
		}
	}
	last := c.records[p.Session]
	far := p.Session != 0 && last.request != 0 && p.Request > last.request &&
		p.Request-last.request > wire.RequestWindow
	switch {
	case c.frozen:
		return c.answer(p, wire.Retry)
	case p.Session >= c.cfg.Sessions:
		c.counts.BadSession++
		return c.answer(p, wire.BadSession)
	case denied:
		c.counts.Denied++
		return c.answer(p, wire.Denied)
	case at == nil:
		return c.committed(p, wire.NotFound, &slot{tombstone: true})
	case far:
		// The number is too far ahead to be the session's next, so the request belongs to another
		// lease.
		c.counts.BadSession++
		return c.answer(p, wire.BadSession)
	}
	isRetry := false
	if p.Session != 0 {
		if p.Request < last.request {
			c.counts.Old++
			return nil
		}
		isRetry = p.Request == last.request
	}
	if isRetry && last.version != 0 {
		c.counts.Retries++
		if last.version < at.version {
			r := c.answer(p, wire.Superseded)
			r.Version = last.version
			return r
		}
		return c.committed(p, wire.OK, at)
	}
	if p.Op == wire.CAS && at.version != p.Version {
		c.records[p.Session] = record{p.Request, 0}
		return c.committed(p, wire.CASFailed, at)
	}
	at.version = wire.MakeVersion(c.epoch, at.version.Sequence()+1)
	at.value, at.tombstone = bytes.Clone(p.Value), p.Tombstone
	c.records[p.Session] = record{p.Request, at.version}
	c.counts.Executed++
	return c.committed(p, wire.OK, at)
}
