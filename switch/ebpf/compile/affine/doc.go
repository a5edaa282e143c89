// Package affine expresses one value in terms of another: scale times a base, plus something
// between two bounds (a [Form]). So 5 × slot + 3 is known to depend on the slot's number, although
// the slot itself is unknown. The compiler uses it for the indices of registers: a packet that has
// locked a slot's number has all cells whose index is a form of that number.
package affine
