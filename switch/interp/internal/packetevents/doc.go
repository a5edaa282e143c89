// Package packetevents reports each packet's processing to watchers: a [Listener] gets events like
// those of BMv2's event logger, and a trace gets lines of text like BMv2's log.
//
// An [Observer] numbers and names the packets for both. Without a watcher a packet only costs a few
// tests of a flag.
package packetevents
