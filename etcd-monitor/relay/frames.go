package relay

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// handle processes a frame. An error ends the connection.
func (c *conn) handle(f http2.Frame) error {
	c.read.Store(time.Now().UnixNano())
	c.pinged.Store(false)
	if s, ok := f.(*http2.SettingsFrame); !c.settled && (!ok || s.IsAck()) {
		c.goAway(http2.ErrCodeProtocol, "the first frame has no settings")
		return errors.New("relay: the peer's first frame has no settings")
	}
	switch f.(type) {
	case *http2.DataFrame, *http2.RSTStreamFrame, *http2.WindowUpdateFrame:
		if c.notBegun(f.Header().StreamID) {
			c.goAway(http2.ErrCodeProtocol, "a frame of a stream that has not begun")
			return errors.New("relay: a frame of a stream that has not begun")
		}
	}
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.onHeaders(f)
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.RSTStreamFrame:
		if h := c.drop(f.StreamID); h != nil {
			h.sink.reset(h, f.ErrCode, f.ErrCode == http2.ErrCodeRefusedStream)
		}
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.WindowUpdateFrame:
		return c.onWindow(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.GoAwayFrame:
		c.onGoAway(f)
	case *http2.PushPromiseFrame:
		c.goAway(http2.ErrCodeProtocol, "a pushed stream")
		return fmt.Errorf("relay: a pushed stream")
	}
	return nil
}

// notBegun reports whether a stream is idle, so that only HEADERS and PRIORITY are allowed on it
// (RFC 9113, 5.1).
func (c *conn) notBegun(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return id > c.last || id != 0 && id%2 == 0
}

func (c *conn) onHeaders(f *http2.MetaHeadersFrame) error {
	h := c.find(f.StreamID)
	if h != nil {
		if c.server && (h.gotEnd || !f.StreamEnded()) { // trailers must end a request (RFC 9113, 8.1)
			h.cut(http2.ErrCodeProtocol)
			h.sink.reset(h, http2.ErrCodeProtocol, false)
			return nil
		}
		if f.StreamEnded() {
			c.mu.Lock()
			h.gotEnd = true
			h.settleLocked()
			c.mu.Unlock()
		}
		h.sink.headers(h, f.Fields, f.StreamEnded())
		return nil
	}
	if !c.server {
		if f.StreamID%2 == 0 {
			c.goAway(http2.ErrCodeProtocol, "a stream of the server's")
			return fmt.Errorf("relay: a stream of the server's")
		}
		return nil // the frame belongs to a stream that the relay has ended
	}
	c.mu.Lock()
	switch {
	case f.StreamID%2 == 0:
		c.mu.Unlock()
		c.goAway(http2.ErrCodeProtocol, "a stream with an even number")
		return fmt.Errorf("relay: a stream with an even number")
	case f.StreamID <= c.last: // the frame has the trailers of a stream that the relay has ended
		c.mu.Unlock()
		return nil
	}
	c.last = f.StreamID
	refuse := c.away || c.limits.streams > 0 && uint32(len(c.streams)) >= c.limits.streams
	if refuse || f.Truncated {
		code := http2.ErrCodeRefusedStream
		if f.Truncated {
			code = http2.ErrCodeEnhanceYourCalm
		}
		c.framer.WriteRSTStream(f.StreamID, code)
		c.mu.Unlock()
		c.kick()
		return nil
	}
	if c.err != nil { // if the connection has ended, no one else would tell the stream's sink
		c.mu.Unlock()
		return c.err
	}
	h = &half{c: c, id: f.StreamID, window: c.initial, granted: streamWindow, gotEnd: f.StreamEnded()}
	s := c.accept(h, f.Fields)
	h.sink = s
	c.streams[h.id] = h
	c.mu.Unlock()
	s.begin(f.StreamEnded())
	return nil
}

