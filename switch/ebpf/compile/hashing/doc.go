// Package hashing emits the code of hashes and checksums. This code first assembles the inputs as
// bytes in the PHV (hash_inputs.go). A function then processes the bytes (hash.go, custom_crc.go).
// CRCs use a table of 256 entries in the state. A checksum of RFC 1071 needs no bytes if the
// positions of all its words are known at compile time (checksum.go).
package hashing
