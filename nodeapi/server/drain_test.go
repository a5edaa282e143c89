package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestDrain checks that a server that shuts down notifies the clients that asked for it. It must
// continue to serve until the clients have disconnected, and must not accept new connections.
func TestDrain(t *testing.T) {
	s, path := start(t, Config{})
	told, untold := dial(t, path), dial(t, path)
	told.send(`{"id":1,"func":"hello","data":{"drainNotice":true}}`)
	told.receive()
	untold.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`)
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	told.expect(`{"id":0,"data":{"draining":true}}`)
	for _, l := range []*line{told, untold} {
		l.ask(`{"id":2,"func":"get","data":{"key":"k"}}`, `{"id":2,"data":{"key":"k","found":false,"version":"0.0"}}`)
	}
	untold.send(`{"id":3,"func":"hello"}`)
	untold.expectPart(`"draining":true`)
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		t.Error("a connection is taken")
	}
	told.Close()
	select {
	case err := <-ended:
		t.Fatal("it has ended with a client", err)
	case <-time.After(20 * time.Millisecond):
	}
	untold.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("it does not end")
	}
}

// TestDrainLate checks what happens after the grace period. First, requests under way are completed
// and new requests are refused. Then watches end, and finally the connections.
func TestDrainLate(t *testing.T) {
	slow := &slowStore{Store: store.NewMemory(100), hold: make(chan struct{})}
	s, path := start(t, Config{Store: slow, Limits: Limits{Farewell: 500 * time.Millisecond}})
	l := dial(t, path)
	l.send(`{"id":1,"func":"get","data":{"key":"slow"}}`)
	l.ask(`{"id":2,"func":"watch","data":{"prefix":""}}`, `{"id":2,"data":{"started":true},"more":true}`)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	l.expect(`{"id":2,"error":{"code":"draining","message":"the server is shutting down","do":"connect again"}}`)
	l.ask(`{"id":3,"func":"get","data":{"key":"k"}}`,
		`{"id":3,"error":{"code":"draining","message":"the server is shutting down","do":"connect again"}}`)
	close(slow.hold)
	l.expect(`{"id":1,"data":{"key":"slow","found":false,"version":"0.0"}}`)
	l.expectEnd()
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
