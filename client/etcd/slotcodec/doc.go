// Package slotcodec encodes the content of a slot in the network for a placed etcd key
// (docs/etcd.md): a few bytes that all gateways read and write.
//
//	clear    1
//	value    2  mod, mod - create, version, the value to the end
//	zstd     3  mod, mod - create, version, the value compressed, to the end
//	absent   4  revision
//	guard    5  lease, number
//	unfit    6
//
// The first byte says which; numbers are unsigned varints (encoding/binary), each in its shortest
// form. So every cell has one encoding, apart from how its value is compressed. A compressed value
// is one zstd frame (RFC 8878) without its magic number and checksum. Its Dictionary_ID is the
// version of the dictionary it needs.
//
// In a slot the cell is sealed (package seal), which takes 33 bytes of the chain's profile. A guard
// of 16 bytes, 49 with its seal, is the smallest thing that has to fit.
//
// # Dictionaries
//
// Kubernetes' objects resemble each other, so with a zstd dictionary of some typical objects, the
// others become several times smaller. Train makes such a dictionary from an export of etcd.
// Gateways share dictionaries through etcd (Library). A version is assigned to only one dictionary,
// and dictionaries are not deleted: slots may hold values that need them.
package slotcodec
