package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/netcraq/netcraq/internal/streamload"
)

// consumer reads some partitions through one of JetStream's interfaces, and does some work for each
// record.
type consumer struct {
	streamload.Meter
	url, name  string
	partitions []int
	way, work  string
	batch      int

	mu sync.Mutex // serializes the work
	do func(record []byte, at time.Time)
}

// reader reads the stream of one partition.
type reader struct {
	*consumer
	before  uint64 // sequence of the last message that was acknowledged
	records uint64 // number of records since the last acknowledgement
	bytes   int
}

func (c *consumer) run(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	if c.do, err = c.Work(c.work); err != nil {
		return err
	}
	nc, j, err := dial(c.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	var reads []func(context.Context) error // a function that reads, for each partition
	for _, n := range c.partitions {
		read, err := c.open(ctx, nc, j, n)
		if err != nil {
			return err
		}
		reads = append(reads, read)
	}
	return c.Serve(ctx, in, out, func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx)
		for _, read := range reads {
			all.Go(func() error { return read(ctx) })
		}
		return all.Wait()
	})
}

// open creates a consumer for a partition in JetStream. From now on JetStream keeps the messages
// that the consumer has not read. Acknowledging a message also acknowledges all messages before it,
// as releasing an object does in our streams.
func (c *consumer) open(ctx context.Context, nc *nats.Conn, j js.JetStream, n int) (
	func(context.Context) error, error) {
	cfg := js.ConsumerConfig{Durable: c.name, AckPolicy: js.AckAllPolicy, MaxAckPending: -1, MemoryStorage: true}
	r := &reader{consumer: c}
	if c.way == "push" {
		cfg.DeliverSubject, cfg.FlowControl, cfg.IdleHeartbeat = nc.NewInbox(), true, 5*time.Second
		at, err := j.CreatePushConsumer(ctx, streamName(n), cfg)
		return func(ctx context.Context) error { return r.pushed(ctx, at) }, err
	}
	how := map[string]func(context.Context, js.Consumer) error{"messages": r.messages, "fetch": r.fetch}[c.way]
	if how == nil {
		return nil, fmt.Errorf("there is no way %q", c.way)
	}
	at, err := j.CreateConsumer(ctx, streamName(n), cfg)
	return func(ctx context.Context) error { return how(ctx, at) }, err
}

// ahead is the number of messages that are requested at once. A limit in bytes is not used, because
// then the client may stall until its request expires, and report a missing heartbeat.
const ahead = 1024

// messages reads with an iterator. The client requests more messages before it has used up the
// previous messages.
func (r *reader) messages(ctx context.Context, at js.Consumer) error {
	// with this option the client reports no missing heartbeats, because it repeats its requests
	all, err := at.Messages(js.PullMaxMessages(ahead), js.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return err
	}
	defer all.Stop()
	for {
		m, err := all.Next(js.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := r.take(m); err != nil {
			return err
		}
	}
}

// fetched is the number of messages that are fetched at once. FetchBytes is not used, because the
// client would allocate space for a million messages.
const fetched = 1024

// fetch requests one batch of messages after the other. Messages arrive as soon as they are
// available, even before a batch is full.
func (r *reader) fetch(ctx context.Context, at js.Consumer) error {
	for ctx.Err() == nil {
		batch, err := at.Fetch(fetched, js.FetchMaxWait(time.Second))
		if err != nil {
			return err
		}
		for m := range batch.Messages() {
			if err := r.take(m); err != nil {
				return err
			}
		}
		if err := batch.Error(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// pushed receives messages that JetStream pushes at its own pace, with its flow control.
func (r *reader) pushed(ctx context.Context, at js.PushConsumer) error {
	failed := make(chan error, 1)
	handling, err := at.Consume(func(m js.Msg) {
		if err := r.take(m); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer handling.Stop()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take processes a message. If enough messages have come since the last acknowledgement, it
// acknowledges them.
func (r *reader) take(m js.Msg) error {
	data, at := m.Data(), time.Time{}
	if r.work == "windows" {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		at = meta.Timestamp
	}
	r.mu.Lock()
	r.do(data, at)
	r.mu.Unlock()
	r.Add(1, uint64(len(data)), 0)
	r.records++
	if r.bytes += len(data); r.bytes < r.batch {
		return nil
	}
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if were := meta.Sequence.Stream - r.before; were > r.records {
		r.Add(0, 0, were-r.records)
	}
	r.before, r.records, r.bytes = meta.Sequence.Stream, 0, 0
	return m.Ack()
}
