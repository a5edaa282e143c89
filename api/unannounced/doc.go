// Package unannounced reads and writes sockets with system calls that Go's scheduler does not know
// about. They do not block, because the socket does not, and take some microseconds. If the
// scheduler knew about each, it would wake its monitor whenever the process begins to do something,
// which would then check every 20 µs for goroutines in a system call: on an idle machine a wake-up
// for each request, and in a busy gateway a sixth of its processor time.
package unannounced
