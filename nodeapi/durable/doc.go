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
// Keys are counted, and one is made, in a transaction on made/NAMESPACE: whoever counted before
// another key was made counts again. So the quota holds exactly, whoever makes keys where.
package durable
