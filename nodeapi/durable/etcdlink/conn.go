package etcdlink

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netcraq/netcraq/internal/grpcconn"
)

// ErrNotSent means that a request was not sent, or that the server has not begun to process it.
var ErrNotSent = errors.New("the request was not sent")

const (
	frameBytes   = 16 << 10 // payload of a frame: the maximum that HTTP/2 allows unless settings permit more
	streamWindow = 4 << 20  // bytes of one answer that the server may send before it must wait
	connWindow   = 16 << 20 // bytes of all answers that the server may send before it must wait
	answerBytes  = 64 << 20 // maximum size of one answer
	headerBytes  = 64 << 10 // maximum size of the headers of an answer
	pooledBytes  = 64 << 10 // maximum size of a buffer that a call leaves for the next call
	prefixBytes  = 5        // prefix of a gRPC message: whether it is compressed, and its length
)

// lastStream is a stream id. The connection accepts no more calls beyond it. HTTP/2 allows ids up
// to about twice this number.
const lastStream = math.MaxInt32 / 2

const (
	// every is the interval at which the connection checks its calls. A call that waits longer than
	// this begins to watch its context.
	every = 2 * time.Millisecond
	// pongAfter is how long the connection waits before it answers a ping. A gRPC server sends a
	// ping with the first request after each answer, to estimate the bandwidth. If the connection
	// answered at once, each call would wake its reader twice, and also the server.
	pongAfter = 50 * time.Millisecond
	// idleRead is the time after the last call during which no goroutine reads the connection. Then
	// a goroutine of the connection begins to read.
	idleRead = 20 * time.Millisecond
)

// Conn is an HTTP/2 connection to a gRPC server. It is safe for concurrent use.
type Conn struct {
	nc     net.Conn
	br     *bufio.Reader // used only by the goroutine that reads
	framer *http2.Framer // the reading goroutine uses the half for reading; mu guards the other half
	fields []hpack.HeaderField
	o      Options
	done   chan struct{}
	usable atomic.Bool // whether the connection accepts calls

	mu      sync.Mutex
	encoder *hpack.Encoder
	block   bytes.Buffer
	out     []byte // bytes that must be written
	spare   []byte
	writing bool      // whether a goroutine is writing
	wrote   time.Time // when the goroutine began its last write
	calls   map[uint32]*call
	streams int    // number of calls that were made by Stream
	last    uint32 // id of the newest HTTP/2 stream
	window  int64  // number of bytes that the server still accepts
	initial int64  // number of bytes that the server accepts on a new stream
	most    uint32 // maximum number of streams that the server accepts
	unsaid  int    // number of received bytes that were not returned to the server's window yet
	settled bool   // whether the server's settings have arrived
	away    bool   // whether the server refuses further calls
	reading bool   // whether a goroutine is reading
	err     error  // why the connection has ended; nil before

	tick   *time.Timer
	ticks  bool      // whether tick is running
	due    time.Time // time when tick fires
	idle   time.Time // time when the last call ended
	ping   [8]byte   // payload of the server's ping that was not answered yet
	asked  time.Time // time when that ping arrived; zero if there is none
	heard  time.Time // time when a frame last arrived while calls waited, or when the first waiting call began
	pinged bool      // whether a ping was sent to the server since heard
}

// Options are the options of a Conn.
type Options struct {
	Scheme, Authority, UserAgent string
	// Silence is how long the server may send nothing while calls wait. Then the connection sends a
	// ping, and the server has the time Answer to respond.
	Silence, Answer time.Duration
}

// message is a message of package etcdserverpb.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// call is one call under way. Conn.mu guards it until the call is over.
type call struct {
	ctx    context.Context
	wake   chan struct{} // receives an element when the call is over, or when it must begin to read
	over   bool
	err    error
	answer []byte
	unsaid int
	begun  bool // whether the answer to the call has begun
	old    bool // whether the call already existed at an earlier tick
	reads  bool // whether the caller's goroutine reads the connection
	stop   func() bool
	tell   func(message []byte) error // gets each message of a stream; nil if the call is not a stream
}

