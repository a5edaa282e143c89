// Package netchain is the baseline that NetCRAQ is compared with: NetChain (Jin et al., NSDI 2018),
// chain replication in switches, as the paper "Scalable Data Plane Caching for Kubernetes" (CNSM
// 2022) takes it. netchain.p4 is the program; this package has its packets and the program as p4c
// compiled it.
//
//	      client                 s1 (head)        s2               s3 (tail)
//	WRITE ─▶ to s1, then s2, s3 ─▶ number, store ─▶ newer? store ─▶ newer? store ─▶ reply
//	READ  ─▶ to s3, then s2, s1 ────────────────────────────────▶ reply
//
// The client names the chain in each packet: the first switch is the destination, the others are
// the list in the header. So a switch needs to know nothing about chains; what it needs to know
// about a neighbour that is gone the controller tells it (tables gone and taken). README.md says
// what is the paper's and what is not.
//
// It is to be as good as its authors would make it: the same routes, targets and load as NetCRAQ,
// no handicap. It lacks some properties by design: only the tail answers reads, clients resend lost
// packets, and a write that is sent again is executed again.
package netchain
