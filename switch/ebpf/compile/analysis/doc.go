// Package analysis answers questions about a program before it is planned and translated. It finds
// the order of the nodes, the headers and fields that the program reads, the arguments of
// primitives, and the inputs of hashes and checksums. It knows nothing about packets, maps or
// hooks. Its results do not change, so every part of the compiler may use it at any time.
package analysis
