// Package paperchain runs the paper's NetCRAQ, the program in p4src/paper: it has the program's
// packets, a control plane that loads it into the switches of a topology, a client, and a load, so
// that it can be measured beside NetChain and the shipped program.
//
//	      client                s1 (head)            s2                 s3 (tail)
//	WRITE ─▶ to s1 ─────────────▶ number, dirty cell ─▶ dirty cell ─────▶ clean cell ─▶ ACKNOWLEDGE to all
//	READ  ─▶ to the own switch ─▶ clean? reply
//	                              dirty? ───────────────────────────────▶ reply
//
// The program has no sessions, leases, access control or watches, and nothing here handles
// failures. p4src/paper/README.md says which parts the paper has.
package paperchain
