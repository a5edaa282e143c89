// Package slotcodec encodes the content of a slot for a placed etcd key (docs/etcd.md). This
// content is called a cell. It has a few bytes, and all gateways read and write it.
//
//	clear    1
//	value    2  mod, mod - create, version, the value to the end
//	zstd     3  mod, mod - create, version, the value compressed, to the end
//	absent   4  revision
//	guard    5  lease, number
//	unfit    6
//
// The first byte gives the kind. Numbers are unsigned varints (encoding/binary), each in its
// shortest form. So every cell has exactly one encoding, apart from how its value is compressed. A
// compressed value is one zstd frame (RFC 8878) without its magic number and checksum. Its
// Dictionary_ID is the version of the dictionary it needs.
//
// In a slot the cell is sealed (package seal), which takes 33 bytes of the chain's profile. Each
// slot must hold at least a guard, which has 16 bytes, or 49 bytes with its seal.
//
// # Dictionaries
//
// Kubernetes' objects resemble each other, so with a zstd dictionary of some typical objects, the
// others become several times smaller. Train makes such a dictionary from an export of etcd.
// Gateways share dictionaries through etcd (Library). Each version belongs to only one dictionary.
// Dictionaries are never deleted, because slots may hold values that need them.
package slotcodec
