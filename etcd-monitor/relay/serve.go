package relay

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Message is an answer that this process makes.
type Message interface {
	Size() int
	MarshalTo(b []byte) (int, error)
}

// serve makes this process answer a complete request, without a gRPC server in between. It returns
// false for requests that a gRPC server would refuse, and leaves them to this process's gRPC
// server. The caller holds mu.
func (x *call) serve() bool {
	asked, ok := parseRequest(x.fields)
	if !ok {
		return false
	}
	r, do, now := x.client.r, x.plan.Serve, x.plan.Now
	x.collecting, x.message, x.plan = false, nil, nil
	if now != nil {
		if answer, ok := now(); ok {
			x.answerLocked(answer, nil)
			return true
		}
	}
	ctx, cancel := asked.context()
	x.cancel = cancel
	r.serving.Add(1)
	go func() {
		defer r.serving.Done()
		defer x.down.c.endAtPanic()
		defer cancel()
		answer, err := do(ctx)
		x.answer(answer, err)
	}()
	return true
}

// answer sends the client an answer that this process has made.
func (x *call) answer(m Message, err error) {
	x.mu.Lock()
	defer x.unlock()
	x.answerLocked(m, err)
}

// answerLocked is like answer, for a caller that holds mu.
func (x *call) answerLocked(m Message, err error) {
	if x.over {
		return
	}
	x.over = true
	var out []byte
	if err == nil {
		out = make([]byte, prefixLen+m.Size())
		var n int
		if n, err = m.MarshalTo(out[prefixLen:]); err != nil {
			err = status.Errorf(codes.Internal, "etcd-monitor: encoding the answer: %v", err)
		}
		binary.BigEndian.PutUint32(out[1:], uint32(n))
	}
	if err == nil {
		x.down.respond(out)
		return
	}
	st, ok := status.FromError(err)
	if !ok { // gRPC's servers return the same error
		st = status.FromContextError(err)
	}
	fields := append(trailersOnly(st.Code(), st.Message()), details(st)...)
	x.down.headers(fields, true)
}

// answerHead and answerEnd are the headers and trailers of an answer that this process makes.
var (
	answerHead = []hpack.HeaderField{{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/grpc"}}
	answerEnd = []hpack.HeaderField{{Name: "grpc-status", Value: "0"}, {Name: "grpc-message", Value: ""}}
)

// trailersOnly returns the headers of an answer that consists only of an error.
func trailersOnly(code codes.Code, text string) []hpack.HeaderField {
	return append(answerHead[:len(answerHead):len(answerHead)],
		hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(code))},
		hpack.HeaderField{Name: "grpc-message", Value: encodeMessage(text)})
}

// details returns the header with the details of a status, if it has details.
func details(st *status.Status) []hpack.HeaderField {
	p := st.Proto()
	if len(p.GetDetails()) == 0 {
		return nil
	}
	b, err := proto.Marshal(p)
	if err != nil {
		return nil
	}
	return []hpack.HeaderField{{Name: "grpc-status-details-bin", Value: base64.RawStdEncoding.EncodeToString(b)}}
}

// respond sends a complete answer.
func (h *half) respond(message []byte) {
	c := h.c
	c.mu.Lock()
	if c.streams[h.id] != h || h.sentEnd {
		c.mu.Unlock()
		return
	}
	c.writeHeaders(h.id, answerHead, false)
	n := c.writeData(h, message, false)
	if n < len(message) {
		h.waiting, h.trailer, h.end = message[n:], answerEnd, true
		if !h.queued {
			h.queued = true
			c.queue = append(c.queue, h)
		}
	} else {
		c.writeHeaders(h.id, answerEnd, true)
		h.sentEnd = true
		h.settleLocked()
	}
	c.mu.Unlock()
	c.kick()
	c.endIfIdle()
}

// asked has a request's metadata and its timeout. A negative timeout means none.
type asked struct {
	metadata metadata.MD
	limit    time.Duration
}

// parseRequest parses the headers of a request. ok is false if a header must be decoded or refused.
func parseRequest(fields []hpack.HeaderField) (a asked, ok bool) {
	a.limit = -1
	for _, f := range fields {
		switch {
		case f.Name == "grpc-timeout":
			if a.limit, ok = timeoutOf(f.Value); !ok {
				return a, false
			}
		case hopByHop(f.Name):
		case strings.HasSuffix(f.Name, "-bin"):
			return a, false
		default:
			if a.metadata == nil {
				a.metadata = metadata.MD{}
			}
			a.metadata[f.Name] = append(a.metadata[f.Name], f.Value)
		}
	}
	return a, true
}

// context returns the context of the request. It is like the context in a gRPC server's handlers.
func (a asked) context() (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if a.metadata != nil {
		ctx = metadata.NewIncomingContext(ctx, a.metadata)
	}
	if a.limit < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, a.limit)
}

// timeoutUnits are the units of grpc-timeout (gRPC over HTTP2, "Requests").
var timeoutUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// timeoutOf parses a grpc-timeout header, which is up to eight digits and a unit.
func timeoutOf(s string) (time.Duration, bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	unit, known := timeoutUnits[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if !known || err != nil {
		return 0, false
	}
	if n > uint64(maxTimeout/unit) {
		return maxTimeout, true
	}
	return time.Duration(n) * unit, true
}

// maxTimeout is the longest possible time.Duration.
const maxTimeout = time.Duration(1<<63 - 1)
