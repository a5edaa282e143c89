// Package netchain is the baseline for NetCRAQ: NetChain (Jin et al., NSDI 2018), chain replication
// in switches, as the paper "Scalable Data Plane Caching for Kubernetes" (CNSM 2022) uses it.
// netchain.p4 is the program; this package has its packets and the program as p4c compiled it.
//
//	      client                 s1 (head)        s2               s3 (tail)
//	WRITE ─▶ to s1, then s2, s3 ─▶ number, store ─▶ newer? store ─▶ newer? store ─▶ reply
//	READ  ─▶ to s3, then s2, s1 ────────────────────────────────▶ reply
//
// The client names the chain in each packet: the first switch is the destination, the others are
// the list in the header. So a switch needs no information about chains; the controller tells it
// about failed neighbours (tables gone and taken). README.md says which parts the paper has.
//
// The baseline has no handicap: it uses the same routes, targets and load as NetCRAQ. It lacks some
// properties by design: only the tail answers reads, clients resend lost packets, and a write that
// is sent again is executed again.
package netchain
