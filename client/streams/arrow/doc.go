// Package streamsarrow reads and writes Arrow record batches in streams. A batch that was read uses
// the node's memory without a copy. docs/streams-arrow.md describes the guarantees.
//
//	r, err := streamsarrow.Open(ctx, streamsarrow.Config{Config: streams.Config{Stream: "orders"}})
//	for {
//		item, err := r.Next(ctx)
//	  use(item.Batch) // an arrow.RecordBatch of arrow-go, valid until the next call of Next
//	}
//
// Batches are reference-counted, as in arrow-go. A program that keeps a batch, a column or a slice
// calls Retain, and later Release. After the last Release it must not read the batch, because the
// memory may be unmapped, and reading it then crashes the program.
package streamsarrow
