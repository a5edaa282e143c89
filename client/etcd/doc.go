// Package etcd is etcd's Go client without a gateway in between: the switches answer reads of
// placed keys, by UDP from this process, and everything else goes to etcd. A program changes one
// line:
//
//	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	n, err := etcd.Use(ctx, c, etcd.Config{Controller: "10.0.0.1:20036"})
//
// From there on c uses the KV and the Watcher of this package, and so does everything built on them
// (Txn, Do, packages concurrency, namespace, mirror). Answers come from the code of the gateway
// (package guarded). They are linearizable, conditional where a write is conditional, and weaker
// than etcd's only in the points that docs/etcd.md names. etcd itself serves watches and leases.
//
// # Rights
//
// Such a program is its own gateway, and needs a gateway's rights:
//
//   - At etcd, it must be allowed to read and write the gateways' prefix (/netcraq/gateway/). It
//     reads the placed keys' names, the dictionaries and the sealing keys there, and keeps its
//     session. A program with the sealing keys can read and forge every placed key's cell, even if
//     etcd denies it the key. So this package is for programs that are trusted with all placed
//     keys. Other programs use a gateway, which does not pass the sealing keys on.
//   - At the controller, it needs the admin API, with its token, to learn where the chains are and
//     to lease the sessions that slots are written with.
//   - At the switches, the principal of the program's port needs a grant to read and write in the
//     realm of etcd's keys (their names in the controller's directory begin with "etcd:"). The
//     program also needs a path by UDP to the chain's service address.
//
// New fails if one of the first two is missing, and names it. If the switches refuse a write, the
// write fails with PermissionDenied, and nothing was written. If they refuse a read, etcd answers
// it (Stats counts it as "denied").
//
// If the client has a user name, etcd may check its permissions, so the network answers no read.
// Without a user name, the client checks four times a second whether etcd lets everybody read, as
// gateways do. Writes take guards in either case.
//
// All writers of placed keys must be gateways or programs of this package. A program that writes
// one only through clientv3 bypasses the guards. So does one that calls clientv3.NewKV(c) instead
// of using c, or a KV of Use: clientv3.NewKV makes a KV without this package.
package etcd
