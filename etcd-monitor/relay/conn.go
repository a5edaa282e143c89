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
	streamWindow  = 256 << 10 // bytes of one stream that the peer may send ahead
	connWindow    = 16 << 20  // bytes that the peer may send ahead on all streams together
	mostBuffered  = 1 << 20   // bytes in the write buffer above which data waits
	mostSpare     = 128 << 10 // maximum size of a buffer that an idle connection keeps for reuse
	readBuffer    = 32 << 10
	maxHeaderList = 1 << 20
	maxFrame      = 16384 // maximum size of a frame's payload, in both directions: HTTP/2's default
	mostWindow    = math.MaxInt32
)

// sink receives a stream's frames. Only the connection's reader calls it, without holding locks.
// The bytes of data are valid only during the call.
type sink interface {
	headers(h *half, fields []hpack.HeaderField, end bool)
	data(h *half, b []byte, end bool)
	// reset: the peer has reset the stream. refused: it has not processed it.
	reset(h *half, code http2.ErrCode, refused bool)
	// lost: the connection has ended.
	lost(h *half, why error)
	// drained: n waiting bytes were written.
	drained(h *half, n int)
}

// beginner is the sink of a stream that the peer has opened.
type beginner interface {
	sink
	// begin starts the stream's work. end reports whether the headers have ended the stream.
	begin(end bool)
}

// half is a stream on one connection. The connection's mu guards its fields.
type half struct {
	c    *conn
	id   uint32
	sink sink

	window  int64               // bytes that the peer still accepts on this stream
	granted int64               // bytes that the peer may still send
	waiting []byte              // data waiting for the window
	trailer []hpack.HeaderField // headers to send after waiting
	end     bool                // the stream ends after the waiting bytes
	queued  bool                // the stream is in c.queue
	sentEnd bool
	gotEnd  bool
	unsaid  int  // granted bytes that no WINDOW_UPDATE has announced yet
	cutting bool // reset the stream with code when its end has been sent
	code    http2.ErrCode
}

// conn is one HTTP/2 connection.
type conn struct {
	nc     net.Conn
	br     *bufio.Reader
	framer *http2.Framer
	server bool // the peer opens the streams
	// accept makes the sink of a stream that the peer opens, before other goroutines can find the
	// stream. It must do nothing else, because the caller holds mu. The sink's begin follows,
	// without the lock.
	accept func(h *half, fields []hpack.HeaderField) beginner
	limits limits

	mu      sync.Mutex
	out     []byte // bytes to write
	spare   []byte // buffer for reuse
	writing bool   // a goroutine writes the bytes taken from out
	encoder *hpack.Encoder
	block   bytes.Buffer // the encoder's output
	streams map[uint32]*half
	queue   []*half // streams with waiting data
	window  int64   // bytes that the peer still accepts in total
	granted int64   // bytes of data that the peer may still send
	initial int64   // initial window of new streams
	most    uint32  // maximum number of our streams at the peer
	last    uint32  // id of the newest stream: the peer's (server), or ours
	unsaid  int
	away    bool // no more streams are opened
	err     error
	full    *sync.Cond // signals that out is shorter, or that the connection has ended

	batch    atomic.Bool // the reader is handling a batch of frames, and flushes after it
	writable func() bool // reports whether a small write would not block; nil: unknown

	wake  chan struct{}
	ready chan struct{} // closed when the peer's settings have arrived
	done  chan struct{} // closed at the connection's end

	settled bool
	read    atomic.Int64 // time of the last received bytes, in nanoseconds since 1970
	pinged  atomic.Bool  // a ping has had no answer since
	pings   int          // number of early pings of the peer
	pingAt  time.Time
	forgive bool   // something was sent since the last ping, so the peer may ping
	onDead  func() // called when the connection has ended, or accepts no more streams
	onFrame func() // called after a frame was handled; nil: not called
	// onPanic is called for a bug in this package or the Router, which ends the connection.
	onPanic func(fault any, stack []byte)
}

// limits are the limits of a connection.
type limits struct {
	streams     uint32        // maximum number of the peer's streams; 0: no limit
	pingMin     time.Duration // minimum interval between the peer's pings; 0: no limit
	idle        time.Duration // silence after which the peer is pinged; 0: never
	idleTimeout time.Duration // timeout for the answer to a ping
	idleStreams bool          // ping only while there are streams
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

// outWriter appends the framer's output to out. The caller holds mu.
type outWriter conn

func (w *outWriter) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), nil
}

// serve runs the connection until it ends, and then reports the end to all its streams.
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

// mostToFail is the timeout for ending a connection's streams after a panic.
const mostToFail = 30 * time.Second

var errPanic = errors.New("relay: a fault of the gateway ended the connection")

// endAtPanic is deferred by each goroutine that works for one connection. A panic there ends only
// that connection.
func (c *conn) endAtPanic() {
	if fault := recover(); fault != nil {
		c.panicked(fault)
	}
}

// panicked ends the connection after a panic. If fail cannot finish, the process ends, because then
// the panicked goroutine holds a lock that others wait for.
func (c *conn) panicked(fault any) {
	c.onPanic(fault, debug.Stack())
	c.nc.Close()
	go func() {
		stuck := time.AfterFunc(mostToFail, func() { panic(fault) })
		c.fail(errPanic)
		stuck.Stop()
	}()
}

// lastWord is the time that an ended connection has to write its remaining bytes.
const lastWord = time.Second

// lastAnswer is the same for a connection that ends because everything has been answered: its peer
// may read the last answer slowly.
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
	c.nc.SetWriteDeadline(time.Now().Add(wait)) // the deadline also applies to a write in progress
	c.kick()
	for _, h := range all {
		h.sink.lost(h, err)
	}
	if c.onDead != nil {
		c.onDead()
	}
}

// kick triggers the writing of the waiting bytes.
func (c *conn) kick() {
	if !c.batch.Load() { // otherwise the reader is about to flush
		c.wakeWriter()
	}
}

func (c *conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// inReader fills the reader's buffer from the connection. When the buffer is empty, all received
// frames have been handled, so the reader first writes all answers at once. That avoids waking a
// goroutine, and waking the peer more than once.
type inReader conn

func (r *inReader) Read(p []byte) (int, error) {
	c := (*conn)(r)
	c.flush()
	n, err := c.nc.Read(p)
	c.batch.Store(err == nil)
	return n, err
}

// mostAtOnce is the maximum size of a write by the reader: when the kernel reports that a socket
// has room, it has room for this much.
const mostAtOnce = 4 << 10

// flush writes the waiting bytes if that does not block; otherwise it wakes the writer.
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

// take removes and returns the waiting bytes, for write. The caller holds mu.
func (c *conn) take() []byte {
	b := c.out
	c.out, c.writing = c.spare[:0], true
	c.spare = nil
	c.full.Broadcast()
	return b
}

// write writes the taken bytes. It reports whether the connection continues.
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

// writer writes the waiting bytes, all at once.
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
			runtime.Gosched() // lets other goroutines add their bytes, so that one system call writes all
			c.mu.Lock()
		}
		b := c.take()
		c.mu.Unlock()
		if !c.write(b) {
			return
		}
	}
}

// start sends our settings.
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

// reader handles the received frames until the connection ends.
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
		// The relay does not read from a client that does not read its answers. (It always reads
		// from etcd, which might wait for that.)
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

// malformed handles a frame that could not be parsed. It returns nil if only a stream must end.
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
		c.last = stream.StreamID // the stream has begun: the peer may have sent more of it already
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
