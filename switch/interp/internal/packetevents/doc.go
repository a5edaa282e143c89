// Package packetevents reports each packet's processing to watchers. A [Listener] gets events like
// those of BMv2's event logger. A trace gets lines of text like BMv2's log.
//
// An [Observer] numbers and names the packets for both kinds of watchers. Without a watcher, a
// packet only costs a few tests of a flag.
package packetevents
