// Package coroutine runs procedures that block, by the time of a simulated run.
//
// Procedures of package ops are plain functions that block. Here they are coroutines: one runs at a
// time, until it waits for something; the loop resumes it when that has happened. So the same seed
// does the same.
package coroutine
