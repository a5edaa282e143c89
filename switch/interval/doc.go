// Package interval computes which values an expression of a compiled P4 program can have.
//
// BMv2's expressions work on unbounded integers, and only storing truncates. An engine on 64-bit
// words can still be exact, because almost every expression that p4c writes stays within known
// bounds. Its operands are fields of known width, and p4c masks results that could overflow. So
// each expression gets an interval that contains all its values. If the interval fits into 64 bits,
// signed or unsigned, 64-bit arithmetic is exact. If it needs more bits, arithmetic on enough words
// is exact. Besides, the low n bits of sums, products, left shifts and bitwise operations depend
// only on the low n bits of the operands. An engine must refuse an expression only if none of this
// helps, for example, a right shift of an unbounded left shift.
//
// It imports only bmv2json.
package interval
