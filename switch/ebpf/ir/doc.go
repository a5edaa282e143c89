// Package ir computes P4's numbers with BPF instructions. An expression becomes a small tree of
// operations on 64-bit words ([Value], [Condition]). Each tree knows its largest possible value, so
// most of the masks that p4c writes after every operation can be dropped. An expression of more
// than 64 bits becomes several trees. If a carry goes from one word to the next, it becomes a step
// that is computed in memory beforehand (wide.go). A [Writer] creates the trees according to the
// [Layout] of the packet's fields. It emits the instructions that compute them, in R1 to R5 and R0.
// The package imports ebpf/asm, bmv2json, interval and target.
package ir
