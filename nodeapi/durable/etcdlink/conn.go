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

// ErrNotSent says that a request was not sent, or that the server has not begun to process it.
var ErrNotSent = errors.New("the request was not sent")

const (
	frameBytes   = 16 << 10 // of a frame's payload: what HTTP/2 allows if the settings do not say more
	streamWindow = 4 << 20  // bytes of one answer that the server may send ahead
	connWindow   = 16 << 20 // bytes of all answers
	answerBytes  = 64 << 20 // of one answer
	headerBytes  = 64 << 10 // of its headers
	pooledBytes  = 64 << 10 // of the buffers that a call keeps for the next one
	prefixBytes  = 5        // of a gRPC message: whether it is compressed, and its length
)

// lastStream is about where a connection accepts no more calls. HTTP/2 has no ids above twice that.
const lastStream = math.MaxInt32 / 2

const (
	// every is the interval at which the connection looks after its calls. A call that waits for
	// longer begins to watch its context.
	every = 2 * time.Millisecond
	// pongAfter is how long the connection waits before it answers a ping. gRPC's servers send one
	// with the first request after each answer, to estimate the bandwidth. An early answer would
	// have each call wake its reader twice, and the server twice.
	pongAfter = 50 * time.Millisecond
	// idleRead is how long nobody reads the connection if nobody waits for an answer.
	idleRead = 20 * time.Millisecond
)

// Conn is an HTTP/2 connection to a gRPC server. It is safe for concurrent use.
type Conn struct {
	nc     net.Conn
	br     *bufio.Reader // used by the reader
	framer *http2.Framer // its reading half is used by the reader, the other half is guarded by mu
	fields []hpack.HeaderField
	o      Options
	done   chan struct{}
	usable atomic.Bool // calls may begin

	mu      sync.Mutex
	encoder *hpack.Encoder
	block   bytes.Buffer
	out     []byte // bytes to write
	spare   []byte
	writing bool      // a goroutine writes
	wrote   time.Time // when it began its newest write
	calls   map[uint32]*call
	streams int    // how many of the calls are of Stream
	last    uint32 // the newest stream of HTTP/2
	window  int64  // bytes that the server accepts
	initial int64  // bytes that the server accepts of a new stream
	most    uint32 // streams that the server accepts
	unsaid  int    // bytes that the server may send again, but was not told about
	settled bool   // the server's settings are known
	away    bool   // the server accepts no more calls
	reading bool   // a goroutine reads
	err     error  // why the connection has ended

	tick   *time.Timer
	ticks  bool      // tick is armed
	due    time.Time // when it comes
	idle   time.Time // when the last call ended
	ping   [8]byte   // the server's ping that was not answered yet
	asked  time.Time // when that came; 0: there is none
	heard  time.Time // when a frame was read while calls waited, or the first of them began
	pinged bool      // the server was asked since then whether it is there
}

// Options configure a Conn.
type Options struct {
	Scheme, Authority, UserAgent string
	// Silence is how long the server may send nothing while calls wait until it is asked whether it
	// is there, and Answer is how long it then has to answer.
	Silence, Answer time.Duration
}

// message is a message of package etcdserverpb.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

// call is one call under way. Conn.mu guards it until it is over.
type call struct {
	ctx    context.Context
	wake   chan struct{} // has an element when the call is over, or is to read
	over   bool
	err    error
	answer []byte
	unsaid int
	begun  bool // its answer has begun
	old    bool // it was there at an earlier tick
	reads  bool // it reads
	stop   func() bool
	tell   func(message []byte) error // gets the messages of a stream; nil: the call is a single one
}

var pool = sync.Pool{New: func() any { return &call{wake: make(chan struct{}, 1)} }}

// New begins to use a connection. It returns when the server has sent its settings, or ctx ends.
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

// Usable reports whether calls may be made.
func (c *Conn) Usable() bool { return c.usable.Load() }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection, and with it the calls under way.
func (c *Conn) Close() {
	c.mu.Lock()
	c.fail(net.ErrClosed)
	c.mu.Unlock()
}

// outWriter collects what the framer writes. Conn.mu is held.
type outWriter Conn

func (w *outWriter) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), nil
}

// Invoke makes a call, and stores its answer in out. A call that waits longer than a few
// milliseconds ends with its context.
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

