// Package asm writes BPF functions: instructions whose jumps go to labels, dropped if nothing
// reaches them, and linked to one program. It also says which registers mean the same in all
// functions of a program. It knows nothing about P4, and imports nothing of this project. Since
// github.com/cilium/ebpf/asm, which has the instructions, is imported alongside it, who uses this
// package calls it code.
package asm
