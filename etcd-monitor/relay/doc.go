// Package relay passes gRPC requests on as HTTP/2 frames. A gRPC server plus a gRPC client cost
// more than etcd itself: several goroutines, some twenty allocations and four copies for each
// request. To pass a request on, only its method and its message are needed.
//
//	client ══ conn ══╗                    ╔══ conn ══ etcd's members, by turns
//	                 ╟─ call ─ Plan ─ yes ╢
//	client ══ conn ══╝          ├─ Serve ─╢── a goroutine of this process
//	                            └─ no ────╨── conn ── the gRPC server of this process
//
// The relay collects a request (HEADERS, DATA with the end of the stream) if its method may be
// passed on. Router.Plan then decides whether it is passed on, with which content, or whether this
// process answers it (Plan.Serve). In that case this package also writes the answer. If the answer
// needs no waiting (Plan.Now), the goroutine that reads the connection writes it. All other
// requests (streams, and invalid ones) go unchanged to this process's gRPC server, over an
// in-memory connection. The relay forwards etcd's answers unchanged, with their errors, metadata
// and details.
//
// Waking a goroutine costs more than the work itself, above all when the processor sleeps. So the
// goroutine that reads a connection also writes to it, after it has handled all frames that arrived
// together. If the kernel has no room, or other goroutines write too, a second goroutine writes.
//
// golang.org/x/net/http2's Framer reads and writes frames, and its hpack the headers. This package
// has the rest: streams and their windows (RFC 9113, section 5), fairness, and the ends of
// connections. A stream's window limits its data, and is granted again only when the data has been
// written to the other side. Data for a connection whose peer does not read is limited, too. No one
// waits for a client that does not read.
package relay
