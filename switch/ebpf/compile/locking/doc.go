// Package locking writes the instructions by which a packet gets the registers to itself, and gives
// them back. BMv2 runs one packet at a time, so what a packet does to registers is one step for all
// others. Here packets run on several CPUs, and one of three ways makes it so:
//
//   - one lock for all registers (lock.go);
//   - a lock for the numbers that the packet uses, so that others may go on (stripes.go);
//   - no lock, for packets that only read: they look afterwards whether anybody has written
//     (unlocked.go).
//
// Which registers a packet takes by which number is found in packages memory and paths. Barrier, by
// which the control plane waits for packets, is explained in lock.go.
package locking