func (c *conn) onData(f *http2.DataFrame) error {
	size := int(f.Length)
	c.mu.Lock()
	h := c.streams[f.StreamID]
	if c.granted -= int64(size); c.granted < 0 {
		c.mu.Unlock()
		c.goAway(http2.ErrCodeFlowControl, "more data than the connection's window")
		return errors.New("relay: more data than the connection's window")
	}
	// The connection's window is extended at once for received bytes, because the windows of the
	// streams limit them.
	if c.unsaid += size; c.unsaid >= connWindow/4 {
		c.framer.WriteWindowUpdate(0, uint32(c.unsaid))
		c.granted += int64(c.unsaid)
		c.unsaid = 0
		c.kick()
	}
	if h == nil {
		c.mu.Unlock()
		return nil
	}
	if h.granted -= int64(size); h.granted < 0 {
		c.mu.Unlock()
		h.cut(http2.ErrCodeFlowControl)
		h.sink.reset(h, http2.ErrCodeFlowControl, false)
		return nil
	}
	if h.gotEnd {
		c.mu.Unlock()
		h.cut(http2.ErrCodeStreamClosed)
		h.sink.reset(h, http2.ErrCodeStreamClosed, false)
		return nil
	}
	if f.StreamEnded() {
		h.gotEnd = true
		h.settleLocked()
	}
	c.mu.Unlock()
	if padding := size - len(f.Data()); padding > 0 {
		h.giveBack(padding)
	}
	h.sink.data(h, f.Data(), f.StreamEnded())
	return nil
}

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			more := int64(s.Val) - c.initial
			c.initial = int64(s.Val)
			for _, h := range c.streams {
				if h.window += more; h.window > mostWindow {
					return http2.ConnectionError(http2.ErrCodeFlowControl)
				}
			}
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(s.Val)
		case http2.SettingMaxConcurrentStreams:
			c.most = s.Val
		}
		return nil
	})
	if err == nil {
		c.framer.WriteSettingsAck()
		if !c.settled {
			c.settled = true
			close(c.ready)
		}
	}
	c.mu.Unlock()
	c.kick()
	if err != nil {
		return c.malformed(err)
	}
	c.pump()
	return nil
}

func (c *conn) onWindow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > mostWindow {
			c.mu.Unlock()
			c.goAway(http2.ErrCodeFlowControl, "")
			return fmt.Errorf("relay: the window is too large")
		}
	} else if h := c.streams[f.StreamID]; h != nil {
		if h.window += int64(f.Increment); h.window > mostWindow {
			c.mu.Unlock()
			h.cut(http2.ErrCodeFlowControl)
			h.sink.reset(h, http2.ErrCodeFlowControl, false)
			return nil
		}
	}
	c.mu.Unlock()
	c.pump()
	return nil
}

// tooManyPings is the text with which gRPC closes such a connection (grpc: internal/transport).
const tooManyPings = "too_many_pings"

// mostPings is the permitted number of early pings. idlePing is the minimum interval between pings
// for a peer without streams. gRPC uses the same values.
const (
	mostPings = 2
	idlePing  = 2 * time.Hour
)

func (c *conn) onPing(f *http2.PingFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	c.framer.WritePing(true, f.Data)
	now := time.Now()
	if c.limits.pingMin > 0 {
		wait := c.limits.pingMin
		if len(c.streams) == 0 {
			wait = idlePing
		}
		switch {
		case c.forgive:
			c.forgive, c.pings = false, 0
		case !c.pingAt.IsZero() && now.Sub(c.pingAt) < wait:
			c.pings++
		}
		c.pingAt = now
	}
	calm := c.pings <= mostPings
	c.mu.Unlock()
	c.kick()
	if !calm {
		c.goAway(http2.ErrCodeEnhanceYourCalm, tooManyPings)
		return fmt.Errorf("relay: too many pings")
	}
	return nil
}

// onGoAway handles GOAWAY: the peer opens or accepts no more streams. Streams that we have opened
// and that the peer has not processed may be repeated on another connection.
func (c *conn) onGoAway(f *http2.GoAwayFrame) {
	c.mu.Lock()
	c.away = true
	var refused []*half
	if !c.server {
		for id, h := range c.streams {
			if id > f.LastStreamID {
				refused = append(refused, h)
				delete(c.streams, id)
			}
		}
	}
	c.mu.Unlock()
	for _, h := range refused {
		h.sink.reset(h, http2.ErrCodeRefusedStream, true)
	}
	if c.onDead != nil && !c.server {
		c.onDead()
	}
	c.endIfIdle()
}

