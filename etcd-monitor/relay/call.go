package relay

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/netcraq/netcraq/internal/grpcconn"
)

// call is one request of a client. It joins the client's stream with a stream to etcd or to this
// process's gRPC server, once that destination is known. Both streams report their frames to the
// call (see sink).
type call struct {
	client *client
	down   *half
	method string
	fields []hpack.HeaderField

	mu         sync.Mutex
	collecting bool
	message    []byte // message of the request, unparsed, with its 5-byte prefix
	up         *half
	over       bool               // the client has its answer, or has cancelled
	started    bool               // the client has got the answer's headers
	cancel     context.CancelFunc // cancels a request that this process answers

	// request to etcd
	plan  *Plan
	began time.Time
	head  []hpack.HeaderField // headers of the answer, if they are withheld
	kept  []byte              // part of the answer that is withheld until See has enough bytes
	seen  bool
}

// headers is a pool of slices for the headers of requests to etcd.
var headers = sync.Pool{New: func() any { return new([]hpack.HeaderField) }}

const prefixLen = 5 // length of a gRPC message's prefix in bytes: compression flag, message length

// unlock unlocks mu. Callers defer it, so that mu is unlocked if the Router panics. Such a panic
// ends the client's connection, in whichever goroutine it happens.
func (x *call) unlock() {
	fault := recover()
	if fault != nil && !x.over {
		x.over = true
		if x.plan != nil && x.plan.Done != nil {
			x.plan.Done(codes.Internal, time.Since(x.began))
		}
	}
	x.mu.Unlock()
	if fault != nil {
		x.down.c.panicked(fault)
	}
}

// begin implements beginner.
func (x *call) begin(end bool) {
	x.mu.Lock()
	defer x.unlock()
	switch {
	case x.over: // the client's connection has ended
	case !end && x.client.collects(x):
		x.collecting = true
	default:
		x.toLocalLocked(end)
	}
}

// headers implements sink.
func (x *call) headers(h *half, fields []hpack.HeaderField, end bool) {
	if h == x.down { // a request's trailers arrived, which gRPC does not use
		if end {
			x.data(h, nil, true)
		}
		return
	}
	x.mu.Lock()
	defer x.unlock()
	switch {
	case h != x.up || x.over:
	case x.plan == nil || !end && x.plan.Answer == nil:
		x.started = true
		x.over = end
		x.down.headers(fields, end)
	case !end:
		x.head = fields
	default:
		x.trailers(fields)
	}
}

// data implements sink.
func (x *call) data(h *half, b []byte, end bool) {
	x.mu.Lock()
	defer x.unlock()
	if h == x.down {
		x.request(b, end)
		return
	}
	switch {
	case h != x.up || x.over:
	case x.plan == nil:
		x.over = end
		h.giveBack(x.down.data(b, end))
	case x.plan.Answer != nil:
		x.kept = append(x.kept, b...)
		h.giveBack(len(b))
	case x.seen || x.plan.See == nil:
		h.giveBack(x.down.data(b, false))
	default:
		if x.kept == nil && len(b) >= prefixLen+headLen {
			x.seen = true
			x.plan.See(b[prefixLen:], sizeOf(b))
			h.giveBack(x.down.data(b, false))
			return
		}
		if x.kept = append(x.kept, b...); len(x.kept) >= prefixLen+headLen {
			x.show()
		}
	}
	// etcd must end a stream with trailers. If it does not, the client gets an error.
	if end && h == x.up && !x.over && x.plan != nil {
		x.finish(codes.Internal, "the answer has no trailers")
		if x.plan.Done != nil {
			x.plan.Done(codes.Internal, time.Since(x.began))
		}
	}
}

// headLen is the length of the part of an answer that See gets, in bytes.
const headLen = 64

// sizeOf returns the size of a message, which its prefix contains.
func sizeOf(m []byte) int { return int(binary.BigEndian.Uint32(m[1:])) }

