package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

// serve serves the node API, with streams and an unused in-memory store.
func serve(ctx context.Context, socket, dir string, out io.Writer) error {
	l, err := server.Listen("unix://"+socket, server.Access{Mode: 0o600, GID: -1})
	if err != nil {
		return err
	}
	s := server.New(server.Config{Store: store.NewMemory(1024), Name: "netcraq-streams", Node: "bench",
		Namespace: "default", Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Streams: &broker.Options{Dir: dir, Limits: broker.Limits{Bytes: 1 << 30}}})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	fmt.Fprintln(out, "ready")
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Shutdown(ctx) // after the time limit, remaining connections are closed
	return s.Close()
}
