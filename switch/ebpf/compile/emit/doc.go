// Package emit has what all parts of the compiler need to write instructions: the program that is
// being written ([Emitter]), with its hook, maps and settings; and common phrases, for example to
// read the frame's bytes, to set a field of the standard metadata, or to find a cell of an array.
// It knows no part of P4 as a whole: parsers, tables and locks are in packages of their own, each
// of which wraps the Emitter.
package emit