// show sends the client the part of an answer that was withheld for See. The caller holds mu.
func (x *call) show() {
	if len(x.kept) > prefixLen {
		x.plan.See(x.kept[prefixLen:], sizeOf(x.kept))
	}
	x.seen = true
	x.up.giveBack(x.down.data(x.kept, false))
	x.kept = nil
}

// request handles data of the client's request. The caller holds mu.
func (x *call) request(b []byte, end bool) {
	switch {
	case x.over:
		x.down.giveBack(len(b))
	case x.collecting:
		if x.message == nil && end {
			x.message = append(make([]byte, 0, len(b)), b...)
		} else {
			x.message = append(x.message, b...)
		}
		x.down.giveBack(len(b))
		switch {
		case end, x.whole(): // a request has one message; the end of its stream may come later
			x.route()
		case len(x.message) > x.client.r.MaxMessage+prefixLen:
			x.toLocalLocked(false)
		}
	case x.up != nil:
		x.down.giveBack(x.up.data(b, end))
	}
}

// whole reports whether the request's message is complete. The caller holds mu.
func (x *call) whole() bool {
	m := x.message
	return len(m) >= prefixLen && len(m)-prefixLen == int(binary.BigEndian.Uint32(m[1:]))
}

// route decides where a complete request goes. The caller holds mu.
func (x *call) route() {
	r := x.client.r
	if m := x.message; len(m) >= prefixLen && len(m) <= r.MaxMessage+prefixLen && m[0] == 0 &&
		int(binary.BigEndian.Uint32(m[1:])) == len(m)-prefixLen {
		x.plan = r.Router.Plan(x.method, x.metadata, m[prefixLen:])
	}
	if x.plan == nil || x.plan.Serve != nil && !x.serve() {
		x.toLocalLocked(true)
		return
	}
	if x.plan == nil {
		return // this process answers the request
	}
	x.collecting = false
	x.began = time.Now()
	r.pool.send(x)
}

