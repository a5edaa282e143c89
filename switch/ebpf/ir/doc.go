// Package ir computes P4's numbers with BPF instructions. A program's expression becomes a small
// tree of operations on 64-bit words ([Value], [Condition]), of which each knows the largest number
// that it can be: that drops most of the masks that p4c writes after every operation. What needs
// more than 64 bits is several such trees, or, where a carry goes from one to the next, a step that
// is computed in memory beforehand (wide.go). A [Writer] makes the trees, by the [Layout] that says
// where the packet's fields are, and writes the instructions that compute them, in R1 to R5 and R0.
// It imports ebpf/asm, bmv2json, interval and target.
package ir
