package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// compact is a minimal connection in the compact framing. A load encodes its requests once, and
// sends them repeatedly.
type compact struct {
	net.Conn
	in *bufio.Reader
}

// request is a request in the compact framing (docs/node-api.md).
type request struct {
	_       struct{} `cbor:",toarray"`
	ID      uint64
	Func    string
	Data    any
	Timeout int
	Once    uint64
	Done    uint64
}

type response struct {
	_     struct{} `cbor:",toarray"`
	ID    uint64
	Data  cbor.RawMessage
	Error *nodeapi.Error
	More  bool
}

// dialCompact connects to a node server's socket.
func dialCompact(ctx context.Context, socket string) (*compact, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(nc, nodeapi.Preface); err != nil {
		nc.Close()
		return nil, err
	}
	return &compact{nc, bufio.NewReaderSize(nc, nodeapi.MaxMessage)}, nil
}

// endWith closes the connection when ctx ends.
func (c *compact) endWith(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// encode encodes a request as a message.
func encode(r request) ([]byte, error) {
	body, err := cbor.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(body)+4 > nodeapi.MaxMessage {
		return nil, fmt.Errorf("a message of %d bytes", len(body))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// answer reads an answer to one of several requests, which have the ids 1 to asked. It returns the
// request's index (which), which starts at 0.
func (c *compact) answer(data any, asked int) (which int, err error) {
	head, err := c.in.Peek(4)
	if err != nil {
		return 0, err
	}
	size := 4 + int(binary.BigEndian.Uint32(head))
	message, err := c.in.Peek(size)
	if err != nil {
		return 0, err
	}
	var r response
	if err := cbor.Unmarshal(message[4:], &r); err != nil {
		return 0, err
	}
	_, _ = c.in.Discard(size)
	switch {
	case r.Error != nil:
		return 0, r.Error
	case r.ID < 1 || r.ID > uint64(asked):
		return 0, fmt.Errorf("an answer to %d, which was not asked", r.ID)
	}
	return int(r.ID) - 1, cbor.Unmarshal(r.Data, data)
}
