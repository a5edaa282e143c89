package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/shares"
)

// Limits are the server's own limits, in addition to those of the API. 0 means the default at the
// end of the field's comment.
type Limits struct {
	// Connections is the largest number of connections of the server. 16,384.
	Connections int
	// MessageTime is how long a message may take from its first byte to its last. 30 s.
	MessageTime time.Duration
	// StallTime is how long a client may leave sent data unread. 60 s.
	StallTime time.Duration
	// DescriptorTime is how long a client may leave descriptors sent to it unread. 10 s.
	DescriptorTime time.Duration
	// Buffered is the maximum number of bytes of incomplete messages, requests under way and unread
	// answers of all connections together, beyond a small allowance for each. A subject always
	// leaves a share for other subjects. 256 MiB.
	Buffered int64
	// OnceClients, OnceEach and OnceBytes bound the answers that are kept for requests with an
	// identity: the number of clients, of answers for one client, and of bytes in total. A full
	// table forgets answers of the subject that uses most of it. 65,536; 4,096; 64 MiB.
	OnceClients, OnceEach int
	OnceBytes             int64
	// AtOnce is the maximum number of concurrent calls of the store (store.Fair). It exceeds what a
	// busy server has under way to the switches, and is low enough to let other work of the process
	// run. 256.
	AtOnce int
	// Lists is the maximum number of concurrent lists, each of which may hold a page of values. A
	// subject always leaves a share for other subjects. 64.
	Lists int
	// Helpers is the maximum number of additional goroutines that read the keys of getMany and list
	// requests. A subject always leaves a share for other subjects. 256.
	Helpers int
	// Farewell is how long, after the grace period, the server waits for requests under way. 1 s.
	Farewell time.Duration

	// Only for tests, which would take too long with the API's own limits.
	unsent, inFlight, watches int
	onceKept                  time.Duration
}

func (l Limits) withDefaults() Limits {
	set(&l.Connections, 16_384)
	set(&l.MessageTime, 30*time.Second)
	set(&l.StallTime, 60*time.Second)
	set(&l.DescriptorTime, 10*time.Second)
	set(&l.Buffered, 256<<20)
	set(&l.OnceClients, 65_536)
	set(&l.OnceEach, 4_096)
	set(&l.OnceBytes, 64<<20)
	set(&l.AtOnce, 256)
	set(&l.Helpers, 256)
	set(&l.Lists, 64)
	set(&l.Farewell, time.Second)
	set(&l.unsent, nodeapi.MaxUnsentBytes)
	set(&l.inFlight, nodeapi.MaxInFlight)
	set(&l.watches, nodeapi.MaxWatches)
	set(&l.onceKept, nodeapi.OnceKeptMillis*time.Millisecond)
	return l
}

func set[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// backpressure is the number of unsent bytes at which the server stops reading from a client and
// its watches wait.
func (l *Limits) backpressure() int { return l.unsent / 8 }

func (l *Limits) patrolEvery() time.Duration {
	return max(min(l.MessageTime, l.StallTime, l.onceKept)/8, 10*time.Millisecond)
}

// budget counts the bytes that are held for all connections, by subject.
type budget struct {
	most int64
	held atomic.Int64

	mu    sync.Mutex
	parts map[string]*part
}

// part is the share of a budget that a subject's connections use.
type part struct {
	b       *budget
	subject string
	held    atomic.Int64
	conns   int // b.mu guards it
}

// join adds a connection of a subject.
func (b *budget) join(subject string) *part {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[subject]
	if p == nil {
		if b.parts == nil {
			b.parts = map[string]*part{}
		}
		p = &part{b: b, subject: subject}
		b.parts[subject] = p
	}
	p.conns++
	return p
}

// leave removes a connection. Its requests under way may still hold something.
func (p *part) leave() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.conns--
}

// sweep forgets subjects that hold nothing.
func (b *budget) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for subject, p := range b.parts {
		if p.conns == 0 && p.held.Load() == 0 {
			delete(b.parts, subject)
		}
	}
}

// take reserves n bytes, unless that is more than the subject's share.
func (p *part) take(n int64) bool {
	p.count(n)
	if n <= 0 || shares.Fits(p.held.Load(), p.b.held.Load(), 0, p.b.most) {
		return true
	}
	p.count(-n)
	return false
}

// count adds n bytes without a limit, or releases them if n is negative.
func (p *part) count(n int64) {
	p.b.held.Add(n)
	p.held.Add(n)
}
