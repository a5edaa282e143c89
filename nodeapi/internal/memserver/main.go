// Command memserver is the node API's server over a store in memory. Only tests of client libraries
// use it, because its keys are lost when it ends, and every caller may do everything.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "memserver:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "`PATH` of a Unix socket to listen on")
	listen := flag.String("listen", "", "tcp://`HOST:PORT` to listen on; port 0 chooses one, which is printed")
	maxValue := flag.Int("max-value", 1024, "bytes of a value")
	namespace := flag.String("namespace", "default", "of callers who name none")
	kept := flag.String("streams", "", "`DIR` for streams that are to survive the process")
	grace := flag.Duration("grace", 2*time.Second, "time that clients have to finish after SIGTERM")
	flag.Parse()
	s := server.New(server.Config{Store: store.NewMemory(*maxValue + cell.Plain.Overhead()), Name: "memserver", Node: "memory",
		Namespace: *namespace, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Streams: &broker.Options{Dir: *kept}})
	ended := make(chan error, 2)
	serve := func(network, address string) error {
		l, err := net.Listen(network, address)
		if err == nil {
			fmt.Println("on", network, l.Addr())
			go func() { ended <- s.Serve(l) }()
		}
		return err
	}
	if *socket == "" && *listen == "" {
		return fmt.Errorf("give --socket, --listen or both")
	}
	if *socket != "" {
		if err := serve("unix", *socket); err != nil {
			return err
		}
	}
	if *listen != "" {
		address, ok := strings.CutPrefix(*listen, "tcp://")
		if !ok {
			return fmt.Errorf("--listen %s: want tcp://HOST:PORT", *listen)
		}
		if err := serve("tcp", address); err != nil {
			return err
		}
	}
	fmt.Println("listening")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), *grace)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
