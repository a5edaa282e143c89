package main

import (
	"context"
	"fmt"
	"io"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/streamload"
)

// producer appends to some partitions. For each partition it sends requests one after the other,
// each with a chunk. The chunks are made beforehand, so that the measurement shows the broker and
// not the producer.
type producer struct {
	streamload.Meter
	socket, stream string
	partitions     []int
	chunk, record  int
}

// variants is the number of different chunks for a partition, which the producer sends in turn.
const variants = 8

// appendTimeout is the maximum time that the broker lets an append wait for consumers, in
// milliseconds.
const appendTimeout = 30_000

func (p *producer) run(ctx context.Context, in io.Reader, out io.Writer) error {
	c, err := dialCompact(ctx, p.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	records := max(1, p.chunk/p.record)
	messages := make([][variants][]byte, len(p.partitions))
	for i, n := range p.partitions {
		for v := range variants {
			d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: p.stream}, Partition: n}
			for _, text := range streamload.Texts(records, p.record, uint64(n*variants+v)) {
				d.Records = append(d.Records, nodeapi.RecordData{ValueBase64: text})
			}
			m, err := encode(request{ID: uint64(i + 1), Func: nodeapi.FuncAppend, Data: d, Timeout: appendTimeout})
			if err != nil {
				return fmt.Errorf("a chunk of %d bytes: %w", p.chunk, err)
			}
			messages[i][v] = m
		}
	}
	return p.Serve(ctx, in, out, func(ctx context.Context) error {
		c.endWith(ctx)
		turn := make([]int, len(messages))
		for i := range messages {
			if _, err := c.Write(messages[i][0]); err != nil {
				return err
			}
		}
		for ctx.Err() == nil {
			var a nodeapi.AppendAnswer
			i, err := c.answer(&a, len(messages))
			if err != nil {
				return err
			}
			p.Add(uint64(a.Appended), uint64(a.Appended*p.record), 0)
			turn[i] = (turn[i] + 1) % variants
			if _, err := c.Write(messages[i][turn[i]]); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}
