// Package durable implements the node API's store for durable keys, which etcd stores. It is a
// store.Store that uses etcd's client with gateways (etcd-monitor) as endpoints. A gateway guards
// writes, and answers reads of placed keys from the network (docs/etcd.md). So a durable key that
// is read often is as fast to read as a volatile key.
//
//	/netcraq.io/keys/NAMESPACE/NAME   the value; empty: the key was deleted (a tombstone)
//	/netcraq.io/made/NAMESPACE        nothing; written with each key that is made
//
// The version of a key is the mod revision of its entry in etcd (see the function version). A
// delete writes a tombstone. So the deletion has a version, and a late compare-and-swap does not
// find the state "never written" again. Tombstones are bound to an etcd lease, and expire with it
// after ten minutes or more. Writing a value removes the key from that lease.
//
// A node first counts the keys of a namespace, and then creates a key in a transaction that
// compares made/NAMESPACE. If another key was created since the count, the transaction fails, and
// the node counts again. So the quota holds exactly, no matter which nodes create keys.
package durable
