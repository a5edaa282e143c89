// Package relay passes gRPC requests on as frames of HTTP/2. A server and a client of gRPC in a row
// cost more than etcd itself: several goroutines, some twenty allocations and four copies for each
// request. Of a request that is passed on nothing is needed but its method and its message.
//
//	client ══ conn ══╗                    ╔══ conn ══ etcd's members, by turns
//	                 ╟─ call ─ Plan ─ yes ╢
//	client ══ conn ══╝          ├─ Serve ─╢── a goroutine of this process
//	                            └─ no ────╨── conn ── the gRPC server of this process
//
// A request (HEADERS, DATA with the end of the stream) is collected if its method may be passed on.
// Router.Plan then says whether it is, and what etcd is sent for it, or that this process answers
// it (Plan.Serve): then its answer is written here, too; where it takes no waiting (Plan.Now) by
// who reads the connection. Else it goes, as it came, to the gRPC server of this process, by a
// connection in memory: streams, and everything that is wrong. What etcd answers goes to the client
// as it comes. So errors, metadata and details are etcd's.
//
// A goroutine that another one wakes costs more than what it does here, where a processor sleeps
// most of all. So who reads a connection also writes what there is to be said to it, when all that
// has come together was handled, if the kernel has room; where it has not, or others have something
// to say, a second goroutine writes.
//
// Frames are read and written by golang.org/x/net/http2's Framer, headers by its hpack. What is
// here is what stands on them: streams and their windows (RFC 9113, section 5), who gives way to
// whom, and the ends of connections. Each stream's data is bounded by its window, and is granted
// again only when it has been written to the other side; what is written to a connection that is
// not read is bounded, too. Nobody waits for a client that does not read.
package relay
