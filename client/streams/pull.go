package streams

import (
	"context"
	"time"

	"github.com/netcraq/netcraq/client/node"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

// pull requests records of all partitions in parallel.
type pull struct {
	r       *Reader
	client  *node.Client
	ctx     context.Context
	cancel  context.CancelFunc
	answers chan answer
}

type answer struct {
	partition int
	data      *nodeapi.ReadAnswer
	err       error
}

// waitMillis is how long the server waits for a record before it answers without records.
const waitMillis = 10_000

func openPull(ctx context.Context, r *Reader) (way, error) {
	c, err := node.Connect(ctx, node.Config{Socket: r.cfg.Socket, Namespace: r.cfg.Namespace})
	if err != nil {
		return nil, err
	}
	p := &pull{r: r, client: c}
	s, err := c.OpenStream(ctx, r.cfg.Stream, nil)
	if err != nil {
		p.close()
		return nil, err
	}
	parts := r.cfg.Partitions
	if len(parts) == 0 {
		for n := range s.State {
			parts = append(parts, n)
		}
	}
	if r.cfg.Incarnation == "" {
		r.cfg.Incarnation = s.Incarnation
	}
	if r.cfg.Consumer != "" {
		// this request makes the node keep the records that the consumer has not read
		for _, n := range parts {
			a, err := c.Read(ctx, p.request(n, 1))
			if err != nil {
				p.close()
				return nil, err
			}
			if err := r.begins(n, a.Offset, a.Missed); err != nil {
				p.close()
				return nil, err
			}
		}
	}
	p.answers = make(chan answer, len(parts))
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, n := range parts {
		p.ask(n)
	}
	return p, nil
}

// request returns the request for the next records of a partition.
func (p *pull) request(n, most int) nodeapi.ReadData {
	cfg := &p.r.cfg
	d := nodeapi.ReadData{StreamData: nodeapi.StreamData{Stream: cfg.Stream}, Partition: n, From: cfg.From,
		Incarnation: cfg.Incarnation, Consumer: cfg.Consumer, MaxBytes: cfg.BatchBytes, MaxRecords: most}
	if at, ok := p.r.next[n]; ok {
		d.Offset, d.From = &at, ""
	}
	return d
}

// ask sends the request for the next records of a partition, in the background.
func (p *pull) ask(n int) {
	d := p.request(n, 0)
	d.WaitMillis = waitMillis
	go func() {
		a, err := p.client.Read(p.ctx, d)
		p.answers <- answer{n, a, err}
	}()
}

// read implements the method of way.
func (p *pull) read(ctx context.Context) (*Batch, error) {
	for {
		var a answer
		select {
		case a = <-p.answers:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a.err != nil {
			return nil, a.err
		}
		d := a.data
		if len(d.Records) == 0 {
			if err := p.r.begins(a.partition, d.Offset, d.Missed); err != nil {
				return nil, err
			}
			p.ask(a.partition)
			continue
		}
		b := &Batch{Incarnation: d.Incarnation, Partition: a.partition, Offset: d.Offset, Next: d.Next,
			Missed: d.Missed}
		for _, r := range d.Records {
			value := r.ValueBase64
			if r.Value != nil {
				value = []byte(*r.Value)
			}
			b.records = append(b.records, stream.Record{Data: value, Mark: r.Mark, Time: r.Time * 1000})
		}
		b.release = func() error {
			p.r.done(a.partition, b.Next)
			p.ask(a.partition)
			return nil
		}
		return b, nil
	}
}

// close implements the method of way.
func (p *pull) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.cancel != nil {
		p.cancel()
		for n := range p.r.next {
			if p.r.cfg.Consumer != "" {
				// the node knows only the position of the last request, so it must get the final
				// position
				_, _ = p.client.Read(ctx, p.request(n, 1))
			}
		}
	}
	_ = p.client.Close(ctx)
}
