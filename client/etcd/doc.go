// Package etcd lets a program that uses etcd's Go client read keys from the switches without a
// gateway. A key that is stored in the switches is called placed. This process reads placed keys
// from the switches by UDP, and sends all other requests to etcd. A program changes one line:
//
//	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	n, err := etcd.Use(ctx, c, etcd.Config{Controller: "10.0.0.1:20036"})
//
// From then on, c uses the KV and the Watcher of this package. So does everything that is built on
// c (Txn, Do, and the packages concurrency, namespace and mirror). The code of the gateway (package
// guarded) makes the answers. They are linearizable, and conditional writes stay conditional.
// docs/etcd.md lists the points in which they are weaker than etcd's. etcd itself serves watches
// and leases.
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
//     program must also be able to reach the chain's service address by UDP.
//
// If a right at etcd or at the controller is missing, New fails, and the error names the right. If
// the switches refuse a write, the write fails with PermissionDenied, and nothing was written. If
// the switches refuse a read, etcd answers the read, and Stats counts it as "denied".
//
// If the client has a user name, the switches answer none of its reads, because etcd may check the
// user's permissions. Without a user name, the client checks four times a second whether etcd lets
// everybody read, as gateways do. Writes take guards in either case.
//
// All writers of placed keys must be gateways or programs of this package. A program that writes a
// placed key only through clientv3 bypasses the guards. A program that calls clientv3.NewKV(c)
// after Use also bypasses them, because clientv3.NewKV makes a KV without this package.
package etcd
