// Package lab has the common parts of tests of the whole system. It provides a network of real
// switches and hosts in network namespaces (Network, Host). It also provides a controller in the
// test's process (Controller), or two controller processes that use an etcd (Team). Clients run a
// Workload, and CheckHistory checks their histories.
//
//	test ── Controller ── proxy ── switch 1 ── host 1    a proxy can be cut,
//	          (or Team)    proxy ── switch 2 ── host 2    a switch killed
//	                                  └ cables, which may have faults
package lab
