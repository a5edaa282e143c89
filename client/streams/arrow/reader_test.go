package streamsarrow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/streams"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestBatches checks that batches are read as they were written, by pull and by push. It writes
// many times as many records as fit into the ring. By push, the batches must be in the node's
// memory.
func TestBatches(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	for _, pull := range []bool{false, true} {
		name := map[bool]string{false: "pushed", true: "pulled"}[pull]
		w.stream(c, name, nodeapi.StreamConfig{Objects: 4})
		r, err := Open(soon(t), Config{Config: streams.Config{Socket: w.socket, Stream: name, Pull: pull}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		writer := &Writer{Client: c, Stream: name}
		want := sliced(t)
		for i := range uint64(100) {
			b := want[i%uint64(len(want))]
			if offset := put(t, writer, b); offset != i {
				t.Fatalf("record %d has offset %d", i, offset)
			}
			item := next(t, r)
			if same(t, item.Batch, b); item.Offset != i || !item.Valid() {
				t.Errorf("item %d has offset %d", i, item.Offset)
			}
			if inside(t, item.Batch, ofSegment) == pull {
				t.Error("whether it is in the node's memory:", pull)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// fill appends batches until the next one would overwrite an object that a reader holds.
func fill(t *testing.T, w *Writer, number *int64) {
	t.Helper()
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := w.Append(ctx, forty(*number))
		cancel()
		if err != nil {
			return
		}
		*number++
	}
	t.Fatal("the node has overwritten what is held")
}

func forty(n int64) arrow.RecordBatch {
	var values [40]int64
	for i := range values {
		values[i] = n
	}
	return numbers("n", values[:]...)
}

// ofOneObject makes the stream "s". Each of the stream's objects has room for one record of forty
// values. ofOneObject returns a writer, a reader, and the first batch, whose values are -7.
func ofOneObject(t *testing.T, stallMillis int) (*Writer, *Reader, *Item) {
	w := newWorld(t)
	c := w.client()
	w.stream(c, "s", nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, StallMillis: stallMillis})
	writer := &Writer{Client: c, Stream: "s"}
	r := w.read("s", nil)
	put(t, writer, forty(-7))
	return writer, r, next(t, r)
}

// TestBatchHoldsItsObject checks that while the program holds a batch or one of its columns, the
// node cannot reuse the object that contains it, even if the reader continues or is closed.
func TestBatchHoldsItsObject(t *testing.T) {
	writer, r, first := ofOneObject(t, 3_600_000)
	kept := array.NewSlice(first.Batch.Column(0), 1, 40).(*array.Int64)
	var number int64
	fill(t, writer, &number)
	for i := range number {
		if got := next(t, r).Batch.Column(0).(*array.Int64).Value(0); got != i {
			t.Fatalf("item %d is %d", i, got)
		}
	}
	fill(t, writer, &number) // The reader has released all objects but this one.
	r.Close()
	fill(t, writer, &number) // The column still holds the object.
	for i := range kept.Len() {
		if kept.Value(i) != -7 {
			t.Fatal("what is held was overwritten")
		}
	}
	if !first.Valid() || len(mapped(t, ofSegment)) != 1 {
		t.Error("what is held is not valid, or not mapped")
	}
	kept.Release()
	if first.Valid() {
		t.Error("what was let go of is valid")
	}
	for range 50 {
		put(t, writer, forty(number))
	}
	noneMapped(t, ofSegment)
}

// TestBatchThatWasHeldForTooLong checks that if the node has overwritten a held batch, Valid and
// the reader's Next report it.
func TestBatchThatWasHeldForTooLong(t *testing.T) {
	writer, r, item := ofOneObject(t, 50)
	if !item.Valid() {
		t.Error("it is not valid")
	}
	item.Batch.Retain()
	for i := range int64(10) {
		put(t, writer, forty(i))
	}
	if item.Valid() {
		t.Error("what was overwritten is valid")
	}
	if _, err := r.Next(soon(t)); !errors.Is(err, streams.ErrOverrun) {
		t.Errorf("while it was read: %v", err)
	}
	item.Batch.Release()
	if _, err := r.Next(soon(t)); !errors.Is(err, streams.ErrOverrun) {
		t.Errorf("when it was released: %v", err)
	}
	if item := next(t, r); !item.Valid() {
		t.Error("what was read then is not valid")
	}
}

// TestGarbageInAStream checks that a record that is not a batch causes an error, and the next
// record is read.
func TestGarbageInAStream(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	w.stream(c, "s", nodeapi.StreamConfig{Objects: 4})
	text := "this is no batch, but a record of a stream"
	d := nodeapi.AppendData{StreamData: nodeapi.StreamData{Stream: "s"}, Records: []nodeapi.RecordData{{Value: &text}}}
	if _, err := c.Append(soon(t), d); err != nil {
		t.Fatal(err)
	}
	put(t, &Writer{Client: c, Stream: "s"}, forty(1))
	r := w.read("s", nil)
	if _, err := r.Next(soon(t)); !errors.Is(err, ErrGarbage) {
		t.Errorf("it is %v", err)
	}
	if item := next(t, r); item.Offset != 1 {
		t.Errorf("what follows has offset %d", item.Offset)
	}
	poll.Until(t, patience, "nothing of it to be there", func() bool { r.Close(); return len(mapped(t, ofSegment)) == 0 })
}
