// Package seal encrypts and authenticates the cells that package slotcodec encodes. So only
// gateways can make a cell that a gateway accepts, and only gateways can read the values
// (docs/etcd.md, "Sealing").
//
//	cell      kind, numbers, value                                       what package slotcodec encodes
//	sealed    head | 01 key (4) | nonce (12) | the rest, encrypted | tag (16)
//
// The head is the byte of the cell's kind with the bit [slotcodec.Sealed]. For the kinds Value and
// Absent, the revision follows, which placement reads. The head is authenticated, but not
// encrypted. Then comes the AES-256-GCM ciphertext in Tink's format, under the key with that
// number. It also authenticates the name of the etcd key, its KEY_ID, and the sequence of the
// slot's version with this cell in it.
//
// # The sequence
//
// A gateway writes a cell into a slot by CAS, and an executed CAS gives the slot the sequence after
// the expected one (docs/protocol.md). So the gateway knows the slot's future sequence when it
// seals the cell. An attacker cannot put back an old cell of the same key, because a slot's
// sequences never repeat.
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
// Each read has to open one cell. AES-GCM takes some 0.2 to 0.4 us for 100 bytes and adds 33 bytes.
// XChaCha20-Poly1305 and XAES-256-GCM add 45 bytes. AES-GCM-SIV would tolerate a nonce that is used
// twice, but takes ten times as long in Go (BenchmarkOpen). Nonces are 96 random bits, so all
// gateways together may seal at most 2^32 cells with a key (NIST SP 800-38D, 8.3). Each gateway
// asks for a new key after [MaxSeals] = 2^28 cells.
package seal
