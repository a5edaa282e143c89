package server

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/netcraq/netcraq/api/node"
)

// request is a message from a client, in either framing: node.Request.
type request struct {
	ID            uint64
	Func          string
	Data          jsontext.Value // as it came; it lies in the connection's buffer
	TimeoutMillis int
	Once, Done    uint64
}

// response is a message to a client: node.Response.
type response struct {
	id   uint64
	data any
	err  *node.Error
	more bool
}

// framing is how messages lie in the stream of bytes.
type framing interface {
	// next finds the first message in b, and how many bytes it takes: 0, if there is none yet.
	next(b []byte) (message []byte, size int, err *node.Error)
	// request reads a message. With an error, the ID is the message's, if it could be read.
	request(message []byte) (request, error)
	// data reads a request's data.
	data(raw []byte, into any) error
	// append appends a response to b.
	append(b []byte, r *response) ([]byte, error)
}

// errTooLong is what ends a connection: the server cannot know where the next message begins.
func errTooLong() *node.Error {
	return node.Errorf(node.CodeTooLarge, "connect again, and send less", "a message has at most %d bytes; this connection ends here",
		node.MaxMessage)
}

// jsonLines is a JSON object a line. It is strict: names are as they are written, once each, and
// text is UTF-8.
type jsonLines struct{}

type jsonRequest struct {
	ID            uint64         `json:"id"`
	Func          string         `json:"func"`
	Data          jsontext.Value `json:"data"`
	TimeoutMillis int            `json:"timeoutMs"`
	Once          uint64         `json:"once"`
	Done          uint64         `json:"done"`
}

type jsonResponse struct {
	ID    uint64      `json:"id"`
	Data  any         `json:"data,omitempty"`
	Error *node.Error `json:"error,omitempty"`
	More  bool        `json:"more,omitempty"`
}

var (
	strict = json.RejectUnknownMembers(true)
	// What encoding/json calls empty: false and 0, too, and a pointer to "" is not.
	legacyEmpty = jsonv1.OmitEmptyWithLegacySemantics(true)
)

func (jsonLines) next(b []byte) ([]byte, int, *node.Error) {
	i := bytes.IndexByte(b, '\n')
	switch {
	case i >= node.MaxMessage || i < 0 && len(b) >= node.MaxMessage:
		return nil, 0, errTooLong()
	case i < 0:
		return nil, 0, nil
	}
	return b[:i], i + 1, nil
}

func (jsonLines) request(message []byte) (request, error) {
	var r jsonRequest
	if err := json.Unmarshal(message, &r, strict); err != nil {
		var id struct {
			ID uint64 `json:"id"`
		}
		_ = json.Unmarshal(message, &id)
		return request{ID: id.ID}, fmt.Errorf("this is no request: %s", unreadable(err))
	}
	return request(r), nil
}

func (jsonLines) data(raw []byte, into any) error { return json.Unmarshal(raw, into, strict) }

func (jsonLines) append(b []byte, r *response) ([]byte, error) {
	if i, ok := r.data.(*node.Item); ok && r.err == nil && !r.more && i.Error == nil {
		return appendItemLine(b, r.id, i)
	}
	text, err := json.Marshal(jsonResponse{r.id, r.data, r.err, r.more}, legacyEmpty)
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}
