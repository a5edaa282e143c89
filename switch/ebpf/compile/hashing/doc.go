// Package hashing writes the instructions for hashes and checksums. The inputs are put together
// into bytes in the PHV (hash_inputs.go); then a function goes over the bytes (hash.go,
// custom_crc.go). CRCs use a table of 256 entries in the state. A checksum of RFC 1071 needs no
// bytes if the places of all its words are known at compile time (checksum.go).
package hashing
