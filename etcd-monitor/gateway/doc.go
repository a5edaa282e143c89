// Package gateway is an etcd v3 endpoint in front of an etcd cluster. Clients connect to the
// gateway instead of to etcd, and notice no difference.
//
// The gateway forwards everything that it need not understand unchanged. This includes the bytes of
// messages, metadata (authentication tokens, "hasleader"), headers, trailers, and errors with their
// details. It does so for single requests and for streams (Watch, LeaseKeepAlive, Snapshot,
// Observe), even of unknown services. So clients get etcd's own answers, and new fields and methods
// of a newer etcd work.
//
// The gateway adds or changes the following:
//
//   - It reads the revision in the header of each answer. [Newest] is the newest revision seen. -
//     Equal watches of several clients become one watch at etcd, and lease keep-alives share a few
//     streams to etcd (watch.go, shared_watches.go, keepalive.go). - It counts requests and the
//     keys that are read (package hotkeys). - With a namespace, keys have the namespace as a prefix
//     at etcd, which clients do not see (namespace.go). - With advertised addresses, MemberList
//     returns these instead of the members' own. Otherwise a client that asks for the members
//     (clientv3's Sync) would bypass the gateway. - With [Config].KV, the gateway serves the
//     key-value service (Range, Put, DeleteRange, Txn, Compact) itself, and package guarded answers
//     reads from the switches. The gateway then also serves the Lock and Election services, because
//     they write keys. It uses etcd's own code for them, on top of its key-value service.
//
// Besides gRPC the same port serves HTTP as etcd's does: /health, /livez, /readyz, /version and
// /metrics return etcd's answers. /v3/ is etcd's JSON form of the gRPC services, which the gateway
// handles like gRPC. It lacks etcd's WebSocket form of /v3/watch, but has the streaming POST.
// /proxy/metrics shows the gateway's own metrics, except for those that name keys.
//
// # Clients' identity at etcd
//
// etcd identifies a user by a token, which the gateway forwards. It can also use the common name of
// a client's TLS certificate. Behind a gateway, etcd sees only the gateway's certificate, for all
// clients. So a gateway whose certificate has a common name tells etcd in each request to ignore
// that name (metadata grpcgateway-accept, as in etcd's own JSON gateway). etcd then logs a line for
// every request. To avoid these lines, use a certificate without a common name, which etcd's own
// grpc-proxy requires anyway.
//
// # After a restore
//
// [Newest] never decreases. If etcd is restored from an older snapshot, restart its gateways.
package gateway
