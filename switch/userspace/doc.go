// Package userspace is a P4 switch in user space: [target.Device] made of the interp engine and
// AF_PACKET ports. All packets pass through the packet thread of [ports.Set], one after the other:
// those from interfaces, those that a controller sends, and the recirculated ones within the
// engine. So each packet's work on registers is atomic, as in BMv2, and a pipeline is exchanged
// between two packets. device.go has the way of a packet, engine.go that of a program, ports.go the
// interfaces. It imports interp, ports, bmv2json and target.
package userspace
