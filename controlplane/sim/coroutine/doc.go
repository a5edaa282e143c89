// Package coroutine runs blocking procedures in simulated time.
//
// The procedures of package ops are plain functions that block. Here they are coroutines: one runs
// at a time, until it waits for something; the loop resumes it when that has happened. So a seed
// always gives the same run.
package coroutine
