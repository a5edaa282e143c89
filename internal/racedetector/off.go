//go:build !race

// Package racedetector tells whether the program was built with Go's race detector. make test runs
// tests that take too much time or memory with it without it.
package racedetector

// Enabled reports whether the race detector is on.
const Enabled = false
