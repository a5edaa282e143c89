// Package paperchain runs the paper's NetCRAQ, which is the program in p4src/paper. The package has
// the program's packets, a control plane that loads the program into the switches of a topology, a
// client, and a load. So the program can be measured next to NetChain and the shipped program.
//
//	      client                s1 (head)            s2                 s3 (tail)
//	WRITE ─▶ to s1 ─────────────▶ number, dirty cell ─▶ dirty cell ─────▶ clean cell ─▶ ACKNOWLEDGE to all
//	READ  ─▶ to the own switch ─▶ clean? reply
//	                              dirty? ───────────────────────────────▶ reply
//
// The program has no sessions, leases, access control or watches, and nothing here handles
// failures. p4src/paper/README.md says which parts come from the paper.
package paperchain
