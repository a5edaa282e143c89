// Package gateway is an etcd v3 endpoint that stands before an etcd cluster: clients connect to it
// instead of to etcd, and see etcd.
//
// It passes on unchanged what it does not have to understand: the bytes of each message, the
// metadata (authentication tokens, "hasleader"), headers, trailers, and errors with their details,
// for single requests and for streams (Watch, LeaseKeepAlive, Snapshot, Observe), including
// services that it does not know. So a client gets etcd's own answers, and a newer etcd's new
// fields and methods go through.
//
// What it changes:
//
//   - It reads the revision in the header of each answer: [Newest] is the newest one that it has
//     seen.
//   - Watches of several clients that are the same are one at etcd, and keep-alives of leases go
//     there on a few streams (watch.go, shared_watches.go, keepalive.go).
//   - Requests are counted, and the keys that are read (package hotkeys).
//   - In a namespace the names of keys have it at etcd, and not for clients (namespace.go).
//   - MemberList, where addresses to advertise are given, names them in place of the members' own,
//     or a client that asks for the members (clientv3's Sync) would go past the gateway.
//   - The key-value service (Range, Put, DeleteRange, Txn, Compact) is served by [Config].KV where
//     it is given: package guarded answers from the network. Then the Lock and Election services,
//     which etcd serves by writing keys, are served here, by etcd's own code on top of that
//     key-value service.
//
// Beside gRPC the same port serves HTTP as etcd's does: /health, /livez, /readyz, /version and
// /metrics are etcd's answers, /v3/ is etcd's JSON form of the gRPC services, and goes the same way
// as gRPC does. (etcd's WebSocket form of /v3/watch is missing; the streaming POST is there.)
// /proxy/metrics shows the gateway's own metrics, except for those that name keys.
//
// # Who a client is to etcd
//
// etcd identifies a user by a token, which passes. It can also use the common name of a client's
// TLS certificate. Through a gateway that would be the gateway's, for all its clients. So a gateway
// that has a certificate with a common name tells etcd with each request not to use it (metadata
// grpcgateway-accept, as etcd's own JSON gateway does). etcd logs a line for every request then; a
// certificate without a common name, which etcd's own grpc-proxy insists on, avoids that.
//
// # After a restore
//
// [Newest] only rises. If etcd is restored from an older snapshot its gateways have to be
// restarted.
package gateway
