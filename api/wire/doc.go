// Package wire is the NetCRAQ packet, encoded and decoded in one place. docs/protocol.md is its
// normative description; the P4 program's p4src/include/headers.p4 is the same thing in P4.
//
// A packet is the UDP payload: a header of 24 bytes in network byte order and then the value field,
// whose width is fixed when the P4 program is compiled (the Profile). A packet never grows or
// shrinks on its way: a READ carries the value field too, zeroed, and its reply is written in
// place.
//
//	 0        1        2        3        4        5        6        7
//	+--------+--------+--------+--------+--------+--------+--------+--------+
//	|   op   | flags/ |      epoch      |     session     |     length      |
//	|        | status |                 |                 |                 |
//	+--------+--------+--------+--------+--------+--------+--------+--------+
//	|              request              |                key                |
//	+--------+--------+--------+--------+--------+--------+--------+--------+
//	|            version: chain epoch (16), sequence (48)                   |
//	+--------+--------+--------+--------+--------+--------+--------+--------+
//	|            value, VALUE_BITS wide; what is beyond length is zero      |
//	+--------+--------+-- ...
//
// The paper's header has op, key and value: 22 bytes with its 16-byte value. This one has 40 bytes
// with that value. The additional 18 bytes are for versions, which order acknowledgements (8),
// fencing by epoch (2), writes that execute once and replies that find their request (6), and
// values of variable length (2).
//
// Requests have UDP destination port Port, replies have it as their source port. The op determines
// the meaning of the second byte (Op.IsReply), so a Packet has both Flags and Status, and Marshal
// refuses a packet that sets the wrong one.
package wire
