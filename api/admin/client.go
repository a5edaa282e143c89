package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Client talks to a controller's admin API. It is safe for concurrent use.
type Client struct {
	base  string // the URL that all request paths are appended to
	where string // the controller's address, for error messages
	token string // path of the file with the token; empty if there is none
	// sockets reports whether one of the addresses is a Unix socket, which needs no token.
	sockets bool
	http    *http.Client
}

// Option configures a Client.
type Option func(*Client)

// TokenFile makes a Client send the token in a file. The Client reads the file again for each
// request. An empty path means that there is no token. Unix sockets need no token, so the file must
// exist only for other addresses.
func TokenFile(path string) Option { return func(c *Client) { c.token = path } }

// Through makes a Client send its requests through another transport.
func Through(t http.RoundTripper) Option { return func(c *Client) { c.http.Transport = t } }

// NewClient makes a client for the controller at an address. The address is unix:///PATH,
// "host:port" or a URL; only Unix sockets work without a token. An empty address means
// DefaultSocket. Of several addresses, separated by commas, the client uses the first that accepts
// a connection. NewClient does not connect yet. A request ends with its context; the client sets no
// timeout of its own.
func NewClient(address string, options ...Option) *Client {
	if address == "" {
		address = DefaultSocket()
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	c := &Client{http: &http.Client{Transport: transport}}
	if strings.HasPrefix(address, "unix://") || strings.Contains(address, ",") {
		c.base, c.where = "http://localhost", address
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, strings.Split(address, ","))
		}
	} else {
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		c.base = strings.TrimRight(address, "/")
		c.where = c.base
	}
	for _, o := range options {
		o(c)
	}
	sockets := strings.Count(address, "unix://")
	c.sockets = sockets > 0
	if sockets == strings.Count(address, ",")+1 {
		c.token = "" // on a socket the kernel identifies the caller
	}
	return c
}

// dial connects to the first of several addresses that accepts a connection.
func dial(ctx context.Context, addresses []string) (_ net.Conn, err error) {
	for _, a := range addresses {
		network, to := "tcp", strings.TrimSuffix(strings.TrimPrefix(a, "http://"), "/")
		if path, ok := strings.CutPrefix(a, "unix://"); ok {
			network, to = "unix", path
		}
		c, failed := new(net.Dialer).DialContext(ctx, network, to)
		if failed == nil {
			return c, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	if c.token != "" {
		b, err := os.ReadFile(c.token)
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b)))
		} else if !c.sockets { // without a token, the client can still use a socket among its addresses
			return nil, fmt.Errorf("the token for the controller: %w", err)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return resp, nil
}

