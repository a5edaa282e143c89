// Package relay forwards gRPC requests as HTTP/2 frames. A gRPC server plus a gRPC client would
// cost more than etcd itself. For each request they need several goroutines, some twenty
// allocations and four copies. The relay needs only a request's method and message to forward it.
//
//	client ══ conn ══╗                    ╔══ conn ══ etcd's members, by turns
//	                 ╟─ call ─ Plan ─ yes ╢
//	client ══ conn ══╝          ├─ Serve ─╢── a goroutine of this process
//	                            └─ no ────╨── conn ── the gRPC server of this process
//
// The relay collects a request (HEADERS, DATA with the end of the stream) if its method may be
// forwarded. Router.Plan then decides whether the relay forwards the request, and with which
// content, or whether this process answers it (Plan.Serve). This package also writes such an
// answer. If the answer needs no waiting (Plan.Now), the goroutine that reads the connection writes
// it. All other requests (streams, and invalid ones) go unchanged to this process's gRPC server,
// over an in-memory connection. The relay forwards etcd's answers unchanged, with their errors,
// metadata and details.
//
// Waking a goroutine costs more than forwarding a request, above all when the processor sleeps. So
// the goroutine that reads a connection also writes to it, after it has handled all frames that
// arrived together. A second goroutine writes if the kernel has no room, or if other goroutines
// also have bytes to write.
//
// The Framer of golang.org/x/net/http2 reads and writes frames, and package hpack handles headers.
// This package handles everything else: streams and their windows (RFC 9113, section 5), fairness,
// and the ends of connections. A stream's window limits its data. The relay extends the window only
// when the data has been written to the other side. Data for a connection whose peer does not read
// is also limited. A client that does not read delays no other client.
package relay
