// Package seal closes the cells of etcd's keys (package slotcodec), so that nobody but a gateway
// can make one that a gateway takes for true, and nobody else can read the values (docs/etcd.md,
// "Sealing").
//
//	cell      kind, numbers, value                                       what package slotcodec encodes
//	sealed    head | 01 key (4) | nonce (12) | the rest, encrypted | tag (16)
//
// The head is the kind's byte, with [placed.Sealed] set, and of a value and an absence the
// revision: placement reads them. It is authenticated, not encrypted. What follows is AES-256-GCM
// as Tink writes it, under the key of that number. Authenticated with it are the name of the etcd
// key, its KEY_ID, and the sequence of the version that the slot has with this cell in it.
//
// # The sequence
//
// A cell comes into a slot by CAS, and a CAS that is executed gives the slot the sequence that
// follows the one which it expects (docs/protocol.md). So who seals a cell knows it. It is what
// keeps an old cell of the same key from being put back: a slot's sequences do not come again.
//
// # The keys
//
// They are in etcd under PREFIX seal/keys, one value that is changed by transactions on its mod
// revision ([Keys]): a Tink keyset, and when each key was made. The first gateway makes the first
// one. A gateway seals with the newest that it knows, and reads etcd again when it meets the number
// of a key that it does not know.
//
// # Why AES-256-GCM
//
// A read costs one opening. AES-GCM takes some 0.2 to 0.4 us for 100 bytes and adds 33 to a cell;
// XChaCha20-Poly1305 and XAES-256-GCM add 45, AES-GCM-SIV, which would forgive a nonce used twice,
// takes ten times as long in Go (BenchmarkOpen). Nonces are random, 96 bits, so a key may seal 2^32
// cells for all gateways together (NIST SP 800-38D, 8.3): each gateway asks for a new one after
// [MaxSeals], 2^28.
package seal
