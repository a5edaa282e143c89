// Package runtime is the control plane's side of a program in the kernel. A [Pipeline] loads a
// translated program and its maps into the kernel. It keeps its own list of entries, groups and
// defaults, and checks every call of [target.Pipeline] against this list. It writes changes to the
// shared memory, each atomically for packets. A [Switch] outlives pipelines. It has the mapping
// between ports and interfaces, and the rings through which packet-ins and digests arrive. The
// package does not change interfaces. It imports ebpf/compile, ebpf/ir, bmv2json and target.
package runtime
