// Package emit has what all parts of the compiler need to emit instructions. Its [Emitter] is the
// program that is being written, with its hook, maps and settings. The package also has common
// pieces of code, for example, to read the frame's bytes, to set a field of the standard metadata,
// or to find a cell of an array. It does not know parsers, tables and locks, which are in packages
// of their own. Each of those packages wraps the Emitter.
package emit
