// Package etcdlink makes gRPC calls to etcd, or to gateways, with few changes of goroutines. gRPC's
// own client has a goroutine that writes and one that reads. Each call wakes both of them besides
// its caller, which takes longer than the rest of the call. The watches of etcd's client pass each
// event through five goroutines.
//
// Here, the goroutine that makes a call writes the request itself. It also reads the connection
// until it has its answer, if no other goroutine reads. A reader that has its answer passes reading
// on to the next goroutine that waits. If nobody waits for an answer for a while, a goroutine of
// the connection reads.
//
// golang.org/x/net/http2's Framer reads and writes the frames, and hpack the headers. A Conn sends
// a request only if all of it fits the windows that the peer has granted. Otherwise, and if the
// connection has ended, a call fails with ErrNotSent, so that the caller uses gRPC's client.
package etcdlink
