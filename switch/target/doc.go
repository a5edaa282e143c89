// Package target is the contract between the engines that run a P4 program (interp in user space,
// ebpf in the kernel) and their drivers: the P4Runtime server, the STF runner and the tests.
//
// There are two interfaces with different lifetimes:
//
//   - a [Device] is a switch: it owns ports and moves frames. It lives as long as the process,
//     across pipeline pushes.
//   - a [Pipeline] is one committed program and its state (tables, registers, counters, groups). A
//     push replaces it as a whole.
//
// Names are the fully qualified names that p4c writes into the BMv2 JSON, which are also the
// preamble names in P4Info ("Ingress.ipv4_lpm"). Values are big-endian byte strings of exactly
// (width+7)/8 bytes, the unused high bits zero; the JSON has the widths. The P4Runtime server
// canonicalises values (P4Runtime specification, section 8.4), so engines see only one form.
//
// It imports only bmv2json.
package target
