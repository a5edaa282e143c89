// Package refusal lets the interpreter's compilers give up on a program that they cannot run.
//
// A construct that is not supported may stand deep inside an expression. The function that finds
// it calls [Panic], and the function that began compiling turns that into an error with [Recover].
// The error wraps [target.ErrUnsupported] and names the construct and its place in the program's
// JSON.
package refusal
