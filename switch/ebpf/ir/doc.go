// Package ir computes P4's numbers with BPF instructions. A program's expression becomes a small
// tree of operations on 64-bit words ([Value], [Condition]), each of which knows its largest
// possible value: that drops most of the masks that p4c writes after every operation. An expression
// that needs more than 64 bits is several such trees or, if a carry goes from one to the next, a
// step that is computed in memory beforehand (wide.go). A [Writer] makes the trees according to the
// [Layout] of the packet's fields, and writes the instructions that compute them, in R1 to R5 and
// R0. It imports ebpf/asm, bmv2json, interval and target.
package ir
