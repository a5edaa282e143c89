package ports

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/offload"
)

// Direction is the direction of a frame at a port.
type Direction int

// The two directions, seen from the switch.
const (
	Rx Direction = iota // from the wire into the switch
	Tx                  // from the switch onto the wire
)

func (d Direction) String() string {
	if d == Rx {
		return "rx"
	}
	return "tx"
}

// Options configures a Set. The zero value is usable.
type Options struct {
	// Batch is the number of frames that the packet thread takes from one port before it sends
	// queued frames and serves the other ports. 0 means 64.
	Batch int
	// SpinMax is the longest time for which the packet thread polls for frames before it sleeps. 0
	// means 50 µs. A negative value means that it never polls.
	SpinMax time.Duration
	// Mark is the packet mark of sent frames (SO_MARK), or 0 for none.
	Mark uint32
	// Log receives messages about ports. If it is nil, the Set uses slog.Default().
	Log *slog.Logger
	// Faults, if not nil, apply to every frame that enters or leaves (only for tests).
	Faults *Faults
	// Tap, if not nil, is called on the packet thread with each frame that enters the handler or is
	// sent. It is for captures. It must not retain the frame.
	Tap func(at time.Time, iface string, dir Direction, frame []byte)
	// AfterBatch, if not nil, is called on the packet thread after the handler has processed a
	// round of frames, and before the queued frames are sent.
	AfterBatch func()
}

// Counters are a port's counters.
type Counters struct {
	RxPackets, RxBytes uint64 // frames that were passed to the handler
	TxPackets, TxBytes uint64 // frames that the kernel accepted for sending
	// Frames that were queued for the port but not sent, because the port is down, its queue is
	// full, or the frame exceeds its MTU.
	TxDropped uint64
	// Frames that were not passed to the handler, because they are larger than the interface's MTU
	// allows. For example, they come from a sender's segmentation offload, or are jumbo frames.
	RxOversize uint64
	RxOverrun  uint64 // frames that were lost because the ring was full
	// RxForged counts frames that request a checksum at an offset where there is none. They are not
	// passed to the handler.
	RxForged uint64
}

// Handler receives each incoming frame on the packet thread. Until it returns, it may change the
// frame within its length.
type Handler func(port uint32, frame []byte)

// ErrClosed is the error of calls on a closed Set.
var ErrClosed = errors.New("ports are closed")

// Set is a group of ports that one packet thread serves. Its methods are safe for concurrent use,
// except for Send.
type Set struct {
	handle Handler
	opts   Options
	log    *slog.Logger

	wakeFD   int
	sleeping atomic.Bool
	posted   atomic.Bool
	done     chan struct{}

	mu      sync.Mutex // guards jobs, known and closing
	jobs    []func()
	known   map[uint32]*port // every configured port, whether it is up or down
	closing bool

	// Fields that belong to the packet thread.
	active  []*port // ports with an open socket
	table   []*port // ports by number, for numbers below tableSize
	sparse  map[uint32]*port
	delayed delayQueue
	pollFDs []unix.PollFd
	dirty   []*port // ports with queued frames
	spin    spinner

	opening sync.Mutex // held while Add, or a check after an interface has returned, opens a socket
	watch   *linkWatch
}

// tableSize is the number of port numbers with fast lookup. It covers v1model's 9-bit port numbers.
const tableSize = 512

// port is one configured port.
type port struct {
	number   uint32
	iface    string
	settings *offload.Change // changes of the interface's settings that must be undone
	// Set once the log says that the interface cannot be checked or opened; guarded by Set.opening.
	logged bool
	up     atomic.Bool

	rxPackets, rxBytes, txPackets, txBytes, txDropped, rxOversize, rxOverrun, rxForged atomic.Uint64

	// The following fields belong to the packet thread.
	sock           *socket // nil while the interface does not exist or is down
	tx             txQueue
	queued         bool // the port is in Set.dirty
	rxFault        *faultLine
	txFault        *faultLine
	oversizeLogged bool // set once the log says that there are oversize frames
}

