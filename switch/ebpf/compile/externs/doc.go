// Package externs emits the calls of v1model's externs that keep state between packets (registers,
// counters and meters), and of random.
package externs
