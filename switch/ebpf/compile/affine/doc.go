// Package affine expresses a value in terms of another value: a scale times a base, plus an offset
// between two bounds (a [Form]). For example, 5 × slot + 3 depends on the slot's number, although
// that number is unknown. The compiler uses forms for the indices of registers. A packet that has
// locked a slot's number may access all cells whose index is a form of that number.
package affine
