//go:build !race

// Package racedetector tells whether the program was built with Go's race detector. make test runs
// some tests without the race detector, because with it they take too much time or memory.
package racedetector

// Enabled reports whether the race detector is on.
const Enabled = false
