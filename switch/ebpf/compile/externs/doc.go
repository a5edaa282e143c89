// Package externs writes the calls of v1model's externs that keep something from one packet to the
// next: registers, counters and meters; and of random.
package externs
