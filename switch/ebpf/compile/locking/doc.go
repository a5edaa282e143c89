// Package locking emits the code with which a packet gets exclusive use of the registers and
// releases them. BMv2 runs one packet at a time, so a packet's operations on registers are atomic
// for all others. Here packets run on several CPUs, so one of three methods provides this
// atomicity:
//
//   - one lock for all registers (lock.go);
//   - locks for the numbers by which the packet selects registers, so that other packets can run in
//     parallel (stripes.go);
//   - no lock, for packets that only read, and check afterwards whether a register was written
//     (unlocked.go).
//
// Packages memory and paths find out by which numbers a packet selects registers. lock.go explains
// Barrier, by which the control plane waits for packets.
package locking
