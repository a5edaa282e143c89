// Package ports moves Ethernet frames between Linux network interfaces and a program that switches
// them. It is the front panel of a software switch.
//
// A [Set] owns one thread, the packet thread. The thread polls the receive ring of every port in
// turn, and passes each frame to one handler. After each batch it sends the frames that the handler
// queued with [Set.Send]. With one thread, frames enter the handler one after the other. So the
// handler is atomic with respect to other frames, as ingress is in BMv2.
//
// Receiving. Each port has a packet socket (AF_PACKET, see packet(7)) with a memory-mapped ring in
// the TPACKET_V2 format. So receiving from a busy port costs no system call. Version 2 publishes
// frame by frame. Version 3 publishes blocks, and a block that is not full waits for a timer of a
// millisecond or more, which is too long for a request-reply protocol. The ring also has data that
// is missing in the frame. The kernel strips an 802.1Q tag, which this package puts back. A sender
// may leave the transport checksum to hardware, which a virtual link does not have, so this package
// computes the checksum. Otherwise frames of a neighbour with checksum offload would leave through
// another port with a wrong checksum.
//
// Sending. The thread calls sendmmsg(2) for up to a batch of frames. They pass the interface's
// queueing discipline, so tc(8) settings of emulated links apply. The package does not use a
// PACKET_TX_RING, because on veth the kernel releases the ring's slots while the receiver still
// reads their pages.
//
// When there is nothing to do, the thread spins for a few tens of microseconds at most, and only if
// spinning has recently been useful (see [spinner]). Then it sleeps in ppoll(2).
//
// If an interface goes down or disappears, its port is down, and the other ports continue. The port
// comes back when an interface with the same name does.
//
// It imports only package offload.
package ports
