package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/streamload"
)

// consumer reads some partitions in one of several ways, and does its work on the records.
type consumer struct {
	streamload.Meter
	socket, stream, name string
	partitions           []int
	way, work            string
	batch                int
}

func (c *consumer) run(ctx context.Context, in io.Reader, out io.Writer) error {
	do, err := c.Work(c.work)
	if err != nil {
		return err
	}
	if c.way == "compact" {
		return c.pullCompact(ctx, in, out, do)
	}
	if c.way != "push" && c.way != "pull" {
		return fmt.Errorf("there is no way %q", c.way)
	}
	r, err := streams.Open(ctx, streams.Config{Socket: c.socket, Stream: c.stream, Consumer: c.name,
		Partitions: c.partitions, Pull: c.way == "pull", BatchBytes: c.batch})
	if err != nil {
		return err
	}
	defer r.Close()
	return c.Serve(ctx, in, out, func(ctx context.Context) error {
		for {
			b, err := r.Next(ctx)
			if err != nil {
				return err
			}
			size := 0
			for _, record := range b.Records() {
				do(record.Data, record.Time)
				size += len(record.Data)
			}
			if err := b.Release(); errors.Is(err, streams.ErrOverrun) {
				continue // the next batch counts these records as missed
			} else if err != nil {
				return err
			}
			c.Add(uint64(b.Len()), uint64(size), b.Missed)
		}
	})
}

// pullCompact reads records in the compact framing. It reaches the rate that an optimized library
// could reach by pull.
func (c *consumer) pullCompact(ctx context.Context, in io.Reader, out io.Writer, do func([]byte, time.Time)) error {
	nc, err := dialCompact(ctx, c.socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	next := make([]*uint64, len(c.partitions))
	ask := func(i int) error {
		d := nodeapi.ReadData{StreamData: nodeapi.StreamData{Stream: c.stream}, Partition: c.partitions[i],
			Offset:   next[i],
			Consumer: c.name, MaxBytes: c.batch, WaitMillis: 10_000}
		m, err := encode(request{ID: uint64(i + 1), Func: nodeapi.FuncRead, Data: d, Timeout: appendTimeout})
		if err == nil {
			_, err = nc.Write(m)
		}
		return err
	}
	for i := range c.partitions { // from here on, the broker keeps the unread records of these partitions
		d := nodeapi.ReadData{StreamData: nodeapi.StreamData{Stream: c.stream}, Partition: c.partitions[i],
			Consumer:   c.name,
			MaxRecords: 1}
		m, err := encode(request{ID: uint64(i + 1), Func: nodeapi.FuncRead, Data: d})
		if err != nil {
			return err
		}
		if _, err := nc.Write(m); err != nil {
			return err
		}
		var a nodeapi.ReadAnswer
		if _, err := nc.answer(&a, len(next)); err != nil {
			return err
		}
		next[i] = &a.Offset
	}
	return c.Serve(ctx, in, out, func(ctx context.Context) error {
		nc.endWith(ctx)
		for i := range c.partitions {
			if err := ask(i); err != nil {
				return err
			}
		}
		for ctx.Err() == nil {
			var a nodeapi.ReadAnswer
			i, err := nc.answer(&a, len(next))
			if err != nil {
				return err
			}
			size := 0
			for _, r := range a.Records {
				value := r.ValueBase64
				if r.Value != nil {
					value = []byte(*r.Value)
				}
				do(value, time.UnixMicro(r.Time))
				size += len(value)
			}
			next[i] = &a.Next
			c.Add(uint64(len(a.Records)), uint64(size), a.Missed)
			if err := ask(i); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}
