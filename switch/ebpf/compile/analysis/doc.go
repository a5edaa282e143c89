// Package analysis answers questions about a program before anything has a place in memory and
// before any instruction is written: in which order control passes its nodes, which headers and
// fields it reads, which arguments its primitives take, and the inputs of its hashes and checksums.
// It knows nothing about packets, maps or hooks. Its results do not change, so every part of the
// compiler may ask it at any time.
package analysis
