// Package placement is the directory of placed keys. It says which of etcd's keys have a slot in
// the switches, and which slot (docs/etcd.md). The directory is in the same etcd as the keys, so
// that the gateways' writes can be conditional on it. An entry has this form:
//
//	PREFIX placed/KEY     {"id": KEY_ID, "chain": NAME, "version": VERSION}
//
// KEY is the etcd key, byte for byte; VERSION is the slot's first version.
//
// The mod revision of the entry identifies the placement. If a key is removed and placed again, it
// gets a new mod revision and a new KEY_ID.
//
// A Store changes the directory, on the condition that it has not changed since the caller last
// read it. A Follower follows the directory with a watch, so its content may be old. It knows every
// change up to its Revision. That is enough for a gateway. A gateway may read a slot by an old
// KEY_ID. That is harmless, because a KEY_ID is never given to another key. A gateway writes under
// a condition (Fence). It says that no placement in the ranges that the write touches is newer than
// the Follower's Revision.
package placement