// New starts a packet thread that passes frames to handle.
func New(handle Handler, opts Options) (*Set, error) {
	if opts.Batch <= 0 {
		opts.Batch = 64
	}
	if opts.SpinMax == 0 {
		opts.SpinMax = 50 * time.Microsecond
	}
	log := opts.Log
	if log == nil {
		log = slog.Default()
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making the packet thread's wake-up descriptor: %w", err)
	}
	if err := offload.Recover(); err != nil {
		log.Warn("what a dead switch changed on interfaces may still be changed", "err", err)
	}
	s := &Set{
		handle: handle,
		opts:   opts,
		log:    log,
		wakeFD: wake,
		done:   make(chan struct{}),
		known:  map[uint32]*port{},
		table:  make([]*port, tableSize),
		sparse: map[uint32]*port{},
		spin:   spinner{max: opts.SpinMax},
	}
	s.pollFDs = append(s.pollFDs, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	s.watch, err = watchLinks(s.linkChanged, log)
	if err != nil {
		_ = unix.Close(wake)
		return nil, err
	}
	go s.run()
	return s, nil
}

// Add makes the interface named iface port number. The interface must exist. Add puts it into
// promiscuous mode. Until [Set.Remove] or [Set.Close], Add also turns off offloads that would show
// the program frames which were never on the wire.
func (s *Set) Add(number uint32, iface string) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	if p := s.known[number]; p != nil {
		s.mu.Unlock()
		return fmt.Errorf("port %d is taken by interface %s", number, p.iface)
	}
	for _, p := range s.known {
		if p.iface == iface {
			s.mu.Unlock()
			return fmt.Errorf("interface %s is already port %d", iface, p.number)
		}
	}
	p := &port{number: number, iface: iface}
	s.known[number] = p
	s.mu.Unlock()

	if err := s.open(p); err != nil {
		s.mu.Lock()
		delete(s.known, number)
		s.mu.Unlock()
		return fmt.Errorf("port %d: %w", number, err)
	}
	return nil
}

// open opens a socket for p and passes it to the packet thread. The caller holds s.opening, and p
// must have no socket.
func (s *Set) open(p *port) error {
	link, err := net.InterfaceByName(p.iface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.iface, errNoInterface(err))
	}
	// These offloads merge received frames, split sent frames, or complete checksums of sent frames
	// later.
	settings, err := offload.Off(p.iface, link.Index, offload.GenericReceive, offload.LargeReceive,
		offload.TCPSegments, offload.GenericSegment, offload.TxChecksums)
	if err != nil {
		s.log.Debug("some offloads stay as they are, or are not recorded", "port", p.number,
			"iface", p.iface, "err", err)
	}
	sock, err := openSocket(link, s.opts.Mark)
	if err != nil {
		s.restore(settings)
		return fmt.Errorf("interface %s: %w", p.iface, err)
	}
	up := link.Flags&net.FlagUp != 0
	err = s.Do(func() {
		p.sock = sock
		// If the interface was open before, the record still has the settings from before all
		// changes.
		s.restore(p.settings)
		p.settings = settings
		p.up.Store(up)
		p.oversizeLogged = false
		if p.rxFault == nil {
			p.rxFault = s.opts.Faults.line(p.number, Rx)
			p.txFault = s.opts.Faults.line(p.number, Tx)
		}
		s.place(p.number, p)
		s.active = append(s.active, p)
		s.rebuildPoll()
	})
	if err != nil {
		sock.close()
		s.restore(settings)
		return err
	}
	if !up {
		s.log.Warn("port is down: its interface is not up", "port", p.number, "iface", p.iface,
			"do", "ip link set "+p.iface+" up")
	}
	return nil
}

// restore undoes a change of an interface's settings.
func (s *Set) restore(c *offload.Change) {
	if err := c.Restore(); err != nil {
		s.log.Warn("an interface's settings are not as they were", "err", err)
	}
}

// Remove detaches a port and restores its interface's settings.
func (s *Set) Remove(number uint32) error {
	s.mu.Lock()
	p := s.known[number]
	delete(s.known, number)
	s.mu.Unlock()
	if p == nil {
		return fmt.Errorf("there is no port %d", number)
	}
	return s.Do(func() {
		s.drop(p)
		s.restore(p.settings)
		p.settings = nil
	})
}

// Status is the present state of a port.
type Status struct {
	Iface string
	Up    bool
	Counters
}

