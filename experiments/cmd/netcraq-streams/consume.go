package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	api "github.com/netcraq/netcraq/api/node"
	"github.com/netcraq/netcraq/client/streams"
)

// consumer reads some partitions, by one of the ways, and works.
type consumer struct {
	meter
	socket, stream, name string
	partitions           []int
	way, work            string
	batch                int
}

func (c *consumer) run(ctx context.Context, in io.Reader, out io.Writer) error {
	do, ok := map[string]func(record []byte, at time.Time){
		"count": c.count, "filter": c.filter, "words": new(words).of(c), "windows": new(windows).of(c)}[c.work]
	if !ok {
		return fmt.Errorf("there is no work %q", c.work)
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
	return c.serve(ctx, in, out, func(ctx context.Context) error {
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
				continue // they count as missed in the next batch
			} else if err != nil {
				return err
			}
			c.missed.Add(b.Missed)
			c.records.Add(uint64(b.Len()))
			c.bytes.Add(uint64(size))
		}
	})
}

// pullCompact asks for records in the compact framing: what a library could reach by pull that is
// written for it.
func (c *consumer) pullCompact(ctx context.Context, in io.Reader, out io.Writer, do func([]byte, time.Time)) error {
	nc, err := dialCompact(ctx, c.socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	next := make([]*uint64, len(c.partitions))
	ask := func(i int) error {
		d := api.ReadData{StreamData: api.StreamData{Stream: c.stream}, Partition: c.partitions[i], Offset: next[i],
			Consumer: c.name, MaxBytes: c.batch, WaitMillis: 10_000}
		m, err := encode(request{ID: uint64(i + 1), Func: api.FuncRead, Data: d, Timeout: appendTimeout})
		if err == nil {
			_, err = nc.Write(m)
		}
		return err
	}
	for i := range c.partitions { // from now on what it has not read is held
		d := api.ReadData{StreamData: api.StreamData{Stream: c.stream}, Partition: c.partitions[i], Consumer: c.name,
			MaxRecords: 1}
		m, err := encode(request{ID: uint64(i + 1), Func: api.FuncRead, Data: d})
		if err != nil {
			return err
		}
		if _, err := nc.Write(m); err != nil {
			return err
		}
		var a api.ReadAnswer
		if _, err := nc.answer(&a, len(next)); err != nil {
			return err
		}
		next[i] = &a.Offset
	}
	return c.serve(ctx, in, out, func(ctx context.Context) error {
		nc.endWith(ctx)
		for i := range c.partitions {
			if err := ask(i); err != nil {
				return err
			}
		}
		for ctx.Err() == nil {
			var a api.ReadAnswer
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
			c.missed.Add(a.Missed)
			c.records.Add(uint64(len(a.Records)))
			c.bytes.Add(uint64(size))
			if err := ask(i); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// count looks at each record.
func (c *consumer) count(record []byte, _ time.Time) {
	if len(record) > 0 && record[0] != 0 {
		c.found.Add(1)
	}
}

// filter looks for the needle.
func (c *consumer) filter(record []byte, _ time.Time) {
	if bytes.Contains(record, []byte(needle)) {
		c.found.Add(1)
	}
}

// words counts words.
type words struct{ counts map[string]*uint64 }

func (w *words) of(c *consumer) func([]byte, time.Time) {
	w.counts = map[string]*uint64{}
	return func(record []byte, _ time.Time) { c.found.Add(uint64(w.add(record))) }
}

// add counts the words of a record, and says how many there were.
func (w *words) add(record []byte) (n int) {
	for word := range bytes.FieldsSeq(record) {
		if p := w.counts[string(word)]; p != nil { // it makes no string
			*p++
		} else {
			one := uint64(1)
			w.counts[string(word)] = &one
		}
		n++
	}
	return n
}

// windows counts words in windows of five seconds, one of which ends each second. A record belongs
// to the second in which it was appended.
type windows struct {
	seconds [windowSeconds]words
	now     int64 // the newest second
	emitted map[string]uint64
}

const windowSeconds = 5

func (w *windows) of(c *consumer) func([]byte, time.Time) {
	return func(record []byte, at time.Time) { c.found.Add(uint64(w.add(record, at.Unix()))) }
}

func (w *windows) add(record []byte, second int64) int {
	if second > w.now {
		if w.now > 0 {
			w.emit()
		}
		for s := max(w.now+1, second-windowSeconds+1); s <= second; s++ {
			w.seconds[s%windowSeconds] = words{counts: map[string]*uint64{}}
		}
		w.now = second
	}
	if second <= w.now-windowSeconds {
		return 0 // it is late: its windows have ended
	}
	return w.seconds[second%windowSeconds].add(record)
}

// emit adds up the window that has ended.
func (w *windows) emit() {
	w.emitted = map[string]uint64{}
	for _, s := range w.seconds {
		for word, n := range s.counts {
			w.emitted[word] += *n
		}
	}
}
