package relay

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	streamWindow  = 256 << 10 // bytes of one stream that may be on their way to us
	connWindow    = 16 << 20  // of all streams of a connection; each is bounded by its own
	mostBuffered  = 1 << 20   // bytes that wait to be written to a connection before data waits
	mostSpare     = 128 << 10 // bytes of a buffer that an idle connection keeps for its next write
	readBuffer    = 32 << 10
	maxHeaderList = 1 << 20
	maxFrame      = 16384 // bytes of a frame, both ways: what HTTP/2 allows where settings say nothing
	mostWindow    = math.MaxInt32
)

// sink gets a stream's frames: only from the connection's reader, which holds no lock. The bytes of
// data are valid during the call.
type sink interface {
	headers(h *half, fields []hpack.HeaderField, end bool)
	data(h *half, b []byte, end bool)
	// reset: the peer has ended the stream. refused: it has done nothing for it.
	reset(h *half, code http2.ErrCode, refused bool)
	// lost: the connection has ended.
	lost(h *half, why error)
	// drained: so many waiting bytes were written.
	drained(h *half, n int)
}

// beginner is the sink of a stream that the peer began.
type beginner interface {
	sink
	// begin starts the stream's work. end says that the headers ended what the peer sends.
	begin(end bool)
}

// half is a stream at one connection. What it has is guarded by the connection's mu.
type half struct {
	c    *conn
	id   uint32
	sink sink

	window  int64               // what the peer takes of it yet
	granted int64               // bytes that the peer may send yet
	waiting []byte              // data that waits for the window
	trailer []hpack.HeaderField // that follow it
	end     bool                // the stream ends after the waiting bytes
	queued  bool                // it is in c.queue
	sentEnd bool
	gotEnd  bool
	unsaid  int  // bytes that the peer may send again, but has not been told about
	cutting bool // the stream is reset with code when its end has been sent
	code    http2.ErrCode
}

// conn is one HTTP/2 connection.
type conn struct {
	nc     net.Conn
	br     *bufio.Reader
	framer *http2.Framer
	server bool // the peer begins the streams
	// accept makes the sink of a stream that the peer begins, so that the stream has it before
	// other goroutines find the stream. It does nothing else, because the caller has locked mu. The
	// sink's begin follows, without the lock.
	accept func(h *half, fields []hpack.HeaderField) beginner
	limits limits

	mu      sync.Mutex
	out     []byte // bytes to be written
	spare   []byte // for the next of it
	writing bool   // somebody writes what was out
	encoder *hpack.Encoder
	block   bytes.Buffer // the encoder's
	streams map[uint32]*half
	queue   []*half // streams with something waiting
	window  int64   // what the peer takes in all
	granted int64   // bytes of data that the peer may send yet
	initial int64   // of each new stream
	most    uint32  // streams that the peer lets us have
	last    uint32  // the newest stream: of the peer's (server), of ours
	unsaid  int
	away    bool // no more streams are begun
	err     error
	full    *sync.Cond // out has become shorter, or the connection has ended

	batch    atomic.Bool // the reader handles what it has read, and flushes after that
	writable func() bool // whether something small can be written without a wait; nil: unknown

	wake  chan struct{}
	ready chan struct{} // closed when the peer's settings are there
	done  chan struct{} // closed at the end

	settled bool
	read    atomic.Int64 // when something came last, in nanoseconds since 1970
	pinged  atomic.Bool  // and a ping has had no answer since
	pings   int          // too early
	pingAt  time.Time
	forgive bool   // something was sent since, so that the peer may ping
	onDead  func() // the connection has ended, or takes no more streams
	onFrame func() // a frame was handled; nil: not called
	// onPanic is called for a fault of this package or of the Router, which ends the connection.
	onPanic func(fault any, stack []byte)
}

// limits are what a connection is held to.
type limits struct {
	streams     uint32        // of the peer; 0: unlimited
	pingMin     time.Duration // between a peer's pings; 0: they are not counted
	idle        time.Duration // a silent peer is asked whether it is there after this; 0: never
	idleTimeout time.Duration // and has so long to answer
	idleStreams bool          // only while there are streams
}

