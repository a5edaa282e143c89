// Package durable is the node API's store of keys that are kept in etcd: a store.Store over etcd's
// client, whose endpoints are those of gateways (etcd-monitor). A gateway takes writes along the
// guarded path, and answers reads of placed keys from the network (docs/etcd.md), so what is
// durable is as fast to read as what is volatile where it is read much.
//
//	/netcraq.io/keys/NAMESPACE/NAME   the value; empty: the key was deleted (a tombstone)
//	/netcraq.io/made/NAMESPACE        nothing; written with each key that is made
//
// A key's version is the mod revision of its entry (see version). Deleting writes a tombstone, so
// that the deletion has a version, and a compare and swap that comes late does not find "never
// written" again. Tombstones hang on a lease of etcd's, with which they go after ten minutes or
// more; a value that is written takes the key off it.
//
// Keys are counted, and one is made, in a transaction on made/NAMESPACE: whoever counted before
// another key was made counts again. So the quota holds exactly, whoever makes keys where.
package durable
