// Package lab has the common parts of tests of the whole system: a network of real switches and
// hosts in network namespaces (Network, Host), a controller in this process (Controller) or two
// controller processes that use an etcd (Team), and clients whose histories are checked (Workload,
// CheckHistory).
//
//	test ── Controller ── proxy ── switch 1 ── host 1    a proxy can be cut,
//	          (or Team)    proxy ── switch 2 ── host 2    a switch killed
//	                                  └ cables, which may have faults
package lab
