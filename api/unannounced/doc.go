// Package unannounced reads and writes sockets with system calls that Go's scheduler does not know
// about. The sockets are nonblocking, so each call takes only some microseconds. If the scheduler
// knew about each call, it would wake its monitor thread whenever the process begins to work. The
// monitor would then check every 20 µs for goroutines in a system call. That costs a wake-up for
// each request on an idle machine, and a sixth of the processor time in a busy gateway.
package unannounced
