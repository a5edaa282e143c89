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
	streamWindow  = 256 << 10 // number of bytes that the peer may send ahead on one stream
	connWindow    = 16 << 20  // number of bytes that the peer may send ahead on all streams together
	mostBuffered  = 1 << 20   // size of the write buffer, in bytes, above which data waits
	mostSpare     = 128 << 10 // maximum size of a buffer that an idle connection keeps for reuse
	readBuffer    = 32 << 10
	maxHeaderList = 1 << 20
	maxFrame      = 16384 // maximum size of a frame's payload, in both directions: HTTP/2's default
	mostWindow    = math.MaxInt32
)

// sink receives the frames of a stream. Only the goroutine that reads the connection calls it,
// without holding locks. Data is valid only during the call.
type sink interface {
	headers(h *half, fields []hpack.HeaderField, end bool)
	data(h *half, b []byte, end bool)
	// reset is called when the peer has reset the stream. refused reports that the peer has not
	// processed it.
	reset(h *half, code http2.ErrCode, refused bool)
	// lost is called when the connection has ended.
	lost(h *half, why error)
	// drained is called when n waiting bytes were written.
	drained(h *half, n int)
}

// beginner is the sink of a stream that the peer has opened.
type beginner interface {
	sink
	// begin starts the stream's work. end reports whether the stream ended with its headers.
	begin(end bool)
}

// half is a stream on one connection, and so one side of a call. The connection's mu guards its
// fields.
type half struct {
	c    *conn
	id   uint32
	sink sink

	window  int64               // number of bytes that the peer still accepts on this stream
	granted int64               // number of bytes that the peer may still send
	waiting []byte              // data that waits until the peer accepts more bytes
	trailer []hpack.HeaderField // trailers to send after the waiting data
	end     bool                // the stream ends after the waiting bytes
	queued  bool                // the stream is in c.queue
	sentEnd bool
	gotEnd  bool
	unsaid  int  // bytes that were granted but not yet announced in a WINDOW_UPDATE
	cutting bool // reset the stream with code after its end was sent
	code    http2.ErrCode
}

// conn is one HTTP/2 connection.
type conn struct {
	nc     net.Conn
	br     *bufio.Reader
	framer *http2.Framer
	server bool // true if the peer opens the streams
	// accept makes the sink of a stream that the peer opens. It runs before other goroutines can
	// find the stream. It must do nothing else, because the caller holds mu. The sink's begin is
	// called afterwards, without the lock.
	accept func(h *half, fields []hpack.HeaderField) beginner
	limits limits

	mu      sync.Mutex
	out     []byte // bytes to write
	spare   []byte // buffer for reuse as out
	writing bool   // a goroutine writes the bytes taken from out
	encoder *hpack.Encoder
	block   bytes.Buffer // the encoder's output
	streams map[uint32]*half
	queue   []*half // streams with waiting data
	window  int64   // number of bytes that the peer still accepts on all streams
	granted int64   // number of data bytes that the peer may still send
	initial int64   // initial window of new streams
	most    uint32  // maximum number of streams that the peer lets us open
	last    uint32  // ID of the newest stream; on a server's connection the peer has opened it
	unsaid  int
	away    bool // no more streams may be opened
	err     error
	full    *sync.Cond // signals that out has become shorter, or that the connection has ended

	batch    atomic.Bool // the reader is handling a batch of frames, and flushes after it
	writable func() bool // reports whether a small write would not block; nil if that is unknown

	wake  chan struct{}
	ready chan struct{} // closed when the peer's settings have arrived
	done  chan struct{} // closed when the connection ends

	settled bool
	read    atomic.Int64 // when bytes were last received, in Unix nanoseconds
	pinged  atomic.Bool  // a ping was sent and is not answered yet
	pings   int          // number of pings that the peer has sent too early
	pingAt  time.Time
	forgive bool   // something was sent since the last ping, so the peer may ping
	onDead  func() // called when the connection has ended or accepts no more streams
	onFrame func() // called after each handled frame, if it is not nil
	// onPanic is called after a panic in this package or in the Router. Such a panic ends the
	// connection.
	onPanic func(fault any, stack []byte)
}

// limits are the limits of one connection.
type limits struct {
	streams     uint32        // maximum number of the peer's streams; 0 means no limit
	pingMin     time.Duration // minimum interval between the peer's pings; 0 means no limit
	idle        time.Duration // silence after which the peer is pinged; 0 means that it is never pinged
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

// serve runs the connection until it ends. It then reports the end to the sinks of all streams.
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

// endAtPanic handles a panic of a goroutine that works for one connection. Each such goroutine
// defers it. The panic then ends only that connection.
func (c *conn) endAtPanic() {
	if fault := recover(); fault != nil {
		c.panicked(fault)
	}
}

// panicked ends the connection after a panic. If the connection's end takes too long, the whole
// process ends, because the panicked goroutine then holds a lock that others wait for.
func (c *conn) panicked(fault any) {
	c.onPanic(fault, debug.Stack())
	c.nc.Close()
	go func() {
		stuck := time.AfterFunc(mostToFail, func() { panic(fault) })
		c.fail(errPanic)
		stuck.Stop()
	}()
}

// lastWord is how long a connection that has failed may still write its remaining bytes.
const lastWord = time.Second

// lastAnswer is how long a connection may write its remaining bytes if it ends because everything
// was answered. It is longer than lastWord, because the peer may read the last answer slowly.
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

// kick makes the waiting bytes be written soon.
func (c *conn) kick() {
	if !c.batch.Load() { // in a batch, the reader will flush
		c.wakeWriter()
	}
}

func (c *conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// inReader is the reader from which the framer reads the connection's bytes. If its buffer is
// empty, all received frames were handled. So before it reads more, it writes all answers at once.
// This avoids waking a goroutine, and wakes the peer only once.
type inReader conn

func (r *inReader) Read(p []byte) (int, error) {
	c := (*conn)(r)
	c.flush()
	n, err := c.nc.Read(p)
	c.batch.Store(err == nil)
	return n, err
}

// mostAtOnce is the maximum number of bytes that the reader writes itself. When the kernel reports
// that a socket has room, there is room for at least this many bytes.
const mostAtOnce = 4 << 10

// flush writes the waiting bytes if that does not block. Otherwise it wakes the writer goroutine.
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

// take returns the waiting bytes and empties the buffer. The caller holds mu, and passes the bytes
// to write.
func (c *conn) take() []byte {
	b := c.out
	c.out, c.writing = c.spare[:0], true
	c.spare = nil
	c.full.Broadcast()
	return b
}

// write writes bytes that take has returned. It reports whether the connection continues.
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

// writer writes the waiting bytes whenever it is woken. It runs in its own goroutine.
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
			runtime.Gosched() // other goroutines can now add their bytes, so that one system call writes all
			c.mu.Lock()
		}
		b := c.take()
		c.mu.Unlock()
		if !c.write(b) {
			return
		}
	}
}

// start sends our HTTP/2 settings.
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

// reader handles received frames. It ends when the connection ends.
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
		// The relay reads no more from a client that does not read its answers. It always reads
		// from etcd, because etcd might also wait for its answers to be read.
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

// malformed handles a frame that could not be parsed. It returns nil if only the frame's stream
// must end.
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
		c.last = stream.StreamID // counts as begun, because more frames may follow
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
