// Package locking writes the instructions by which a packet gets exclusive use of the registers,
// and releases them. BMv2 runs one packet at a time, so a packet's operations on registers are one
// step for all others. Here packets run on several CPUs, and one of three ways has that effect:
//
//   - one lock for all registers (lock.go);
//   - a lock for the numbers that the packet uses, so that others may go on (stripes.go);
//   - no lock, for packets that only read: they look afterwards whether anybody has written
//     (unlocked.go).
//
// Packages memory and paths find which registers a packet takes by which number. lock.go explains
// Barrier, by which the control plane waits for packets.
package locking
