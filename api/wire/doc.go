// Package wire encodes and decodes NetCRAQ packets. docs/protocol.md is the normative description
// of a packet. The file p4src/include/headers.p4 of the P4 program defines the same packet in P4.
//
// A packet is a UDP payload. It has a header of 24 bytes in network byte order, followed by the
// value field. The width of the value field is fixed when the P4 program is compiled (the Profile).
// A packet never grows or shrinks on its way. Therefore a READ also carries a value field, filled
// with zeros, and the switch writes the reply in place.
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
// The paper's packet has op, key and value, which is 22 bytes with its 16-byte value. A NetCRAQ
// packet with a value of this length has 40 bytes. Of the additional 18 bytes, 8 are for versions,
// which order acknowledgements, and 2 are for fencing by epoch. Another 6 serve to execute writes
// only once and to match replies to requests, and 2 are for values of variable length.
//
// Port is the UDP destination port of requests and the UDP source port of replies. The op
// determines the meaning of the second byte (Op.IsReply), so a Packet has both Flags and Status,
// and Marshal refuses a packet that sets the wrong one.
package wire
