// Package reference runs a P4 program statement by statement, exactly as it is written. It is the
// interpreter's specification: only this package defines the meaning of a statement.
//
// [Compile] turns each primitive of each action into a function of the packet. [Compiler.Parser],
// [Compiler.Deparser] and [Compiler.Flow] do the same with parsers, deparsers, and with the
// conditions and tables of a pipeline. A watcher of packets (package packetevents) sees each of
// these statements, because none is left out or combined with another.
//
// Package vm runs control flow faster. A test compares the two.
package reference