var preface = []byte(http2.ClientPreface)

func newConn(nc net.Conn, server bool, l limits, onPanic func(any, []byte)) *conn {
	c := &conn{nc: nc, server: server, limits: l, onPanic: onPanic, streams: map[uint32]*half{},
		window: 65535, initial: 65535, granted: connWindow, most: math.MaxUint32,
		wake: make(chan struct{}, 1), ready: make(chan struct{}), done: make(chan struct{}), writable: writableOf(nc)}
	c.br = bufio.NewReaderSize((*inReader)(c), readBuffer)
	c.read.Store(time.Now().UnixNano())
	c.full = sync.NewCond(&c.mu)
	c.framer = http2.NewFramer((*outWriter)(c), c.br)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(maxFrame)
	c.framer.MaxHeaderListSize = maxHeaderList
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	return c
}

// outWriter appends what the framer writes; the caller has locked mu.
type outWriter conn

func (w *outWriter) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), nil
}

// serve runs the connection until it ends, and tells all its streams.
func (c *conn) serve() {
	defer c.endAtPanic()
	go c.writer()
	timer := c.watchIdle()
	err := c.reader()
	if timer != nil {
		timer()
	}
	c.fail(err)
}

// mostToFail is how long the streams of a connection may take to end after a panic.
const mostToFail = 30 * time.Second

var errPanic = errors.New("relay: a fault of the gateway ended the connection")

// endAtPanic is deferred by each goroutine that works for one connection. A panic there ends the
// connection and no other one.
func (c *conn) endAtPanic() {
	if fault := recover(); fault != nil {
		c.panicked(fault)
	}
}

// panicked ends the connection after a panic. The process ends if fail cannot finish, because then
// the goroutine that panicked holds a lock that others would wait for.
func (c *conn) panicked(fault any) {
	c.onPanic(fault, debug.Stack())
	c.nc.Close()
	go func() {
		stuck := time.AfterFunc(mostToFail, func() { panic(fault) })
		c.fail(errPanic)
		stuck.Stop()
	}()
}

// lastWord is how long a connection that has ended may take to write its remaining bytes.
const lastWord = time.Second

// lastAnswer is lastWord for a connection that ends because everything has been answered: its peer
// may be slow to read the last of it.
const lastAnswer = 30 * time.Second

// fail ends the connection.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if err == nil {
		err = io.EOF
	}
	c.err = err
	c.batch.Store(false)
	all := c.streams
	c.streams = map[uint32]*half{}
	c.full.Broadcast()
	close(c.done)
	c.mu.Unlock()
	wait := lastWord
	if errors.Is(err, errAway) {
		wait = lastAnswer
	}
	c.nc.SetWriteDeadline(time.Now().Add(wait)) // also for a write that waits for the peer already
	c.kick()
	for _, h := range all {
		h.sink.lost(h, err)
	}
	if c.onDead != nil {
		c.onDead()
	}
}

// kick starts writing the waiting bytes.
func (c *conn) kick() {
	if !c.batch.Load() { // else the reader is about to flush
		c.wakeWriter()
	}
}

