// Package etcdlink makes gRPC calls to etcd, or to gateways, with few switches between goroutines.
// gRPC's own client has one goroutine that writes and another that reads. Each call must wake both
// goroutines in addition to its caller, which takes longer than everything else in the call. The
// watches of etcd's client pass each event through five goroutines.
//
// In this package, the goroutine that makes a call writes the request itself. If no other goroutine
// is reading, it also reads the connection until it has its answer. Then the next goroutine that
// waits for an answer begins to read. If no goroutine waits for an answer for some time, a
// goroutine of the connection reads.
//
// golang.org/x/net/http2's Framer reads and writes the frames, and hpack the headers. A Conn sends
// a request only if the whole request fits into the windows that the peer has granted. Otherwise,
// or if the connection has ended, the call fails with ErrNotSent. The caller then uses gRPC's
// client.
package etcdlink
