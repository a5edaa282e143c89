// Package seal seals the cells of etcd's keys (package slotcodec), so that only gateways can make a
// cell that a gateway accepts, and only they can read the values (docs/etcd.md, "Sealing").
//
//	cell      kind, numbers, value                                       what package slotcodec encodes
//	sealed    head | 01 key (4) | nonce (12) | the rest, encrypted | tag (16)
//
// The head is the kind's byte, with [placed.Sealed] set, and, for a value and an absence, the
// revision, which placement reads. It is authenticated, not encrypted. AES-256-GCM follows, in
// Tink's format, under the key of that number. It also authenticates the name of the etcd key, its
// KEY_ID, and the sequence of the slot's version with this cell in it.
//
// # The sequence
//
// A gateway writes a cell into a slot by CAS, and an executed CAS gives the slot the sequence after
// the expected one (docs/protocol.md). So the gateway knows the cell's sequence when it seals the
// cell. An attacker cannot put back an old cell of the same key, because a slot's sequences never
// repeat.
//
// # The keys
//
// The keys are in etcd under PREFIX seal/keys, in one value that is changed by transactions on its
// mod revision ([Keys]). It contains a Tink keyset and each key's creation time. The first gateway
// creates the first key. A gateway seals with the newest key that it knows, and reads etcd again
// when it finds a cell with an unknown key number.
//
// # Why AES-256-GCM
//
// A read costs one opening. AES-GCM takes some 0.2 to 0.4 us for 100 bytes and adds 33 bytes;
// XChaCha20-Poly1305 and XAES-256-GCM add 45, AES-GCM-SIV, which would forgive a nonce used twice,
// takes ten times as long in Go (BenchmarkOpen). Nonces are random, 96 bits, so a key may seal 2^32
// cells for all gateways together (NIST SP 800-38D, 8.3): each gateway asks for a new one after
// [MaxSeals], 2^28.
package seal
