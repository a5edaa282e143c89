package rpc

import (
	"bytes"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// Request is a message from a client, parsed from either framing.
type Request struct {
	ID            uint64
	Func          string
	Data          jsontext.Value // the data in their encoded form; they are a part of the connection's buffer
	TimeoutMillis int
	Once, Done    uint64
}

// Response is a message to a client.
type Response struct {
	ID   uint64
	Data any
	Err  *nodeapi.Error
	More bool
}

// Format is a framing of messages, with the encoding of the messages.
type Format interface {
	// Next finds the first message in b, and returns the message and its size. The size is 0 if the
	// message is not complete.
	Next(b []byte) (message []byte, size int, err *nodeapi.Error)
	// Request parses a message. If it fails, the result still has the ID, if the ID could be
	// parsed.
	Request(message []byte) (Request, error)
	// Data parses the data of a request.
	Data(raw []byte, into any) error
	// Append appends a response to b.
	Append(b []byte, r *Response) ([]byte, error)
}

// errTooLong returns the error for a message that is too long. It ends the connection, because the
// server cannot know where the next message begins.
func errTooLong() *nodeapi.Error {
	return nodeapi.Errorf(nodeapi.CodeTooLarge, "connect again, and send less", "a message has at most %d bytes; this connection ends here",
		nodeapi.MaxMessage)
}

// JSONLines is the framing with one JSON object per line. It is strict. Each name must be written
// exactly as documented and may occur only once, and text must be UTF-8.
type JSONLines struct{}

type jsonRequest struct {
	ID            uint64         `json:"id"`
	Func          string         `json:"func"`
	Data          jsontext.Value `json:"data"`
	TimeoutMillis int            `json:"timeoutMs"`
	Once          uint64         `json:"once"`
	Done          uint64         `json:"done"`
}

type JSONResponse struct {
	ID    uint64         `json:"id"`
	Data  any            `json:"data,omitempty"`
	Error *nodeapi.Error `json:"error,omitempty"`
	More  bool           `json:"more,omitempty"`
}

var (
	strict = json.RejectUnknownMembers(true)
	// With the legacy semantics, fields that are false or 0 are also omitted. A pointer to "" is
	// not omitted.
	LegacyEmpty = jsonv1.OmitEmptyWithLegacySemantics(true)
)

func (JSONLines) Next(b []byte) ([]byte, int, *nodeapi.Error) {
	i := bytes.IndexByte(b, '\n')
	switch {
	case i >= nodeapi.MaxMessage || i < 0 && len(b) >= nodeapi.MaxMessage:
		return nil, 0, errTooLong()
	case i < 0:
		return nil, 0, nil
	}
	return b[:i], i + 1, nil
}

func (JSONLines) Request(message []byte) (Request, error) {
	var r jsonRequest
	if err := json.Unmarshal(message, &r, strict); err != nil {
		var id struct {
			ID uint64 `json:"id"`
		}
		_ = json.Unmarshal(message, &id)
		return Request{ID: id.ID}, fmt.Errorf("this is not a request: %s", Unreadable(err))
	}
	return Request(r), nil
}

func (JSONLines) Data(raw []byte, into any) error { return json.Unmarshal(raw, into, strict) }

func (JSONLines) Append(b []byte, r *Response) ([]byte, error) {
	if i, ok := r.Data.(*nodeapi.Item); ok && r.Err == nil && !r.More && i.Error == nil {
		return appendItemLine(b, r.ID, i)
	}
	text, err := json.Marshal(JSONResponse{r.ID, r.Data, r.Err, r.More}, LegacyEmpty)
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}

func (r *Request) Timeout() time.Duration {
	if r.TimeoutMillis == 0 {
		return nodeapi.DefaultTimeoutMillis * time.Millisecond
	}
	return time.Duration(r.TimeoutMillis) * time.Millisecond
}