func (x *call) metadata(name string) string {
	for _, f := range x.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// sendTo opens a stream to a member of etcd. It reports whether the member's connection accepts the
// stream. The caller holds mu.
func (x *call) sendTo(at member) bool {
	method := x.plan.Method
	if method == "" {
		method = x.method
	}
	size := 0
	for _, p := range x.plan.Message {
		size += len(p)
	}
	fields := headers.Get().(*[]hpack.HeaderField)
	*fields = x.client.r.request((*fields)[:0], at.link, method, x.fields)
	up := at.conn.open(*fields, x) // open does not retain fields
	headers.Put(fields)
	if up == nil {
		return false
	}
	x.up = up
	m := make([]byte, prefixLen, prefixLen+size)
	binary.BigEndian.PutUint32(m[1:], uint32(size))
	for _, p := range x.plan.Message {
		m = append(m, p...)
	}
	up.data(m, true)
	return true
}

// toLocalLocked makes this process's gRPC server serve the request. The caller holds mu.
func (x *call) toLocalLocked(end bool) {
	x.collecting, x.plan, x.up = false, nil, nil
	c, err := x.client.server()
	if err != nil {
		x.finish(codes.Unavailable, "etcd-monitor: the gateway is being closed")
		return
	}
	up := c.open(x.fields, x)
	if up == nil {
		x.finish(codes.Unavailable, "etcd-monitor: the gateway is being closed")
		return
	}
	x.up = up
	if len(x.message) > 0 || end {
		up.data(x.message, end)
	}
	x.message = nil
}

// trailers handles the trailers that end etcd's answer. The caller holds mu.
func (x *call) trailers(fields []hpack.HeaderField) {
	code, text := grpcconn.Status(fields)
	plan := x.plan
	if code == codes.OK && plan.Answer != nil {
		m := x.kept
		if len(m) < prefixLen || m[0] != 0 || int(binary.BigEndian.Uint32(m[1:])) != len(m)-prefixLen {
			x.finish(codes.Internal, "etcd-monitor: etcd's answer is not a valid message")
			return
		}
		answer, ok := plan.Answer(m[prefixLen:])
		if !ok {
			x.toLocalLocked(true)
			return
		}
		size := 0
		for _, p := range answer {
			size += len(p)
		}
		out := make([]byte, prefixLen, prefixLen+size)
		binary.BigEndian.PutUint32(out[1:], uint32(size))
		for _, p := range answer {
			out = append(out, p...)
		}
		x.down.headers(x.head, false)
		x.down.data(out, false)
	} else if code != codes.OK && plan.Refused != nil && !x.started && plan.Refused(code, text) {
		x.toLocalLocked(true)
		return
	} else if x.kept != nil && plan.See != nil && plan.Answer == nil {
		x.show()
	} else if code != codes.OK && x.head != nil {
		x.down.headers(x.head, false)
	}
	x.over = true
	x.down.headers(fields, true)
	if plan.Done != nil {
		plan.Done(code, time.Since(x.began))
	}
}

// reset implements sink.
func (x *call) reset(h *half, code http2.ErrCode, refused bool) {
	x.mu.Lock()
	defer x.unlock()
	if h == x.down {
		was := x.over
		x.over = true
		switch {
		case x.cancel != nil:
			x.cancel()
		case x.up != nil:
			x.up.cut(http2.ErrCodeCancel)
			if p := &x.client.r.pool; p.waits.Load() > 0 {
				go func() { // on another goroutine, because pool.retry locks other calls
					defer x.down.c.endAtPanic()
					p.retry()
				}()
			}
		case x.plan != nil:
			x.client.r.pool.forget(x)
		}
		if !was && x.plan != nil && x.plan.Done != nil {
			x.plan.Done(codes.Canceled, time.Since(x.began))
		}
		return
	}
	switch {
	case h != x.up:
	case x.over: // the answer is complete, but may still wait for the client to read
		x.down.cutAtEnd(code)
	case refused && x.plan != nil && !x.started:
		x.up, x.head, x.kept = nil, nil, nil
		x.client.r.pool.send(x)
	default:
		x.over = true
		x.down.cut(code)
		if x.plan != nil && x.plan.Done != nil {
			x.plan.Done(codes.Unavailable, time.Since(x.began))
		}
	}
}

// lost implements sink.
func (x *call) lost(h *half, why error) {
	if h == x.down {
		x.reset(h, http2.ErrCodeCancel, false)
		return
	}
	x.mu.Lock()
	defer x.unlock()
	if h != x.up || x.over {
		return
	}
	plan := x.plan
	x.finish(codes.Unavailable, "etcd-monitor: the connection to etcd ended before the answer: "+why.Error())
	if plan != nil && plan.Done != nil {
		plan.Done(codes.Unavailable, time.Since(x.began))
	}
}

// drained implements sink.
func (x *call) drained(h *half, n int) {
	x.mu.Lock()
	up := x.up
	x.mu.Unlock()
	switch {
	case h == x.down && up != nil:
		up.giveBack(n)
	case h == up:
		x.down.giveBack(n)
	}
}

// finish ends the client's stream with a status that the relay makes. The caller holds mu.
func (x *call) finish(code codes.Code, text string) {
	x.over = true
	fields := trailersOnly(code, text)
	if x.started {
		fields = fields[len(answerHead):]
	}
	x.down.headers(fields, true)
}

// resend sends a request that was waiting for a connection.
func (x *call) resend() {
	x.mu.Lock()
	defer x.unlock()
	if !x.over {
		x.client.r.pool.send(x)
	}
}

// stopped ends a request that was still waiting when the relay was drained.
func (x *call) stopped() {
	x.mu.Lock()
	defer x.unlock()
	if !x.over {
		x.finish(codes.Unavailable, x.client.r.Stopped)
		if x.plan.Done != nil {
			x.plan.Done(codes.Unavailable, time.Since(x.began))
		}
	}
}

// encodeMessage percent-encodes a status message (gRPC over HTTP2, "Responses").
func encodeMessage(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if b := s[i]; b >= ' ' && b <= '~' && b != '%' {
			out.WriteByte(b)
		} else {
			const hex = "0123456789ABCDEF"
			out.WriteByte('%')
			out.WriteByte(hex[b>>4])
			out.WriteByte(hex[b&15])
		}
	}
	return out.String()
}
