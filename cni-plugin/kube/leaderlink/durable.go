package leaderlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/netcraq/netcraq/nodeapi/durable/door"
)

// Requests for durable keys use the same connection as requests to the controller, but in a
// separate stream:
//
//	agent: gRPC ── POST /v1/durable-keys ──▶ leader: door ──gRPC──▶ etcd-monitor

const (
	durablePath = "/v1/durable-keys"
	// durableAtOnce is the maximum number of streams for durable keys of one node. It is more than
	// one, because a new stream may begin before the previous one has ended.
	durableAtOnce = 2
)

// DialDurable connects an agent to the leader's door for durable keys.
func (l *Link) DialDurable(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	link := l.now
	l.mu.Unlock()
	if link == nil || link.Err() != nil {
		return nil, errNoLeader
	}
	lives, end := context.WithCancel(context.WithoutCancel(ctx))
	up, body := io.Pipe()
	r, err := http.NewRequestWithContext(lives, http.MethodPost, "http://controller"+durablePath, up)
	if err != nil {
		end()
		return nil, err
	}
	dialing := context.AfterFunc(ctx, end) // ctx bounds only the dialing, not the connection
	answer, err := link.RoundTrip(r)
	if err == nil && !dialing() {
		answer.Body.Close()
		err = ctx.Err()
	}
	if err == nil && answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		answer.Body.Close()
		err = fmt.Errorf("the agent that leads says %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	if err != nil {
		end()
		body.Close()
		return nil, err
	}
	here, there := net.Pipe()
	stop := sync.OnceFunc(func() {
		there.Close()
		body.Close()
		answer.Body.Close()
		end()
	})
	go func() {
		defer stop()
		_, _ = io.Copy(there, answer.Body)
	}()
	go func() {
		defer stop()
		_, _ = io.Copy(body, there)
	}()
	return here, nil
}

// serveDurable serves durable keys to a node's agent through a door. If d is nil, it only calls
// next.
func serveDurable(d *door.Door, node string, next http.Handler) http.Handler {
	if d == nil {
		return next
	}
	turns := make(chan struct{}, durableAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != durablePath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodPost {
			http.Error(w, "POST is the way", http.StatusMethodNotAllowed)
			return
		}
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, fmt.Sprintf("a node has %d of these at a time", durableAtOnce), http.StatusTooManyRequests)
			return
		}
		to := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		if to.Flush() != nil {
			return
		}
		here, there := net.Pipe()
		var copying sync.WaitGroup
		copying.Go(func() {
			defer there.Close()
			b := make([]byte, 32<<10)
			for {
				n, err := there.Read(b)
				if _, failed := w.Write(b[:n]); errors.Join(err, failed) != nil || to.Flush() != nil {
					return
				}
			}
		})
		go func() { // this goroutine ends with the request's body, which ends when the handler returns
			defer there.Close()
			_, _ = io.Copy(there, r.Body)
		}()
		d.Serve(r.Context(), node, here)
		here.Close()
		copying.Wait()
	})
}
