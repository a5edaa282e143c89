package streamsarrow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/streams/internal/passing"
)

// connection is a connection to the node's server. It is used for requests about files. The node
// holds the file of a request until the connection ends or the request is canceled.
type connection struct {
	nc *net.UnixConn

	mu   sync.Mutex
	last uint64
	// the callers that wait for a first answer, by the number of the request
	waiting map[uint64]chan answer
	err     error // why the connection has ended
}

// answer is the first answer to a request.
type answer struct {
	data json.RawMessage
	fds  []int // file descriptors, which the receiver must close
	err  error
}

// maxAnswer bounds the size of the server's answer, which takes some hundred bytes to describe a
// file. maxDescriptors bounds the number of file descriptors that come with an answer.
const (
	maxAnswer      = 1 << 20
	maxDescriptors = 8
)

func connect(ctx context.Context, socket string) (*connection, error) {
	nc, err := passing.Dial(ctx, socket, "")
	if err != nil {
		return nil, err
	}
	c := &connection{nc: nc, waiting: map[uint64]chan answer{}}
	go c.listen()
	return c, nil
}

// ask sends a request, and returns its number and its first answer.
func (c *connection) ask(ctx context.Context, function string, data any) (uint64, answer, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return 0, answer{}, err
	}
	got := make(chan answer, 1)
	c.mu.Lock()
	if err := c.err; err != nil {
		c.mu.Unlock()
		return 0, answer{}, err
	}
	c.last++
	id := c.last
	c.waiting[id] = got
	err = c.send(id, function, text)
	c.mu.Unlock()
	if err != nil {
		c.end(err)
	}
	select {
	case a := <-got:
		return id, a, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	_, waits := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if !waits { // the answer has just arrived
		passing.Close((<-got).fds)
	}
	c.cancel(id)
	return 0, answer{}, ctx.Err()
}

// sendTime bounds how long a send waits while the server reads nothing.
const sendTime = 30 * time.Second

// send sends a request. The caller holds c.mu.
func (c *connection) send(id uint64, function string, data []byte) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(sendTime))
	_, err := fmt.Fprintf(c.nc, `{"id":%d,"func":"%s","data":%s}`+"\n", id, function, data)
	return err
}

// cancel ends a request, so that the node releases what the request holds. It does not wait for the
// server's answer.
func (c *connection) cancel(id uint64) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.last++
	err := c.send(c.last, nodeapi.FuncCancel, fmt.Appendf(nil, `{"id":%d}`, id))
	c.mu.Unlock()
	if err != nil {
		c.end(err)
	}
}

// ended reports whether the connection has ended.
func (c *connection) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// end ends the connection with an error, which waiting callers get.
func (c *connection) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = nodeapi.Errorf(nodeapi.CodeUnavailable, "try again", "the connection to the node's server has ended: %v", why)
	}
	c.nc.Close()
	for id, w := range c.waiting {
		delete(c.waiting, id)
		w <- answer{err: c.err}
	}
}

// listen reads answers until the connection ends.
func (c *connection) listen() {
	var in []byte
	var fds []int
	buf := make([]byte, 64<<10)
	rights := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	for {
		n, m, _, _, err := c.nc.ReadMsgUnix(buf, rights)
		fds = append(fds, passing.Descriptors(rights[:max(m, 0)])...)
		in = append(in, buf[:max(n, 0)]...)
		for err == nil {
			line, rest, ok := bytes.Cut(in, []byte("\n"))
			if !ok {
				break
			}
			fds, err = c.deliver(line, fds)
			in = append(in[:0], rest...)
		}
		if err == nil && (n == 0 || len(in) > maxAnswer || len(fds) > maxDescriptors) {
			err = errors.New("the server has ended it")
		}
		if err != nil {
			passing.Close(fds)
			c.end(err)
			return
		}
	}
}

// deliver passes an answer, with its file descriptors, to the caller that waits for it. It drops
// further answers to the same request.
func (c *connection) deliver(line []byte, fds []int) ([]int, error) {
	var a struct {
		ID    uint64          `json:"id"`
		Data  json.RawMessage `json:"data"`
		Error *nodeapi.Error  `json:"error"`
	}
	var told struct {
		Descriptors int `json:"descriptors"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return fds, err
	}
	if len(a.Data) > 0 {
		_ = json.Unmarshal(a.Data, &told) // an answer without descriptors need not be a JSON object
	}
	if told.Descriptors < 0 || told.Descriptors > len(fds) {
		return fds, errors.New("what answers is no node server that passes memory")
	}
	of := answer{data: a.Data, fds: fds[:told.Descriptors:told.Descriptors]}
	if a.Error != nil {
		of.err = a.Error
	}
	c.mu.Lock()
	w := c.waiting[a.ID]
	delete(c.waiting, a.ID)
	c.mu.Unlock()
	if w == nil {
		passing.Close(of.fds)
	} else {
		w <- of
	}
	return fds[told.Descriptors:], nil
}
