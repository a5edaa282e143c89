package main

import (
	"context"
	"errors"
	"io"
	"time"

	js "github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/netcraq/netcraq/internal/streamload"
)

// producer publishes records to some partitions, one chunk after another in each partition. It
// sends all records of a chunk at once, each as one message, and waits until JetStream has
// acknowledged them. It publishes messages again that a full stream has refused, and counts them as
// missed.
type producer struct {
	streamload.Meter
	url           string
	partitions    []int
	chunk, record int
}

// variants is the number of different chunks for a partition. The producer uses them in turn.
const variants = 8

// pause is how long the producer waits after a refusal.
const pause = time.Millisecond

// full is JetStream's error code for a full stream. JetStream uses the same code whenever it could
// not store a message.
const full = 10077

func (p *producer) run(ctx context.Context, in io.Reader, out io.Writer) error {
	nc, j, err := dial(p.url)
	if err != nil {
		return err
	}
	defer nc.Close()
	records := max(1, p.chunk/p.record)
	chunks := make([][variants][][]byte, len(p.partitions))
	for i, n := range p.partitions {
		for v := range variants {
			chunks[i][v] = streamload.Texts(records, p.record, uint64(n*variants+v))
		}
	}
	return p.Serve(ctx, in, out, func(ctx context.Context) error {
		all, ctx := errgroup.WithContext(ctx)
		for i, n := range p.partitions {
			all.Go(func() error {
				for turn := 0; ctx.Err() == nil; turn = (turn + 1) % variants {
					if err := p.publish(ctx, j, subject(n), chunks[i][turn]); err != nil {
						return err
					}
				}
				return ctx.Err()
			})
		}
		return all.Wait()
	})
}

// publish publishes records until JetStream has acknowledged all of them.
func (p *producer) publish(ctx context.Context, j js.JetStream, subject string, records [][]byte) error {
	for {
		futures := make([]js.PubAckFuture, len(records))
		for i, r := range records {
			f, err := j.PublishAsync(subject, r)
			if err != nil {
				return err
			}
			futures[i] = f
		}
		var refused [][]byte
		for i, f := range futures {
			select {
			case <-f.Ok():
				p.Add(1, uint64(len(records[i])), 0)
			case err := <-f.Err():
				var why *js.APIError
				if !errors.As(err, &why) || why.ErrorCode != full {
					return err
				}
				refused = append(refused, records[i])
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(refused) == 0 {
			return nil
		}
		p.Add(0, 0, uint64(len(refused)))
		records = refused
		time.Sleep(pause)
	}
}
