// Package paper is NetCRAQ as the paper "Scalable Data Plane Caching for Kubernetes" (CNSM 2022)
// describes it. netcraq_paper.p4 is the program. This package has its packets, a controller that
// loads it, and a load, so that it can be measured beside NetChain and the shipped program.
//
//	      client                s1 (head)            s2                 s3 (tail)
//	WRITE ─▶ to s1 ─────────────▶ number, dirty cell ─▶ dirty cell ─────▶ clean cell ─▶ ACKNOWLEDGE to all
//	READ  ─▶ to the own switch ─▶ clean? reply
//	                              dirty? ───────────────────────────────▶ reply
//
// It has no sessions, leases, access control or watches, and nobody handles failures: README.md says
// what is the paper's and what is not. It is for reading and for measurements. The program that
// NetCRAQ ships is in package p4src.
package paper
