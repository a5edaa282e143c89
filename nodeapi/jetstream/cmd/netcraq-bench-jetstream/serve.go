package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
)

// server runs JetStream with a stream for each partition. Such a stream keeps messages until a
// consumer acknowledges them, and refuses further messages when it is full. So producers cannot be
// faster than consumers, as with our broker.
type server struct {
	dir, storage string
	partitions   int
	bytes        int64
}

func streamName(n int) string { return fmt.Sprintf("P%d", n) }

func subject(n int) string { return fmt.Sprintf("p.%d", n) }

func (s *server) run(ctx context.Context, out io.Writer) error {
	storage, ok := map[string]js.StorageType{"memory": js.MemoryStorage, "file": js.FileStorage}[s.storage]
	if !ok {
		return fmt.Errorf("there is no storage %q", s.storage)
	}
	password := rand.Text()
	n, err := nats.NewServer(&nats.Options{Host: "127.0.0.1", Port: nats.RANDOM_PORT, StoreDir: s.dir, JetStream: true,
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30, NoSigs: true, NoLog: true,
		Username: "bench", Password: password})
	if err != nil {
		return err
	}
	n.Start()
	defer func() {
		n.Shutdown()
		n.WaitForShutdown()
	}()
	if !n.ReadyForConnections(10 * time.Second) {
		return errors.New("the NATS server does not begin to serve")
	}
	nc, err := client.Connect("", client.InProcessServer(n), client.UserInfo("bench", password))
	if err != nil {
		return err
	}
	defer nc.Close()
	j, err := js.New(nc)
	if err != nil {
		return err
	}
	for p := range s.partitions {
		_, err := j.CreateStream(ctx, js.StreamConfig{Name: streamName(p), Subjects: []string{subject(p)},
			Storage: storage, Retention: js.InterestPolicy, Discard: js.DiscardNew, MaxBytes: s.bytes, Replicas: 1})
		if err != nil {
			return err
		}
	}
	where := url.URL{Scheme: "nats", User: url.UserPassword("bench", password), Host: n.Addr().String()}
	fmt.Fprintln(out, "ready", where.String())
	<-ctx.Done()
	return nil
}

// patient is how long a server on a busy machine may take to respond.
const patient = 30 * time.Second

// dial connects to the server.
func dial(url string) (*client.Conn, js.JetStream, error) {
	nc, err := client.Connect(url, client.Timeout(patient))
	if err != nil {
		return nil, nil, err
	}
	j, err := js.New(nc, js.WithPublishAsyncMaxPending(1<<16), js.WithDefaultTimeout(patient))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, j, nil
}
