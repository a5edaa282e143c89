// Package refusal lets the interpreter's compilers stop when they find a construct that they cannot
// run.
//
// Such a construct may be deep inside an expression. The function that finds it calls [Panic]. The
// function that began compiling converts the panic to an error with [Recover]. The error wraps
// [target.ErrUnsupported] and names the construct and its place in the program's JSON.
package refusal
