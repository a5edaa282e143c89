// Package bmthrift serves the Thrift interface of BMv2's simple_switch over any [target.Device],
// for its clients: simple_switch_CLI, bm_CLI, p4-utils' controllers.
//
// Package idl has the interface: the .thrift files, and the same types in Go. The table services
// names the method of handler that executes each call. Reflection does the rest: codec.go writes
// and reads the types, and services.go gets a call's arguments from the parameters of its method. A
// new call takes a line in a .thrift file, one in the table and a method. TestIDL compares the
// files, the types and the table.
//
// It serves P4Runtime's state (see p4rtserver.Local). Objects to which BMv2 gives a handle
// (entries, members, groups, nodes of multicast groups) get one here, whichever protocol created
// them:
//
//   - an entry gets the lowest free number in its table; as in BMv2, the bits from 24 on count how
//     often the number was used before;
//   - a member or a group gets its P4Runtime id minus one, because ids begin at 1 and handles at 0;
//   - a multicast group that P4Runtime made gets one node for each replication id.
//
// Priorities are inverted: here the smallest priority wins, in P4Runtime the largest. As in BMv2, a
// priority here is 2147483647 minus P4Runtime's.
//
// The interface has codes for errors, and no text; the details are logged.
//
// The protocol has no authentication. As in BMv2, any client that can connect can do everything. So
// the server listens on the loopback address unless you configure another. It bounds connections,
// messages, lists and the time that a message may take (see [Server]).
package bmthrift
