// Package affine finds what an expression is in terms of another one: scale times a base, and some
// more, between two bounds (a [Form]). So 5 × slot + 3 is known to be of the slot's number, though
// nobody knows the slot. The compiler uses it for the indices of registers: whoever has locked a
// slot's number has all cells whose index is a form of that number.
package affine
