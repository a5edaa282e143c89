// Package server is the server of the node API. It accepts connections, reads requests in either
// framing, executes them with a store.Store, and sends answers. docs/node-api.md is its
// specification.
//
// A connection has one goroutine that reads, and one for each request under way. The goroutine that
// has read a request also executes it, while another goroutine continues to read (Server.work). A
// goroutine that has an answer appends it to the unsent bytes. One goroutine at a time writes until
// no bytes are left. So a single request is answered by one write, without a switch of goroutines,
// and concurrent requests share writes.
package server
