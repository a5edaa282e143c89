// Package durable is the node API's store of keys that are kept in etcd. It is a store.Store over
// etcd's client, whose endpoints are gateways (etcd-monitor). A gateway guards writes and answers
// reads of placed keys from the network (docs/etcd.md). So a durable key that is read often is as
// fast to read as a volatile one.
//
//	/netcraq.io/keys/NAMESPACE/NAME   the value; empty: the key was deleted (a tombstone)
//	/netcraq.io/made/NAMESPACE        nothing; written with each key that is made
//
// A key's version is the mod revision of its entry (see version). A delete writes a tombstone, so
// that the deletion has a version, and a late compare-and-swap does not find "never written" again.
// Tombstones are bound to an etcd lease, with which they expire after ten minutes or more; writing
// a value removes the key from that lease.
//
// Keys are counted and created in a transaction on made/NAMESPACE. If another key was created since
// the count, the transaction fails and the caller counts again. So the quota holds exactly, no
// matter which nodes create keys.
package durable
