// Package reference runs a P4 program statement by statement, exactly as it is written. It is the
// interpreter's specification: only this package defines the meaning of a statement.
//
// [Compile] converts each primitive of each action to a function of the packet. [Compiler.Parser],
// [Compiler.Deparser] and [Compiler.Flow] convert parsers, deparsers, and the conditions and tables
// of a pipeline. A watcher of packets (package packetevents) sees each of these statements, because
// no statement is left out or combined with another.
//
// Package vm runs control flow faster. A test compares both packages.
package reference