// Stream makes a call with one request and any number of answers. tell gets each of them, without
// delay, from the goroutine that reads the connection. tell must not wait or use the Conn. Stream
// returns when the server, ctx or an error of tell ends the call.
func (c *Conn) Stream(ctx context.Context, method string, in message, tell func(message []byte) error,
	metadata ...hpack.HeaderField) error {
	x := &call{ctx: ctx, wake: make(chan struct{}, 1), tell: tell}
	return c.do(x, method, in, metadata...)
}

// do makes a call.
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
	select { // it was woken while it read
	case <-x.wake:
	default:
	}
	c.mu.Unlock()
	if x.stop != nil {
		x.stop()
	}
	return x.err
}

// send queues a request. c.mu is held.
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
		c.fail(err) // the headers are queued already
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
		c.leave() // after the call is known, which ends the connection otherwise
	}
	if x.tell != nil {
		x.stop = context.AfterFunc(x.ctx, func() { c.giveUp(id, x) })
		c.streams++
	}
	c.look(c.interval())
	return nil
}

// interval is how often the connection looks after its calls, of which there are some. c.mu is
// held.
func (c *Conn) interval() time.Duration {
	if len(c.calls) == c.streams {
		return c.o.Silence / 4
	}
	return every
}

// look makes tick come after a time, or sooner. c.mu is held.
func (c *Conn) look(after time.Duration) {
	if due := time.Now().Add(after); !c.ticks || due.Before(c.due) {
		c.ticks, c.due = true, due
		c.tick.Reset(after)
	}
}

// pong answers the server's ping, if there is one. c.mu is held.
func (c *Conn) pong() {
	if !c.asked.IsZero() {
		c.asked = time.Time{}
		_ = c.framer.WritePing(true, c.ping)
	}
}

// flush writes what is queued, unless another goroutine does. c.mu is held, and released meanwhile.
func (c *Conn) flush() {
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 && c.err == nil {
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		for rest := b; len(rest) > 0 && c.err == nil; {
			part := rest[:min(len(rest), pooledBytes)] // so that a slow peer's progress is visible
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

// frame reads and handles one frame. Only the reader calls it, without mu.
func (c *Conn) frame() {
	f, err := c.next()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // set by giveUp
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

// next reads a frame. If the read deadline passes, it leaves what has arrived of the frame in the
// buffer. Headers may be longer than the buffer, so the connection ends if the deadline passes
// between their frames.
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

// handle processes a frame. c.mu is held.
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

// refused ends a call that the server says it has not processed. A server that has begun to answer
// the call has processed it, whatever it says. c.mu is held.
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
		c.finish(f.StreamID, status.Error(grpcconn.Status(f.Fields))) // nil for codes.OK
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

// tellAll passes on the messages of a stream that are complete.
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

// reset ends a call whose answer is not complete. c.mu is held.
func (c *Conn) reset(id uint32, err error) {
	_ = c.framer.WriteRSTStream(id, http2.ErrCodeCancel)
	c.finish(id, err)
}

// finish ends a call. c.mu is held.
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

// leave accepts no more calls, and ends the connection with the last one. c.mu is held.
func (c *Conn) leave() {
	c.away = true
	c.usable.Store(false)
	if len(c.calls) == 0 {
		c.fail(errAway)
	}
}

// passOn ends the caller's reading. c.mu is held.
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

// readIdle reads until a call has ended, or the connection has. From then on callers read.
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

// fail ends the connection. c.mu is held.
func (c *Conn) fail(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.usable.Store(false)
	close(c.done)
	nc := c.nc
	if secured, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = secured.NetConn() // because TLS would first write a farewell, which may wait
	}
	nc.Close() // the reader and the writer notice
	for id := range c.calls {
		c.finish(id, status.Error(codes.Unavailable, "the connection has ended: "+err.Error()))
	}
}

// lookAfter is called now and then while there are calls. It makes those that wait for long watch
// their contexts, asks a silent server whether it is there, and has an idle connection read.
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
	c.flush() // last, because it may wait
}

// lookAtCalls is for a connection with calls. c.mu is held.
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

// lookIdle has a connection without calls read, if nobody has read it for a while. c.mu is held.
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

// isAlive reports whether the server has sent something lately, and queues a ping if not. c.mu is
// held.
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