var pool = sync.Pool{New: func() any { return &call{wake: make(chan struct{}, 1)} }}

// New begins to use nc as an HTTP/2 connection. It returns when the server has sent its settings,
// or when ctx ends.
func New(ctx context.Context, nc net.Conn, o Options) (*Conn, error) {
	c := &Conn{nc: nc, br: bufio.NewReaderSize(nc, 2*frameBytes), o: o, done: make(chan struct{}),
		calls: map[uint32]*call{}, window: 65535, initial: 65535, most: math.MaxUint32}
	c.fields = []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: o.Scheme},
		{Name: ":path"}, {Name: ":authority", Value: o.Authority}, {Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: o.UserAgent}, {Name: "te", Value: "trailers"}}
	c.framer = http2.NewFramer((*outWriter)(c), c.br)
	c.framer.SetReuseFrames()
	c.framer.SetMaxReadFrameSize(frameBytes)
	c.framer.MaxHeaderListSize = headerBytes
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	c.tick = time.AfterFunc(time.Hour, c.lookAfter)
	c.tick.Stop()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c.mu.Lock()
	c.out = append(c.out, http2.ClientPreface...)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: headerBytes}, http2.Setting{ID: http2.SettingEnablePush})
	_ = c.framer.WriteWindowUpdate(0, connWindow-65535)
	c.reading = true
	c.flush()
	for !c.settled && c.err == nil {
		c.mu.Unlock()
		c.frame()
		c.mu.Lock()
	}
	err := c.err
	if err == nil {
		c.usable.Store(true)
		c.passOn()
	}
	c.mu.Unlock()
	if !stop() && err == nil {
		err = ctx.Err()
		c.Close()
	}
	return c, err
}

// Usable reports whether the connection accepts calls.
func (c *Conn) Usable() bool { return c.usable.Load() }

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and all calls under way.
func (c *Conn) Close() {
	c.mu.Lock()
	c.fail(net.ErrClosed)
	c.mu.Unlock()
}

// outWriter appends what the framer writes to Conn.out. The caller holds Conn.mu.
type outWriter Conn

func (w *outWriter) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), nil
}

// Invoke makes a call, and stores the answer in out. The call also ends when ctx ends, unless it
// takes only a few milliseconds.
func (c *Conn) Invoke(ctx context.Context, method string, in, out message) error {
	x := pool.Get().(*call)
	*x = call{ctx: ctx, wake: x.wake, answer: x.answer[:0]}
	err := c.do(x, method, in)
	if err == nil {
		err = decode(x.answer, out)
	}
	if x.ctx = nil; cap(x.answer) <= pooledBytes {
		pool.Put(x)
	}
	return err
}

// Stream makes a call with one request and any number of answers. The goroutine that reads the
// connection calls tell with each answer at once. tell must not wait, and must not use the Conn.
// Stream returns when the server ends the call, when ctx ends, or when tell returns an error.
func (c *Conn) Stream(ctx context.Context, method string, in message, tell func(message []byte) error,
	metadata ...hpack.HeaderField) error {
	x := &call{ctx: ctx, wake: make(chan struct{}, 1), tell: tell}
	return c.do(x, method, in, metadata...)
}

// do makes a call and waits until it is over.
func (c *Conn) do(x *call, method string, in message, metadata ...hpack.HeaderField) error {
	if err := x.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	c.mu.Lock()
	if err := c.send(x, method, in, metadata); err != nil {
		c.mu.Unlock()
		return err
	}
	x.reads = !c.reading
	c.reading = true
	c.flush()
	for !x.over {
		reads := x.reads
		c.mu.Unlock()
		if reads {
			c.frame()
		} else {
			<-x.wake
		}
		c.mu.Lock()
	}
	if x.reads {
		x.reads = false
		c.passOn()
	}
	select { // the call may have been woken while it was reading
	case <-x.wake:
	default:
	}
	c.mu.Unlock()
	if x.stop != nil {
		x.stop()
	}
	return x.err
}

