// Package streams reads the streams of a node: from its memory, which is mapped (push), or by
// requests (pull). docs/streams.md describes the guarantees, and when to use which.
//
//	r, err := streams.Open(ctx, streams.Config{Stream: "orders", Consumer: "billing"})
//	for {
//		b, err := r.Next(ctx)
//		for offset, record := range b.Records() { ... }
//		err = b.Release()
//	}
//
// A reader connects again when its connection ends, and continues where it was.
package streams