func (c *conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// inReader reads from the connection, for the reader's buffer. When that is empty all that has come
// was handled, and what is to be said to it is written: all at once, by the reader itself, which
// spares a goroutine to be woken and the peer to be woken more than once.
type inReader conn

func (r *inReader) Read(p []byte) (int, error) {
	c := (*conn)(r)
	c.flush()
	n, err := c.nc.Read(p)
	c.batch.Store(err == nil)
	return n, err
}

// mostAtOnce is how much the reader writes by itself: so little has room in the kernel wherever it
// says that there is any.
const mostAtOnce = 4 << 10

// flush writes what there is where that takes no waiting, and else has the writer do it.
func (c *conn) flush() {
	c.mu.Lock()
	c.batch.Store(false)
	if len(c.out) == 0 && c.err == nil {
		c.mu.Unlock()
		return
	}
	if c.err != nil || c.writing || len(c.out) > mostAtOnce || c.writable == nil || !c.writable() {
		c.mu.Unlock()
		c.wakeWriter()
		return
	}
	b := c.take()
	c.mu.Unlock()
	c.write(b)
}

// take takes what is to be written, for write. The caller has locked mu.
func (c *conn) take() []byte {
	b := c.out
	c.out, c.writing = c.spare[:0], true
	c.spare = nil
	c.full.Broadcast()
	return b
}

// write writes what was taken. It says whether the connection continues.
func (c *conn) write(b []byte) bool {
	_, err := c.nc.Write(b)
	c.mu.Lock()
	c.writing = false
	more := len(c.out) > 0 || c.err != nil
	if cap(b) <= mostSpare {
		c.spare = b
	}
	c.mu.Unlock()
	if err != nil {
		c.nc.Close()
		c.fail(err)
		return false
	}
	if more {
		c.wakeWriter()
	}
	c.pump()
	return true
}

// writer writes what there is, all at once.
func (c *conn) writer() {
	defer c.endAtPanic()
	defer c.nc.Close()
	for {
		c.mu.Lock()
		for len(c.out) == 0 || c.writing {
			if c.err != nil && !c.writing {
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			<-c.wake
			runtime.Gosched() // other goroutines mostly have something to write, too: one system call for all
			c.mu.Lock()
		}
		b := c.take()
		c.mu.Unlock()
		if !c.write(b) {
			return
		}
	}
}

// start says which settings are ours.
func (c *conn) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.server {
		c.out = append(c.out, preface...)
	}
	settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList}}
	if c.server && c.limits.streams > 0 && c.limits.streams < math.MaxUint32 {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.limits.streams})
	}
	if !c.server {
		settings = append(settings, http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	}
	c.framer.WriteSettings(settings...)
	c.framer.WriteWindowUpdate(0, connWindow-65535)
	c.kick()
}

var errPreface = errors.New("relay: no HTTP/2 preface")

// reader handles what comes until the connection ends.
func (c *conn) reader() error {
	if c.server {
		b := make([]byte, len(preface))
		if _, err := io.ReadFull(c.br, b); err != nil {
			return err
		}
		if !bytes.Equal(b, preface) {
			return errPreface
		}
	}
	for {
		// A client that does not read what it is answered is not read, either. (Of etcd everything
		// is read: it might wait for that.)
		if c.server {
			c.mu.Lock()
			for len(c.out) > 2*mostBuffered && c.err == nil {
				c.batch.Store(false)
				c.wakeWriter()
				c.full.Wait()
			}
			c.mu.Unlock()
		}
		f, err := c.framer.ReadFrame()
		if err == nil {
			err = c.handle(f)
		} else {
			err = c.malformed(err)
		}
		if err != nil {
			return err
		}
		if c.onFrame != nil {
			c.onFrame()
		}
	}
}

// malformed handles a frame that could not be read. It returns nil if that ends only a stream.
func (c *conn) malformed(err error) error {
	var stream http2.StreamError
	if !errors.As(err, &stream) {
		var code http2.ConnectionError
		switch {
		case errors.As(err, &code):
			c.goAway(http2.ErrCode(code), "")
		case errors.Is(err, http2.ErrFrameTooLarge):
			c.goAway(http2.ErrCodeFrameSize, "a frame of more than 16384 bytes")
		}
		return err
	}
	if h := c.find(stream.StreamID); h != nil {
		h.cut(stream.Code)
		h.sink.reset(h, stream.Code, false)
		return nil
	}
	c.mu.Lock()
	if c.server && stream.StreamID%2 == 1 && stream.StreamID > c.last {
		c.last = stream.StreamID // it has begun: the peer may have sent more of it already
	}
	c.framer.WriteRSTStream(stream.StreamID, stream.Code)
	c.mu.Unlock()
	c.kick()
	return nil
}

func (c *conn) find(id uint32) *half {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}