// send queues the request of a call. The caller holds c.mu.
func (c *Conn) send(x *call, method string, in message, metadata []hpack.HeaderField) error {
	size := in.Size()
	total := int64(prefixBytes + size)
	if !c.usable.Load() || len(c.calls) >= int(c.most) || total > min(c.window, c.initial) {
		return ErrNotSent
	}
	c.last += 2
	id := c.last - 1
	c.block.Reset()
	c.fields[2].Value = method
	for _, fields := range [][]hpack.HeaderField{c.fields, metadata} {
		for _, f := range fields {
			_ = c.encoder.WriteField(f)
		}
	}
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true})
	b := append(x.answer[:0], make([]byte, total)...)
	binary.BigEndian.PutUint32(b[1:], uint32(size))
	if _, err := in.MarshalToSizedBuffer(b[prefixBytes:]); err != nil {
		c.fail(err) // end the connection, because the headers are already queued
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	x.answer = b[:0]
	for len(b) > 0 {
		part := b[:min(len(b), frameBytes)]
		b = b[len(part):]
		_ = c.framer.WriteData(id, len(b) == 0 && x.tell == nil, part)
	}
	c.window -= total
	if len(c.calls) == 0 {
		c.heard, c.pinged = time.Now(), false
	}
	c.calls[id] = x
	if id > lastStream {
		c.leave() // leave ends the connection if it has no calls, so call it after this call was added
	}
	if x.tell != nil {
		x.stop = context.AfterFunc(x.ctx, func() { c.giveUp(id, x) })
		c.streams++
	}
	c.look(c.interval())
	return nil
}

// interval returns how often the connection must check its calls. There must be at least one call.
// The caller holds c.mu.
func (c *Conn) interval() time.Duration {
	if len(c.calls) == c.streams {
		return c.o.Silence / 4
	}
	return every
}

// look makes tick fire after the given time, or earlier. The caller holds c.mu.
func (c *Conn) look(after time.Duration) {
	if due := time.Now().Add(after); !c.ticks || due.Before(c.due) {
		c.ticks, c.due = true, due
		c.tick.Reset(after)
	}
}

// pong answers the server's ping, if there is one. The caller holds c.mu.
func (c *Conn) pong() {
	if !c.asked.IsZero() {
		c.asked = time.Time{}
		_ = c.framer.WritePing(true, c.ping)
	}
}

// flush writes the queued bytes, unless another goroutine is writing. The caller holds c.mu, which
// flush releases during a write.
func (c *Conn) flush() {
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 && c.err == nil {
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		for rest := b; len(rest) > 0 && c.err == nil; {
			// write in parts, so that the progress of a slow server is visible
			part := rest[:min(len(rest), pooledBytes)]
			rest = rest[len(part):]
			c.wrote = time.Now()
			c.mu.Unlock()
			_, err := c.nc.Write(part)
			c.mu.Lock()
			if err != nil {
				c.fail(err)
			}
		}
		if c.spare = b[:0]; cap(b) > pooledBytes {
			c.spare = nil
		}
	}
	c.writing = false
}

// frame reads and handles one frame. Only the reading goroutine calls it, without holding mu.
func (c *Conn) frame() {
	f, err := c.next()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // giveUp has set the deadline
		_ = c.nc.SetReadDeadline(time.Time{})
		return
	case err == nil:
		c.heard, c.pinged = time.Now(), false
		err = c.handle(f)
	default:
		var stream http2.StreamError
		if errors.As(err, &stream) {
			c.finish(stream.StreamID, status.Error(codes.Internal, "an answer that is not valid: "+err.Error()))
			err = nil
		}
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.flush()
}

// next reads a frame. If the read deadline passes, the bytes that have arrived stay in the buffer.
// Headers may be longer than the buffer. So if the deadline passes between two frames of headers,
// the connection ends.
func (c *Conn) next() (http2.Frame, error) {
	const header = 9
	b, err := c.br.Peek(header)
	if err != nil {
		return nil, err
	}
	if size := int(b[0])<<16 | int(b[1])<<8 | int(b[2]); size <= frameBytes {
		if _, err := c.br.Peek(header + size); err != nil {
			return nil, err
		}
	}
	f, err := c.framer.ReadFrame()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("a call ended before the server had sent all of an answer's headers")
	}
	return f, err
}