// PageLink requests a one-time login link for the controller's web page.
func (c *Client) PageLink(ctx context.Context) (*PageLink, error) {
	out := new(PageLink)
	return out, c.do(ctx, http.MethodPost, "/v1/page", nil, out)
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Chains lists the chains, ordered by id.
func (c *Client) Chains(ctx context.Context) ([]Chain, error) {
	var out []Chain
	return out, c.do(ctx, http.MethodGet, "/v1/chains", nil, &out)
}

// Chain returns the state of one chain, by name or decimal id.
func (c *Client) Chain(ctx context.Context, chain string) (*Chain, error) {
	out := new(Chain)
	return out, c.do(ctx, http.MethodGet, "/v1/chains/"+segment(chain), nil, out)
}

// ChangeChain changes a running chain, and returns its state afterwards.
func (c *Client) ChangeChain(ctx context.Context, chain string, change ChainChange) (*Chain, error) {
	out := new(Chain)
	return out, c.do(ctx, http.MethodPut, "/v1/chains/"+segment(chain), change, out)
}

// Recover adds a switch to a chain as its new tail, and returns the chain's state afterwards.
func (c *Client) Recover(ctx context.Context, chain, sw string) (*Chain, error) {
	out := new(Chain)
	return out, c.do(ctx, http.MethodPost, "/v1/chains/"+segment(chain)+"/recover", Recovery{sw}, out)
}

// MoveKey moves a key, given by name or KEY_ID, from one chain to another. It returns the key as it
// is in the new chain, with its new KEY_ID.
func (c *Client) MoveKey(ctx context.Context, chain, key, to string) (*Key, error) {
	out := new(Key)
	return out, c.do(ctx, http.MethodPost, "/v1/chains/"+segment(chain)+"/keys/"+segment(key)+"/move", Move{to}, out)
}

// Keys lists the keys of a chain, ordered by name.
func (c *Client) Keys(ctx context.Context, chain string) ([]Key, error) {
	var out []Key
	return out, c.do(ctx, http.MethodGet, "/v1/chains/"+segment(chain)+"/keys", nil, &out)
}

// AddKey places a key and writes its first value, or a tombstone if the key has no value. It
// returns when every member of the chain has committed this write.
func (c *Client) AddKey(ctx context.Context, chain string, key KeySpec) (*Key, error) {
	out := new(Key)
	return out, c.do(ctx, http.MethodPost, "/v1/chains/"+segment(chain)+"/keys", key, out)
}

// AddKeys places many keys at once. The answers are in the order of the specs. If a key cannot be
// placed, its answer has Error set, and the other keys are still placed.
func (c *Client) AddKeys(ctx context.Context, chain string, keys []KeySpec) ([]Key, error) {
	var out []Key
	if keys == nil {
		keys = []KeySpec{}
	}
	return out, c.do(ctx, http.MethodPost, "/v1/chains/"+segment(chain)+"/keys", keys, &out)
}

// RemoveKey deletes a key's value through the chain and takes the key out of the network. key is
// its name or KEY_ID (decimal, or hexadecimal with 0x).
func (c *Client) RemoveKey(ctx context.Context, chain, key string) error {
	return c.do(ctx, http.MethodDelete, "/v1/chains/"+segment(chain)+"/keys/"+segment(key), nil, nil)
}

// Directory lists the placed keys of all chains whose names start with prefix, sorted by name. With
// state, it also fetches what each member holds.
func (c *Client) Directory(ctx context.Context, prefix string, state bool) ([]Key, error) {
	q := url.Values{"prefix": {prefix}}
	if state {
		q.Set("state", "1")
	}
	var out []Key
	return out, c.do(ctx, http.MethodGet, "/v1/keys?"+q.Encode(), nil, &out)
}

// DirectoryPage lists at most limit of the keys that Directory lists. It begins with the first name
// that sorts after the given name. The result `more` is true if further names may follow.
func (c *Client) DirectoryPage(ctx context.Context, prefix, after string, limit int) (keys []Key, more bool,
	err error) {
	q := url.Values{"prefix": {prefix}, "after": {after}, "limit": {strconv.Itoa(limit)}}
	if err := c.do(ctx, http.MethodGet, "/v1/keys?"+q.Encode(), nil, &keys); err != nil {
		return nil, false, err
	}
	keys = PageOf(keys, after, limit) // a controller that does not support pages returns all keys
	return keys, len(keys) == limit, nil
}

// PageOf returns at most limit of the keys, which must be sorted by name. The page begins with the
// first name that sorts after the given name.
func PageOf(keys []Key, after string, limit int) []Key {
	byName := func(k Key, name string) int { return strings.Compare(k.Name, name) }
	from, found := slices.BinarySearchFunc(keys, after, byName)
	if found {
		from++
	}
	return keys[from:min(len(keys), from+limit)]
}

// Lookup finds one placed key by its exact name. If the key is not placed, errors.Is(err,
// &Error{Code: CodeNotFound}) holds.
func (c *Client) Lookup(ctx context.Context, name string) (*Key, error) {
	out := new(Key)
	return out, c.do(ctx, http.MethodGet, "/v1/keys/"+segment(name), nil, out)
}

// RequestKey places a key in the chain with the most room. If the name is already placed, it
// returns the existing key, with Created false, so it is safe to call it again.
func (c *Client) RequestKey(ctx context.Context, r KeyRequest) (*RequestedKey, error) {
	out := new(RequestedKey)
	return out, c.do(ctx, http.MethodPost, "/v1/keys", r, out)
}

// RemoveUnused removes a key without a value from the network, if the version of the key's name
// still equals version. Version 0 means that the key was added without a value and never written.
// If the version differs, the error is CodeFailedPrecondition, and no written value is lost.
func (c *Client) RemoveUnused(ctx context.Context, name string, version uint64) error {
	q := url.Values{"version": {strconv.FormatUint(version, 10)}}
	return c.do(ctx, http.MethodDelete, "/v1/keys/"+segment(name)+"?"+q.Encode(), nil, nil)
}

// Switches lists the switches, ordered by name.
func (c *Client) Switches(ctx context.Context) ([]Switch, error) {
	var out []Switch
	return out, c.do(ctx, http.MethodGet, "/v1/switches", nil, &out)
}

// Counters reads one switch's counters over P4Runtime.
func (c *Client) Counters(ctx context.Context, sw string) (*Counters, error) {
	out := new(Counters)
	return out, c.do(ctx, http.MethodGet, "/v1/switches/"+segment(sw)+"/counters", nil, out)
}

// ChainCounters returns a switch's Counters with the sums for each chain instead of the slots.
func (c *Client) ChainCounters(ctx context.Context, sw string) (*Counters, error) {
	out := new(Counters)
	return out, c.do(ctx, http.MethodGet, "/v1/switches/"+segment(sw)+"/counters?slots=0", nil, out)
}

// NewSessions leases session ids.
func (c *Client) NewSessions(ctx context.Context, r SessionsRequest) (*Sessions, error) {
	out := new(Sessions)
	return out, c.do(ctx, http.MethodPost, "/v1/sessions", r, out)
}

// KeepSessions renews a lease on sessions for another TTL.
func (c *Client) KeepSessions(ctx context.Context, lease string) (*Sessions, error) {
	out := new(Sessions)
	return out, c.do(ctx, http.MethodPut, "/v1/sessions/"+segment(lease), nil, out)
}

// CloseSessions releases a lease on sessions. The caller must not send requests of these sessions
// afterwards.
func (c *Client) CloseSessions(ctx context.Context, lease string) error {
	return c.do(ctx, http.MethodDelete, "/v1/sessions/"+segment(lease), nil, nil)
}

// Watch makes the switches notify a server when keys are committed.
func (c *Client) Watch(ctx context.Context, r WatchRequest) (*Watch, error) {
	out := new(Watch)
	return out, c.do(ctx, http.MethodPut, "/v1/watches", r, out)
}

// Events calls f with each event whose number is greater than `since`. If `since` is 0, it begins
// with the oldest event that the controller still has. If follow is true, it continues with new
// events until ctx ends or f fails. It returns f's error, or the reason why the stream broke. If
// follow is false, it returns nil at the end of the history.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, f func(Event) error) error {
	q := url.Values{"since": {strconv.FormatUint(since, 10)}}
	if !follow {
		q.Set("follow", "0")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/events?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return failure(resp)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		data, ok := strings.CutPrefix(scan.Text(), "data:")
		if !ok { // the other lines (id:, event:, comments, blank) only repeat what the data line has
			continue
		}
		var e Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("reading an event from the controller: %w", err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("the controller's event stream broke: %w", err)
	}
	if follow && ctx.Err() == nil {
		return errors.New("the controller ended the event stream (is it shutting down?)")
	}
	return ctx.Err()
}

// Ready returns nil if every chain serves, and otherwise an *Error with CodeUnavailable that says
// what is missing.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/readyz", nil, nil)
}

// do sends `in` as JSON, or no body if `in` is nil. It decodes the answer into `out`, or drops the
// answer if `out` is nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request to the controller: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.send(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return failure(resp)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("reading the controller's answer to %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) unreachable(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("cannot reach the controller at %s: %w (is it running, and is this one of its --admin addresses?)", c.where, err)
}

// failure returns the error that a response reports.
func failure(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var e errorBody
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	// the answer is not from a NetCRAQ controller, or a proxy has replaced it
	if err != nil || e.Error == nil || e.Error.Code == "" {
		return &Error{Status: resp.StatusCode, Code: CodeInternal, Message: fmt.Sprintf("%s: %s",
			resp.Status, strings.TrimSpace(string(b)))}
	}
	e.Error.Status = resp.StatusCode
	return e.Error
}

// segment escapes s as one segment of a path, including slashes. It also escapes dots, because "."
// and ".." would be removed from paths.
func segment(s string) string {
	return strings.ReplaceAll(url.PathEscape(s), ".", "%2E")
}
