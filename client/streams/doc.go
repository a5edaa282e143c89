// Package streams reads the streams of a node. A reader maps the node's memory (push), or sends
// requests to the node's server (pull). docs/streams.md describes the guarantees, and when to use
// which.
//
//	r, err := streams.Open(ctx, streams.Config{Stream: "orders", Consumer: "billing"})
//	for {
//		b, err := r.Next(ctx)
//		for offset, record := range b.Records() { ... }
//		err = b.Release()
//	}
//
// When a reader's connection ends, the reader connects again and continues at the next record.
package streams
