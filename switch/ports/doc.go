// Package ports moves Ethernet frames between Linux network interfaces and a program that switches
// them: the front panel of a software switch.
//
// A [Set] owns one thread, the packet thread. It looks at the receive ring of every port in turn,
// passes each frame to one handler, and sends what the handler queued with [Set.Send] when the
// batch is over. With one thread, frames enter the handler one after the other, so the handler is
// atomic with respect to other frames, as ingress is in BMv2.
//
// How a frame gets in. Each port has a packet socket (AF_PACKET, see packet(7)) with a
// memory-mapped ring in the TPACKET_V2 format. Version 2 publishes frame by frame; version 3
// publishes blocks, and a block that is not full waits for a timer of a millisecond or more, which
// a request-reply protocol cannot afford. So receiving from a busy port costs no system call. The
// ring also has what the kernel removed from the wire frame: an 802.1Q tag that was stripped (put
// back here), and a transport checksum that the sender left to hardware which a virtual link does
// not have (computed here; without it, frames of a neighbour with checksum offload would leave by
// another port with a wrong checksum).
//
// How a frame gets out. With sendmmsg(2), up to a batch in one call, through the interface's
// queueing discipline, so that tc(8) settings of emulated links count. A PACKET_TX_RING is not
// used: on veth the kernel gives its slots back while the receiver still reads the page that they
// are in.
//
// When there is nothing to do the thread spins for a few tens of microseconds at most, and only
// while spinning has lately been paying (see [spinner]), then sleeps in ppoll(2).
//
// An interface that goes down or disappears marks its port down, and the others continue. A port
// comes back when its interface does, found by name.
//
// It imports offload alone.
package ports