// handle processes a frame. The caller holds c.mu.
func (c *Conn) handle(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		c.headers(f)
	case *http2.DataFrame:
		c.data(f)
	case *http2.RSTStreamFrame:
		if f.ErrCode == http2.ErrCodeRefusedStream {
			c.refused(f.StreamID)
			break
		}
		c.finish(f.StreamID, status.Errorf(codes.Unavailable, "the server has reset the call: %v", f.ErrCode))
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.pong()
			c.ping, c.asked = f.Data, time.Now()
			c.look(pongAfter)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.window += int64(f.Increment)
		}
	case *http2.GoAwayFrame:
		for id := range c.calls {
			if id > f.LastStreamID {
				c.refused(id)
			}
		}
		c.leave()
	}
	return nil
}

// refused ends a call that the server claims not to have processed. If the server has already begun
// to answer the call, the claim is ignored. The caller holds c.mu.
func (c *Conn) refused(id uint32) {
	err := ErrNotSent
	if x := c.calls[id]; x != nil && x.begun {
		err = status.Error(codes.Unavailable, "the server refuses a call that it has begun to answer")
	}
	c.finish(id, err)
}

func (c *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			c.initial = int64(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.most = s.Val
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(s.Val)
		}
		return s.Valid()
	})
	c.settled = true
	return errors.Join(err, c.framer.WriteSettingsAck())
}

func (c *Conn) headers(f *http2.MetaHeadersFrame) {
	x := c.calls[f.StreamID]
	if x == nil {
		return
	}
	x.begun = true
	switch http := f.PseudoValue("status"); {
	case http != "" && http != "200":
		c.reset(f.StreamID, status.Error(codes.Unavailable, "the server answers with the HTTP status "+http))
	case f.StreamEnded():
		c.finish(f.StreamID, status.Error(grpcconn.Status(f.Fields))) // the error is nil for codes.OK
	}
}

func (c *Conn) data(f *http2.DataFrame) {
	id, size := f.StreamID, int(f.Length)
	if c.unsaid += size; c.unsaid >= connWindow/4 {
		_ = c.framer.WriteWindowUpdate(0, uint32(c.unsaid))
		c.unsaid = 0
	}
	x := c.calls[id]
	if x == nil {
		return
	}
	x.answer = append(x.answer, f.Data()...)
	if x.tell != nil {
		if err := x.tellAll(); err != nil {
			c.reset(id, err)
			return
		}
	}
	switch x.unsaid += size; {
	case len(x.answer) > answerBytes:
		c.reset(id, status.Errorf(codes.ResourceExhausted, "an answer of more than %d bytes", answerBytes))
	case f.StreamEnded():
		c.finish(id, status.Error(codes.Internal, "the answer ends without a status"))
	case x.unsaid >= streamWindow/4:
		_ = c.framer.WriteWindowUpdate(id, uint32(x.unsaid))
		x.unsaid = 0
	}
}

