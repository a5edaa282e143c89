// Package calculation computes P4's hashes and checksums over the fields of a packet.
//
// hash.go has the algorithms that p4c can name, as functions of bytes. A [Calculation] is one of
// them with its list of inputs. It puts the inputs together bit by bit. If all of them are fields
// with fixed places it does this with a prepared template, and the Internet checksum needs no
// bytes at all.
package calculation