// goAway tells the peer that this side accepts no more streams.
func (c *conn) goAway(code http2.ErrCode, why string) {
	c.mu.Lock()
	c.away = true
	c.framer.WriteGoAway(c.last, code, []byte(why))
	c.mu.Unlock()
	c.kick()
}

// endIfIdle ends a draining connection when its last stream has ended.
func (c *conn) endIfIdle() {
	c.mu.Lock()
	over := c.away && len(c.streams) == 0
	c.mu.Unlock()
	if over {
		c.fail(errAway)
		c.nc.SetReadDeadline(time.Now()) // ends a read of the connection's reader, which then sees the end
	}
}

var errAway = fmt.Errorf("relay: the connection was ended in good order")

// room reports whether the peer lets us open another stream.
func (c *conn) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomLocked()
}

func (c *conn) roomLocked() bool {
	return c.err == nil && !c.away && uint32(len(c.streams)) < c.most && c.last <= mostWindow-2
}

// open opens a stream. If the connection accepts no more streams, it returns nil.
func (c *conn) open(fields []hpack.HeaderField, s sink) *half {
	c.mu.Lock()
	if !c.roomLocked() {
		c.mu.Unlock()
		return nil
	}
	if c.last == 0 {
		c.last = 1
	} else {
		c.last += 2
	}
	h := &half{c: c, id: c.last, sink: s, window: c.initial, granted: streamWindow}
	c.streams[h.id] = h
	c.writeHeaders(h.id, fields, false)
	c.mu.Unlock()
	c.kick()
	return h
}

// writeHeaders writes a header block. The caller holds mu.
func (c *conn) writeHeaders(id uint32, fields []hpack.HeaderField, end bool) {
	c.forgive = true
	c.block.Reset()
	for _, f := range fields {
		c.encoder.WriteField(f)
	}
	b := c.block.Bytes()
	first := true
	for first || len(b) > 0 {
		part := b[:min(len(b), maxFrame)]
		b = b[len(part):]
		if first {
			c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndStream: end,
				EndHeaders: len(b) == 0})
		} else {
			c.framer.WriteContinuation(id, len(b) == 0, part)
		}
		first = false
	}
}

// headers sends the headers of a stream, or its trailers if data was sent before.
func (h *half) headers(fields []hpack.HeaderField, end bool) {
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] != h || h.sentEnd {
		c.mu.Unlock()
		return
	}
	if len(h.waiting) > 0 {
		h.trailer, h.end = fields, end
	} else {
		c.writeHeaders(h.id, fields, end)
		if end {
			h.sentEnd = true
			h.settleLocked()
		}
	}
	c.mu.Unlock()
	c.kick()
	c.endIfIdle()
}

// data sends as many bytes as the windows permit, and queues the remaining bytes. It returns the
// number of bytes that were sent.
func (h *half) data(b []byte, end bool) int {
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] != h || h.sentEnd {
		c.mu.Unlock()
		return len(b) // the stream has ended, so the bytes count as sent
	}
	n := 0
	if len(h.waiting) == 0 {
		n = c.writeData(h, b, end)
	}
	if n < len(b) || len(h.waiting) > 0 {
		h.waiting = append(h.waiting, b[n:]...)
		h.end = h.end || end // data of earlier calls may still wait when the end comes alone
		if !h.queued {
			h.queued = true
			c.queue = append(c.queue, h)
		}
	}
	c.mu.Unlock()
	c.kick()
	c.endIfIdle()
	return n
}

// writeData writes as much as the windows permit, and returns the number of bytes. The caller holds
// mu.
func (c *conn) writeData(h *half, b []byte, end bool) (n int) {
	c.forgive = true
	if len(b) == 0 {
		if end {
			c.framer.WriteData(h.id, true, nil)
			h.sentEnd = true
			h.settleLocked()
		}
		return 0
	}
	for n < len(b) && len(c.out) < mostBuffered {
		size := min(int64(len(b)-n), h.window, c.window, maxFrame)
		if size <= 0 {
			break
		}
		last := n+int(size) == len(b)
		c.framer.WriteData(h.id, end && last, b[n:n+int(size)])
		h.window -= size
		c.window -= size
		n += int(size)
		if end && last {
			h.sentEnd = true
			h.settleLocked()
		}
	}
	return n
}

