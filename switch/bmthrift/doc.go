// Package bmthrift serves the Thrift interface of BMv2's simple_switch over any [target.Device],
// for its clients: simple_switch_CLI, bm_CLI, p4-utils' controllers.
//
// Package idl has the interface: the .thrift files, and the same types in Go. The table services
// names the method of handler that executes each call. Reflection does the rest: codec.go writes
// and reads the types, and services.go gets a call's arguments from the parameters of its method. A
// new call takes a line in a .thrift file, one in the table and a method. TestIDL compares them.
//
// It serves P4Runtime's state (see p4rt.Local). Objects to which BMv2 gives a handle (entries,
// members, groups, nodes of multicast groups) get one here, whichever protocol created them:
//
//   - an entry the lowest number that is free in its table, with a count of how often the number
//     has been used in the bits above 24, as in BMv2;
//   - a member or a group its id in P4Runtime less one: ids begin at 1 there, handles at 0 here;
//   - a node of a group that P4Runtime made: one for each replication id in it.
//
// Priorities are turned round: the smallest wins here, the largest in P4Runtime. 2147483647 less
// the one is the other, as in BMv2.
//
// The interface has codes for errors, and no text; the details are logged.
//
// Whoever can connect can do everything, as in BMv2: there is no authentication in the protocol. So
// the server listens on the loopback address unless you configure another. It bounds connections,
// messages, lists and the time that a message may take (see [Server]).
package bmthrift
