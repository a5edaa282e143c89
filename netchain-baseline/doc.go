// Package netchain is the baseline for NetCRAQ: NetChain (Jin et al., NSDI 2018), chain replication
// in switches, as the paper "Scalable Data Plane Caching for Kubernetes" (CNSM 2022) uses it.
// netchain.p4 is the P4 program. This package encodes its packets, embeds the compiled program, and
// has the controller.
//
//	      client                 s1 (head)        s2               s3 (tail)
//	WRITE ─▶ to s1, then s2, s3 ─▶ number, store ─▶ newer? store ─▶ newer? store ─▶ reply
//	READ  ─▶ to s3, then s2, s1 ────────────────────────────────▶ reply
//
// The client names the switches of the chain in each packet. The first switch is the destination,
// and a list in the header has the other switches. So a switch needs no information about chains.
// The controller tells it only about failed neighbours (tables gone and taken). README.md says
// which parts are in the paper.
//
// The baseline has no handicap: it uses the same routes, targets and load as NetCRAQ. NetChain
// lacks some properties by design. Only the tail answers reads, clients resend lost packets, and a
// write that is sent again is executed again.
package netchain
