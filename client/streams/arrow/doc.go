// Package streamsarrow reads and writes Arrow's record batches in streams. The buffers of a batch
// that is read are the node's memory, without a copy. docs/streams-arrow.md says what it
// guarantees.
//
//	r, err := streamsarrow.Open(ctx, streamsarrow.Config{Config: streams.Config{Stream: "orders"}})
//	for {
//		item, err := r.Next(ctx)
//		use(item.Batch) // an arrow.RecordBatch of arrow-go: it is there until the next call of Next
//	}
//
// Batches are counted as arrow-go counts them. A program that keeps one, a column of it, or a
// slice, calls Retain, and later Release. After the last Release it must no longer read the batch:
// the memory may be unmapped, and a program that reads there ends.
package streamsarrow