// tellAll calls tell with all complete messages of a stream.
func (x *call) tellAll() error {
	rest := x.answer
	for len(rest) >= prefixBytes {
		size := prefixBytes + int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < size {
			break
		}
		if rest[0] != 0 {
			return status.Error(codes.Internal, "an answer is compressed")
		}
		if err := x.tell(rest[prefixBytes:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}
	x.answer = x.answer[:copy(x.answer, rest)]
	return nil
}

// reset ends a call whose answer is not complete. The caller holds c.mu.
func (c *Conn) reset(id uint32, err error) {
	_ = c.framer.WriteRSTStream(id, http2.ErrCodeCancel)
	c.finish(id, err)
}

// finish ends a call. The caller holds c.mu.
func (c *Conn) finish(id uint32, err error) {
	x := c.calls[id]
	if x == nil {
		return
	}
	delete(c.calls, id)
	if x.tell != nil {
		c.streams--
	}
	x.over, x.err = true, err
	if !x.reads {
		x.rouse()
	}
	if c.away && len(c.calls) == 0 {
		c.fail(errAway)
	}
}

func (x *call) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

var errAway = errors.New("the server ends the connection")

// leave makes the connection refuse further calls, and end together with its last call. The caller
// holds c.mu.
func (c *Conn) leave() {
	c.away = true
	c.usable.Store(false)
	if len(c.calls) == 0 {
		c.fail(errAway)
	}
}

// passOn makes another goroutine read the connection, because the present reader stops. The caller
// holds c.mu.
func (c *Conn) passOn() {
	c.reading = false
	for _, x := range c.calls {
		c.reading, x.reads = true, true
		x.rouse()
		return
	}
	c.idle = time.Now()
	if c.err == nil {
		c.look(idleRead)
	}
}

// readIdle reads the connection until a call or the connection has ended. From then on callers
// read.
func (c *Conn) readIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for from := c.last; c.err == nil && (c.last == from || len(c.calls) > 0); {
		c.mu.Unlock()
		c.frame()
		c.mu.Lock()
	}
	c.passOn()
}

// fail ends the connection. The caller holds c.mu.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.usable.Store(false)
	close(c.done)
	nc := c.nc
	if secured, ok := nc.(interface{ NetConn() net.Conn }); ok {
		// close the connection below TLS, because TLS would first write an alert, which may block
		nc = secured.NetConn()
	}
	nc.Close() // the reading and the writing goroutine notice that the connection is closed
	for id := range c.calls {
		c.finish(id, status.Error(codes.Unavailable, "the connection has ended: "+err.Error()))
	}
}

// lookAfter is called from time to time while there are calls. It makes long calls watch their
// contexts, and sends a ping to a silent server. It also makes a goroutine read an idle connection.
func (c *Conn) lookAfter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticks = false; c.err != nil {
		return
	}
	if c.writing && time.Since(c.wrote) > c.o.Silence+c.o.Answer {
		c.fail(fmt.Errorf("the server reads nothing for %v", c.o.Silence+c.o.Answer))
		return
	}
	if !c.asked.IsZero() && time.Since(c.asked) >= pongAfter {
		c.pong()
	}
	if len(c.calls) == 0 {
		c.lookIdle()
	} else {
		c.lookAtCalls()
	}
	c.flush() // flush last, because it may block
}

// lookAtCalls does the checks for a connection that has calls. The caller holds c.mu.
func (c *Conn) lookAtCalls() {
	if !c.isAlive() {
		c.fail(fmt.Errorf("the server sends nothing for %v", c.o.Silence+c.o.Answer))
		return
	}
	for id, x := range c.calls {
		if x.old && x.stop == nil {
			x.stop = context.AfterFunc(x.ctx, func() { c.giveUp(id, x) })
		}
		x.old = true
	}
	c.look(c.interval())
}

// lookIdle does the checks for a connection without calls. If no goroutine has read it for some
// time, it starts a goroutine that reads. The caller holds c.mu.
func (c *Conn) lookIdle() {
	rest := idleRead - time.Since(c.idle)
	switch {
	case !c.reading && rest <= 0:
		c.reading = true
		go c.readIdle()
	case !c.reading:
		c.look(max(rest, time.Millisecond))
	}
	if !c.asked.IsZero() || c.writing {
		c.look(pongAfter)
	}
}

// isAlive reports whether the server has sent something recently. If the server was silent, isAlive
// queues a ping. The caller holds c.mu.
func (c *Conn) isAlive() bool {
	switch silent := time.Since(c.heard); {
	case silent > c.o.Silence+c.o.Answer:
		return false
	case silent > c.o.Silence && !c.pinged:
		c.pinged = true
		_ = c.framer.WritePing(false, [8]byte{'n', 'c'})
	}
	return true
}

// giveUp ends a call whose context has ended.
func (c *Conn) giveUp(id uint32, x *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != x {
		return
	}
	if x.reads {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	c.reset(id, status.FromContextError(x.ctx.Err()).Err())
	c.flush()
}
