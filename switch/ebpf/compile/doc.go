// Package compile translates a checked program of package bmv2json into BPF instructions. [NewPlan] decides where
// everything is that the program keeps, [Translate] writes the code for one hook:
//
//	frame ──▶ ingress.go ──▶ parser.go ──▶ checksum.go ──▶ control.go ──▶ traffic_manager.go ──▶ deparser.go ──▶ send.go
//	          port, length   state by      verified        node by node   a copy for each        the headers     out by
//	                         state                         (table.go,     replica; each takes    into the        an interface,
//	                                                       action.go)     control.go's egress    frame           or to the ring
//
// Nothing here talks to the kernel: a program is a function of the plan, the hook, the maps' numbers and the settings.
// What cannot be translated is refused with its place in the JSON. It imports ebpf/ir, ebpf/asm, bmv2json, interval and
// udpmatch.
package compile
