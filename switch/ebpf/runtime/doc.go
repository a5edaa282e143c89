// Package runtime is the control plane's side of a program that the kernel runs. A [Pipeline] gives
// a translated program and its maps to the kernel, keeps its own list of entries, groups and
// defaults, checks every call of [target.Pipeline] against it, and writes to the shared memory what
// packets then see, each change as a whole. A [Switch] outlives pipelines: it has the ports of
// interfaces, and the rings by which packet-ins and digests come. It knows no interfaces. It
// imports ebpf/compile, ebpf/ir, bmv2json and target.
package runtime
