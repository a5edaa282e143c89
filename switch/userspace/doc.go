// Package userspace is a P4 switch in user space. It is a [target.Device] that combines the interp
// engine with AF_PACKET ports. All packets pass the packet thread of [ports.Set], one after the
// other: packets from interfaces, a controller's packet-outs, and, within the engine, recirculated
// packets. So each packet's operations on registers are atomic, as in BMv2, and a pipeline is
// exchanged between two packets. device.go handles packets, engine.go handles programs, and
// ports.go handles interfaces. It imports interp, ports, bmv2json and target.
package userspace
