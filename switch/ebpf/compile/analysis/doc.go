// Package analysis answers questions about a program by reading it, before anything has a place in
// memory and before any instruction is written: in which order control passes its nodes, which
// headers and fields it reads, what its primitives take, and what its hashes and checksums are made
// of. It knows nothing about packets, maps or hooks. What it finds does not change, so everybody
// who compiles may ask it at any time.
package analysis
