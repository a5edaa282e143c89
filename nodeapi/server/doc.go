// Package server is the node API's server: it takes connections, reads requests in either framing,
// executes them on a store.Store, and answers them. docs/node-api.md is its specification.
//
// A connection has one goroutine that reads, and one for each request that is under way. The
// goroutine that has read a request also executes it, while another one continues reading
// (Server.work). A goroutine with an answer appends it to the unsent bytes; one of them writes
// until nothing is left. So a lone request is answered by one write, without a change of
// goroutines, and many at once share writes.
package server