// Ports returns the status of every configured port by port number.
func (s *Set) Ports() map[uint32]Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[uint32]Status, len(s.known))
	for n, p := range s.known {
		out[n] = Status{Iface: p.iface, Up: p.up.Load(), Counters: Counters{
			RxPackets: p.rxPackets.Load(), RxBytes: p.rxBytes.Load(),
			TxPackets: p.txPackets.Load(), TxBytes: p.txBytes.Load(), TxDropped: p.txDropped.Load(),
			RxOversize: p.rxOversize.Load(), RxOverrun: p.rxOverrun.Load(),
			RxForged: p.rxForged.Load(),
		}}
	}
	return out
}

// Do runs f on the packet thread, between batches, and waits until f has returned. Frames that f
// queues are sent at once.
func (s *Set) Do(f func()) error {
	ran := make(chan struct{})
	if err := s.Post(func() { f(); close(ran) }); err != nil {
		return err
	}
	select {
	case <-ran:
		return nil
	case <-s.done:
		return ErrClosed
	}
}

// Post runs f as Do does, but does not wait.
func (s *Set) Post(f func()) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return ErrClosed
	}
	s.jobs = append(s.jobs, f)
	s.mu.Unlock()
	s.posted.Store(true)
	s.wakeUp()
	return nil
}

func (s *Set) wakeUp() {
	if s.sleeping.Load() {
		one := [8]byte{7: 1} // any non-zero number in either byte order
		_, _ = unix.Write(s.wakeFD, one[:])
	}
}

// Close stops the packet thread, closes the sockets and restores the interfaces' settings.
func (s *Set) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closing = true
	s.mu.Unlock()
	s.watch.close()
	s.posted.Store(true)
	for { // Repeat this, because the thread may be about to sleep.
		s.wakeUp()
		select {
		case <-s.done:
			return unix.Close(s.wakeFD)
		case <-time.After(time.Millisecond):
		}
	}
}

// Send queues frame for a port and reports whether the port exists and is up. It copies the frame.
// Only the handler, AfterBatch and functions given to Do and Post may call it.
func (s *Set) Send(number uint32, frame []byte) bool {
	p := s.lookup(number)
	if p == nil {
		return false
	}
	if p.txFault != nil {
		p.txFault.pass(frame, time.Now(), &s.delayed, func(f []byte) { s.enqueue(p, f) })
		return true
	}
	return s.enqueue(p, frame)
}

func (s *Set) enqueue(p *port, frame []byte) bool {
	if p.sock == nil || !p.up.Load() {
		p.txDropped.Add(1)
		return false
	}
	if s.opts.Tap != nil {
		s.opts.Tap(time.Now(), p.iface, Tx, frame)
	}
	if !p.queued {
		p.queued = true
		s.dirty = append(s.dirty, p)
	}
	if p.tx.full() {
		p.flush()
	}
	p.tx.add(frame)
	return true
}

func (s *Set) lookup(number uint32) *port {
	if number < tableSize {
		return s.table[number]
	}
	return s.sparse[number]
}

func (s *Set) place(number uint32, p *port) {
	if number < tableSize {
		s.table[number] = p
		return
	}
	if p == nil {
		delete(s.sparse, number)
		return
	}
	s.sparse[number] = p
}

// run is the loop of the packet thread.
func (s *Set) run() {
	runtime.LockOSThread()
	defer close(s.done)
	for {
		work := 0
		if s.posted.Load() {
			if s.runJobs() {
				s.shutDown()
				return
			}
			work++
		}
		for _, p := range s.active {
			work += s.receive(p)
		}
		if s.delayed.Len() > 0 {
			work += s.delayed.release(time.Now())
		}
		if work > 0 && s.opts.AfterBatch != nil {
			s.opts.AfterBatch()
		}
		s.flush()
		if work > 0 {
			s.spin.worked()
			continue
		}
		if s.spin.again() {
			continue
		}
		s.sleep()
	}
}

func (s *Set) runJobs() (closing bool) {
	s.mu.Lock()
	s.posted.Store(false)
	jobs := s.jobs
	s.jobs = nil
	closing = s.closing
	s.mu.Unlock()
	for _, f := range jobs {
		f()
	}
	return closing
}

func (s *Set) shutDown() {
	s.flush()
	for _, p := range append([]*port(nil), s.active...) {
		s.drop(p)
		s.restore(p.settings)
	}
}

