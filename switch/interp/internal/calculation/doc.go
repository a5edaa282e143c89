// Package calculation computes P4's hashes and checksums over the fields of a packet.
//
// hash.go has the algorithms that p4c can name, as functions of bytes. A [Calculation] is an
// algorithm with a list of inputs, which it joins bit by bit. If all inputs are fields with fixed
// positions, it uses a prepared template. For the Internet checksum it then needs no bytes at all.
package calculation
