// Package compile translates a checked program of package bmv2json into BPF instructions. [NewPlan]
// decides where everything is that the program keeps, [Translate] writes the code for one hook:
//
//	ingress.go          a frame has come in: its port and length, its bytes into the PHV
//	parser.go           state by state
//	checksum.go         verified, and updated in the end
//	control.go          ingress, node by node: table.go, action.go
//	traffic_manager.go  one copy, or one for each replica; each takes control.go's egress
//	deparser.go         the headers into the frame
//	send.go             out by an interface, or to the ring; recirculate.go: once more
//
// Nothing here talks to the kernel: a program is a function of the plan, the hook, the maps'
// numbers and the settings. What cannot be translated is refused with its place in the JSON. It
// imports ebpf/ir, ebpf/asm, bmv2json, interval and udpmatch.
package compile
