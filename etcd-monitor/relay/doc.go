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
// Router.Plan then says whether it is, with which content, or that this process answers it
// (Plan.Serve). In the second case this package also writes the answer. If that takes no waiting
// (Plan.Now), the goroutine that reads the connection writes it. All other requests (streams, and
// everything invalid) go unchanged to the gRPC server of this process, over a connection in memory.
// The relay forwards etcd's answers unchanged, with their errors, metadata and details.
//
// Waking a goroutine costs more than the work itself, above all when the processor sleeps. So the
// goroutine that reads a connection also writes to it, after it has handled all frames that arrived
// together. If the kernel has no room, or other goroutines write too, a second goroutine writes.
//
// Frames are read and written by golang.org/x/net/http2's Framer, headers by its hpack. This
// package has the rest: streams and their windows (RFC 9113, section 5), fairness, and the ends of
// connections. Each stream's data is bounded by its window, which is granted again only when the
// data has been written to the other side. Data for a connection that is not read is bounded, too.
// Nobody waits for a client that does not read.
package relay
