// Package compile translates a checked program of package bmv2json into BPF instructions. It is the
// top of a small stack of packages, each with one subject. An arrow says which one imports which:
//
//	compile ─▶ control ─▶ tables ─▶ externs ─▶ headers ─▶ delivery ─┐
//	              │          └─▶ hashing ──────────────────────────┤
//	              └─▶ locking ─▶ paths ─┐                          ▼
//	                                    ├─▶ memory ◀───────────── emit
//	                                    └─▶ known     memory ─▶ affine, analysis
//
// The lower ones only decide, and yield plain data: analysis reads the program, memory gives all
// that it keeps a place ([memory.NewPlan]), known says what its tables hold, and paths follows the
// packets through ingress. The others write instructions, for which emit has the common words. What
// they write is put together here, in the order in which a packet comes by:
//
//	ingress.go          a frame has come in: its port and length, its bytes into the PHV
//	(headers)           parsed, state by state
//	(hashing)           checksums, verified, and updated in the end
//	(control)           ingress, node by node or path by path
//	traffic_manager.go  one copy, or one for each replica; each goes through egress
//	(headers)           the headers into the frame
//	(delivery)          out by an interface, or to the ring, or once more through the program
//
// Nothing here talks to the kernel: a program is a function of the plan, the hook, the maps'
// numbers and the settings. What cannot be translated is refused with its place in the JSON.
package compile
