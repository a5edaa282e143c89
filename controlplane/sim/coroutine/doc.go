// Package coroutine runs blocking procedures in simulated time.
//
// The procedures of package ops are plain functions that block. Here they are coroutines, of which
// only one runs at a time. A coroutine runs until it waits for something, and the loop resumes it
// when that has happened. So a seed always gives the same run.
package coroutine
