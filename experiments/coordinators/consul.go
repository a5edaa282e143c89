package coordinators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// consulClient uses Consul over HTTP (session, acquire and release, blocking queries). It works
// like Consul's own Go client, which is not a dependency of the project.
type consulClient struct {
	http    *http.Client
	address string
	session string
	stop    context.CancelFunc // stops the renewals of the session
}

// pair is a key-value pair in Consul's answers.
type pair struct {
	Value   []byte
	Session string
}

func openConsul(ctx context.Context, address string) (Client, error) {
	c := &consulClient{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}},
		address: strings.TrimSuffix(address, "/")}
	var made struct{ ID string }
	body := fmt.Sprintf(`{"TTL":"%ds","LockDelay":"0s"}`, TTL/time.Second)
	if _, err := c.ask(ctx, http.MethodPut, "session/create", nil, body, &made); err != nil {
		return nil, err
	}
	c.session = made.ID
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for {
			select {
			case <-time.After(TTL / 2):
				// A failed renewal is retried. If the session expires, the next lock fails.
				_, _ = c.ask(ctx, http.MethodPut, "session/renew/"+c.session, nil, "", nil)
			case <-ctx.Done():
				return
			}
		}
	}()
	return c, nil
}

// ask makes a request, and returns the answer's index in Consul. A missing key is not an error.
func (c *consulClient) ask(ctx context.Context, method, path string, query url.Values, body string, answer any) (
	index string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.address+"/v1/"+path+"?"+query.Encode(), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}
	switch response.StatusCode {
	case http.StatusOK:
		if answer != nil {
			err = json.Unmarshal(text, answer)
		}
	case http.StatusNotFound:
	default:
		err = fmt.Errorf("consul: %s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(text))
	}
	return response.Header.Get("X-Consul-Index"), err
}

// read reads a key. If since is an index, it waits until the key has changed after that index.
func (c *consulClient) read(ctx context.Context, key, since string) (pair, string, error) {
	query := url.Values{}
	if since != "" {
		query.Set("index", since)
		query.Set("wait", "60s")
	}
	var found []pair
	index, err := c.ask(ctx, http.MethodGet, "kv/"+prefix+key, query, "", &found)
	if err != nil || len(found) == 0 {
		return pair{}, index, err
	}
	return found[0], index, nil
}

func (c *consulClient) Lock(ctx context.Context, name string) (func(context.Context) error, error) {
	since := ""
	for {
		// Consul's own client does the same: it checks whether the lock is held, and waits while it
		// is.
		held, index, err := c.read(ctx, name, since)
		if err != nil {
			return nil, err
		}
		since = index
		if held.Session != "" {
			continue
		}
		var mine bool
		query := url.Values{"acquire": {c.session}}
		if _, err := c.ask(ctx, http.MethodPut, "kv/"+prefix+name, query, "held", &mine); err != nil {
			return nil, err
		}
		if mine {
			break
		}
		since = "" // another client was faster, or the session has expired
		if err := c.alive(ctx); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		var released bool
		_, err := c.ask(ctx, http.MethodPut, "kv/"+prefix+name, url.Values{"release": {c.session}}, "", &released)
		if err == nil && !released {
			err = fmt.Errorf("consul: the lock %s was not held", name)
		}
		return err
	}, nil
}

func (c *consulClient) alive(ctx context.Context) error {
	var found []struct{ ID string }
	_, err := c.ask(ctx, http.MethodGet, "session/info/"+c.session, nil, "", &found)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("consul: the session %s has gone", c.session)
	}
	return err
}

func (c *consulClient) Put(ctx context.Context, key, value string) error {
	var done bool
	_, err := c.ask(ctx, http.MethodPut, "kv/"+prefix+key, nil, value, &done)
	if err == nil && !done {
		err = fmt.Errorf("consul: the key %s was not written", key)
	}
	return err
}

func (c *consulClient) Watch(ctx context.Context, key string, tell func(string), failed func(error)) error {
	_, since, err := c.read(ctx, key, "")
	if err != nil {
		return err
	}
	go func() {
		for {
			now, index, err := c.read(ctx, key, since)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				failed(err)
				return
			case index != since:
				tell(string(now.Value))
			}
			since = index
		}
	}()
	return nil
}

func (*consulClient) Name() string { return "Consul's HTTP API, as its Go client uses it" }

func (c *consulClient) Close() error {
	c.stop()
	ctx, cancel := context.WithTimeout(context.Background(), TTL)
	defer cancel()
	_, err := c.ask(ctx, http.MethodPut, "session/destroy/"+c.session, nil, "", nil)
	c.http.CloseIdleConnections()
	return err
}