// pump sends waiting data of all streams, as far as the windows permit.
func (c *conn) pump() {
	type sent struct {
		h *half
		n int
	}
	var all []sent
	c.mu.Lock()
	if len(c.queue) == 0 {
		c.mu.Unlock()
		return
	}
	rest := c.queue[:0]
	for _, h := range c.queue {
		if c.streams[h.id] != h {
			h.queued = false
			continue
		}
		n := c.writeData(h, h.waiting, h.end && h.trailer == nil)
		h.waiting = h.waiting[n:]
		if n > 0 {
			all = append(all, sent{h, n})
		}
		if len(h.waiting) > 0 {
			rest = append(rest, h)
			continue
		}
		h.waiting, h.queued = nil, false
		if h.trailer != nil {
			c.writeHeaders(h.id, h.trailer, h.end)
			h.trailer = nil
			if h.end {
				h.sentEnd = true
				h.settleLocked()
			}
		}
	}
	if len(rest) > 0 && len(all) > 0 { // the next call begins with another stream
		rest = append(rest[1:], rest[0])
	}
	c.queue = rest
	c.mu.Unlock()
	c.kick()
	for _, s := range all {
		s.h.sink.drained(s.h, s.n)
	}
	c.endIfIdle()
}

// giveBack lets the peer send n more bytes on a stream.
func (h *half) giveBack(n int) {
	if n <= 0 {
		return
	}
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] == h && !h.gotEnd {
		if h.unsaid += n; h.unsaid >= streamWindow/4 {
			c.framer.WriteWindowUpdate(h.id, uint32(h.unsaid))
			h.granted += int64(h.unsaid)
			h.unsaid = 0
			c.kick()
		}
	}
	c.mu.Unlock()
}

// cut resets a stream, without calling its sink.
func (h *half) cut(code http2.ErrCode) {
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] == h {
		delete(c.streams, h.id)
		c.framer.WriteRSTStream(h.id, code)
	}
	c.mu.Unlock()
	c.kick()
	c.endIfIdle()
}

// cutAtEnd resets a stream after all of its data and its end were written. The peer then need not
// send more.
func (h *half) cutAtEnd(code http2.ErrCode) {
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] == h {
		h.cutting, h.code = true, code
		h.settleLocked()
	}
	c.mu.Unlock()
	c.kick()
	c.endIfIdle()
}

// drop removes a stream that the peer has reset.
func (c *conn) drop(id uint32) *half {
	c.mu.Lock()
	h := c.streams[id]
	delete(c.streams, id)
	c.mu.Unlock()
	c.endIfIdle()
	return h
}

// settleLocked removes a stream if both sides have ended it, or if it must be reset after its end.
// The caller holds mu.
func (h *half) settleLocked() {
	switch {
	case !h.sentEnd:
	case h.gotEnd:
		delete(h.c.streams, h.id)
	case h.cutting:
		delete(h.c.streams, h.id)
		h.c.framer.WriteRSTStream(h.id, h.code)
	}
}

// watchIdle pings the peer when it is silent, until stop is called.
func (c *conn) watchIdle() (stop func()) {
	if c.limits.idle == 0 {
		return nil
	}
	var timer *time.Timer
	look := func() {
		c.mu.Lock()
		silent := time.Since(time.Unix(0, c.read.Load()))
		next := c.limits.idle - silent
		switch {
		case c.err != nil:
			c.mu.Unlock()
			return
		case c.limits.idleStreams && len(c.streams) == 0:
			c.read.Store(time.Now().UnixNano()) // no ping is needed without streams
			next = c.limits.idle
		case c.pinged.Load() && silent >= c.limits.idle+c.limits.idleTimeout:
			c.mu.Unlock()
			c.fail(errSilent)
			c.nc.Close()
			return
		case next <= 0:
			if !c.pinged.Swap(true) {
				c.framer.WritePing(false, [8]byte{'n', 'c'})
				c.kick()
			}
			next = c.limits.idle + c.limits.idleTimeout - silent
		}
		c.mu.Unlock()
		timer.Reset(max(next, time.Millisecond))
	}
	c.mu.Lock()
	timer = time.AfterFunc(c.limits.idle, look)
	c.mu.Unlock()
	return func() { timer.Stop() }
}

var errSilent = fmt.Errorf("relay: the peer does not answer a ping")
