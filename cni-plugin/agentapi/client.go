package agentapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// ErrNotThere means that no agent listens on the socket. Errors of a Client wrap it.
var ErrNotThere = errors.New("the node agent (netcraq-agent) does not answer")

// Client calls an agent.
type Client struct {
	socket string
	http   http.Client
}

// requestTimeout is the timeout of a call. It may be long, because runtimes wait for plugins for
// minutes.
const requestTimeout = 60 * time.Second

// NewClient makes a client of the agent at a socket.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Timeout = requestTimeout
	c.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _,
		_ string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("%w at %s: %w", ErrNotThere, socket, err)
		}
		return conn, nil
	}}
	return c
}

// Attach gives a container an interface.
func (c *Client) Attach(ctx context.Context, r *Attach) (*Attached, error) {
	return call[Attached](ctx, c, "attach", r)
}

// Chain makes an interface that another plugin made a port of the switch.
func (c *Client) Chain(ctx context.Context, r *Chain) error {
	_, err := call[struct{}](ctx, c, "chain", r)
	return err
}

// Detach removes an attachment that Attach or Chain has made.
func (c *Client) Detach(ctx context.Context, a Attachment) error {
	_, err := call[struct{}](ctx, c, "detach", a)
	return err
}

// Check reports differences between an attachment and the state in which it was made.
func (c *Client) Check(ctx context.Context, r *Check) error {
	_, err := call[struct{}](ctx, c, "check", r)
	return err
}

// Collect removes stale attachments.
func (c *Client) Collect(ctx context.Context, r *Collect) (*Collected, error) {
	return call[Collected](ctx, c, "gc", r)
}

// Status asks whether the agent is ready.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call[Status](ctx, c, "status", nil)
}

// Attachments lists the attachments.
func (c *Client) Attachments(ctx context.Context) ([]Record, error) {
	r, err := call[[]Record](ctx, c, "attachments", nil)
	if err != nil {
		return nil, err
	}
	return *r, nil
}

// call makes one request. It is a POST if there is a body, and otherwise a GET. If the agent
// returned an error, call returns it as an *Error.
func call[T any](ctx context.Context, c *Client, what string, body any) (*T, error) {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("writing the request: %w", err)
		}
		method, content = http.MethodPost, bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/v"+strconv.Itoa(Version)+"/"+what, content)
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the node agent to %s: %w", what, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("the node agent's answer to %s: %w", what, err)
	}
	if resp.StatusCode == http.StatusNotFound {
		return nil, Errorf(CodeWrongProtocolVersion, "the node agent does not speak version %d of the protocol: install the netcraq-cni that came with it", Version)
	}
	if resp.StatusCode >= 400 {
		e := &Error{}
		if json.Unmarshal(answer, e) != nil || e.Message == "" {
			e = Errorf(CodeFailed, "the node agent says %s: %s", resp.Status, answer)
		}
		return nil, e
	}
	v := new(T)
	if err := json.Unmarshal(answer, v); err != nil {
		return nil, fmt.Errorf("the node agent's answer to %s: %w", what, err)
	}
	return v, nil
}
