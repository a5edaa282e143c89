// Package arrays holds a P4 program's indexed data that outlives a packet: registers, counters and
// meters.
//
// Packets change cells without a lock, because one packet at a time is in the program.
// Control-plane functions that take long have the mutex that is held while a packet is in the
// program as a parameter. They release this mutex between batches of cells.
package arrays
