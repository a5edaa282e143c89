// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/netcraq/netcraq/client/streams"
)

// This example reads a stream from the node's memory. The node remembers the position of the
// consumer "billing".
func Example() {
	ctx := context.Background()
	r, err := streams.Open(ctx, streams.Config{Stream: "orders", Consumer: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, streams.ErrOverrun) {
			// The data of the previous batch may be wrong. The next batch reports the number of
			// missed records.
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		if b.Missed > 0 {
			log.Printf("missed %d records before %d", b.Missed, b.Offset)
		}
		for offset, record := range b.Records() {
			fmt.Printf("%d: %s\n", offset, record.Data)
		}
	}
}

// This example keeps a batch's records for another goroutine, while the reader continues.
func ExampleBatch_Hold() {
	ctx := context.Background()
	r, err := streams.Open(ctx, streams.Config{Stream: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	b, err := r.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	hold := b.Hold() // Call Hold before the batch is released. The next call of Next releases it.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, record := range b.Records() {
			fmt.Println(len(record.Data))
		}
		if hold != nil { // if Hold returned nil, the records are copies, which stay valid
			hold.Release()
		}
	}()
	<-done
}
