// Package arrays holds a P4 program's indexed data that outlives a packet: registers, counters and
// meters.
//
// Packets change cells without a lock, because one packet at a time is in the program. Long
// functions of the control plane take, as a parameter, the mutex that is held while a packet is in
// the program. They release it between batches.
package arrays
