// Package asm writes BPF functions: instructions whose jumps go to labels. It drops unreachable
// instructions, and links functions into one program. It also defines the registers with the same
// meaning in all functions of a program. It knows nothing about P4, and imports no other package of
// this project. Users import it under the name code, because they also import
// github.com/cilium/ebpf/asm for the instructions.
package asm