// receive passes up to one batch of p's frames to the handler.
func (s *Set) receive(p *port) int {
	ring := &p.sock.ring
	n := 0
	for ; n < s.opts.Batch; n++ {
		slot := ring.peek()
		if slot.base == nil {
			break
		}
		frame, verdict := slot.frame(p.sock.maxFrame)
		switch verdict {
		case frameGood:
			if p.rxFault != nil {
				p.rxFault.pass(frame, time.Now(), &s.delayed, func(f []byte) { s.deliver(p, f) })
			} else {
				s.deliver(p, frame)
			}
		case frameOversize:
			p.rxOversize.Add(1)
			if !p.oversizeLogged {
				p.oversizeLogged = true
				s.log.Warn(
					"frame larger than the interface's MTU is dropped (logged once; counted as rx_oversize)", "port", p.number, "iface", p.iface,
					"bytes", slot.wireLen(), "do",
					"turn segmentation offload off at the sender: ethtool -K IFACE tso off gso off")
			}
		case frameForged:
			p.rxForged.Add(1)
		case frameOwn: // this machine sent the frame through this interface
		}
		ring.release()
	}
	return n
}

func (s *Set) deliver(p *port, frame []byte) {
	p.rxPackets.Add(1)
	p.rxBytes.Add(uint64(len(frame)))
	if s.opts.Tap != nil {
		s.opts.Tap(time.Now(), p.iface, Rx, frame)
	}
	s.handle(p.number, frame)
}

func (s *Set) flush() {
	for i, p := range s.dirty {
		p.flush()
		p.queued = false
		s.dirty[i] = nil
	}
	s.dirty = s.dirty[:0]
}

func (p *port) flush() {
	if p.sock == nil {
		p.txDropped.Add(uint64(p.tx.reset()))
		return
	}
	packets, bytes, dropped := p.tx.send(p.sock.txFD)
	p.txPackets.Add(packets)
	p.txBytes.Add(bytes)
	if dropped > 0 {
		p.txDropped.Add(dropped)
	}
}

// sleep waits until there is a frame, a posted job, or a delayed frame that is due.
func (s *Set) sleep() {
	var timeout *unix.Timespec
	if s.delayed.Len() > 0 {
		ts := unix.NsecToTimespec(max(0, int64(time.Until(s.delayed.next()))))
		timeout = &ts
	}
	s.sleeping.Store(true)
	if s.posted.Load() {
		s.sleeping.Store(false)
		return
	}
	began := time.Now()
	n, err := unix.Ppoll(s.pollFDs, timeout, nil)
	s.sleeping.Store(false)
	s.spin.slept(time.Since(began))
	if err != nil || n == 0 {
		return // EINTR, or a delayed frame is due
	}
	if s.pollFDs[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(s.wakeFD, b[:])
	}
	for i := 1; i < len(s.pollFDs); i++ {
		if s.pollFDs[i].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0 {
			// The interface went down. The kernel reports this error once. Until the error is
			// fetched, poll returns at once.
			_, _ = unix.GetsockoptInt(int(s.pollFDs[i].Fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
	}
}

func (s *Set) rebuildPoll() {
	s.pollFDs = s.pollFDs[:1]
	for _, p := range s.active {
		s.pollFDs = append(s.pollFDs, unix.PollFd{Fd: int32(p.sock.fd), Events: unix.POLLIN})
	}
}

// drop closes p's socket. Only the packet thread may call it.
func (s *Set) drop(p *port) {
	p.up.Store(false)
	if p.sock == nil {
		return
	}
	p.txDropped.Add(uint64(p.tx.reset()))
	p.rxOverrun.Add(p.sock.overruns())
	p.sock.close()
	p.sock = nil
	s.place(p.number, nil)
	for i, q := range s.active {
		if q == p {
			s.active = append(s.active[:i], s.active[i+1:]...)
			break
		}
	}
	s.rebuildPoll()
}

// errNoInterface adds advice to the error about a missing interface.
func errNoInterface(err error) error {
	return fmt.Errorf(
		"there is no such interface here; create it, or start the switch in its network namespace: %w", err)
}

// u16 and u32 read numbers that the kernel wrote in the machine's byte order.
func u16(p unsafe.Pointer, off uintptr) uint16 { return *(*uint16)(unsafe.Add(p, off)) }
func u32(p unsafe.Pointer, off uintptr) uint32 { return *(*uint32)(unsafe.Add(p, off)) }
