// Package placement is the directory of placed keys: which of etcd's keys have a slot in the
// network, and which slot (docs/etcd.md). It is kept in the same etcd as the keys, so that the
// gateways' writes can be conditional on it:
//
//	PREFIX placed/KEY     {"id": KEY_ID, "chain": NAME, "version": VERSION}
//
// KEY is the etcd key, byte for byte; VERSION is the slot's first version.
//
// The mod revision of that key identifies the placement: a key that is removed and placed again
// gets a new one, and a new KEY_ID.
//
// A Store changes the directory, on the condition that it has not changed since the caller last
// read it. A Follower follows it with a watch, so what it knows may be old. Its Revision says how
// old: it knows every change up to that revision. That is all a gateway needs. It reads slots by a
// KEY_ID that may be out of date, which is harmless because a KEY_ID is never given to another key;
// and it writes under the condition (Fence) that no placement in the ranges it touches is newer
// than what it knows.
package placement
