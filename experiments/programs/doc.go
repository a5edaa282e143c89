// Package programs measures how long the program of one switch takes for one packet. It measures
// several systems, on the eBPF engine (BPF_PROG_TEST_RUN) and on the interpreter, without devices
// and sockets.
//
// The switches are set up for a chain of four in a line, with the client at the head:
//
//	h1 ── s1 ── s2 ── s3 ── s4
//	      head  replica     tail
//
// Each kind of packet that a read or a write of that client sends through the chain is one [Case]
// for each system. Cases are measured in turn, so that other work on the machine affects all
// systems.
package programs
