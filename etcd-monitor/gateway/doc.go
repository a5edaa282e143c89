// Package gateway is an etcd v3 endpoint in front of an etcd cluster. Clients connect to it instead
// of to etcd, and notice no difference.
//
// It forwards everything that it need not understand unchanged: the bytes of messages, metadata
// (authentication tokens, "hasleader"), headers, trailers, and errors with their details, for
// single requests and for streams (Watch, LeaseKeepAlive, Snapshot, Observe), including unknown
// services. So clients get etcd's own answers, and new fields and methods of a newer etcd work.
//
// It makes these changes:
//
//   - It reads the revision in the header of each answer. [Newest] is the newest revision seen.
//   - Equal watches of several clients become one watch at etcd, and lease keep-alives share a few
//     streams to etcd (watch.go, shared_watches.go, keepalive.go).
//   - It counts requests and the keys that are read (package hotkeys).
//   - With a namespace, keys have the namespace as a prefix at etcd, which clients do not see
//     (namespace.go).
//   - With advertised addresses, MemberList returns these instead of the members' own. Otherwise a
//     client that asks for the members (clientv3's Sync) would bypass the gateway.
//   - With [Config].KV, the gateway serves the key-value service (Range, Put, DeleteRange, Txn,
//     Compact) itself: package guarded answers from the network. It then also serves the Lock and
//     Election services, which write keys, by etcd's own code on top of that key-value service.
//
// Besides gRPC the same port serves HTTP as etcd's does: /health, /livez, /readyz, /version and
// /metrics return etcd's answers. /v3/ is etcd's JSON form of the gRPC services, and is handled
// like gRPC. (etcd's WebSocket form of /v3/watch is missing; the streaming POST exists.)
// /proxy/metrics shows the gateway's own metrics, except for those that name keys.
//
// # Clients' identity at etcd
//
// etcd identifies a user by a token, which the gateway forwards. It can also use the common name of
// a client's TLS certificate. Through a gateway that would be the gateway's certificate, for all
// clients. So a gateway whose certificate has a common name tells etcd with each request not to use
// it (metadata grpcgateway-accept, as etcd's own JSON gateway does). etcd then logs a line for
// every request. A certificate without a common name, which etcd's own grpc-proxy requires, avoids
// that.
//
// # After a restore
//
// [Newest] only rises. If etcd is restored from an older snapshot, restart its gateways.
package gateway
