// Package asm writes BPF functions: instructions whose jumps go to labels, dropped if nothing
// reaches them, and linked to one program. It also defines the registers with the same meaning in
// all functions of a program. It knows nothing about P4, and imports nothing of this project. Users
// import it as code, because they also import github.com/cilium/ebpf/asm for the instructions.
package asm
