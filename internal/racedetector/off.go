//go:build !race

// Package racedetector tells whether the program was built with Go's race detector. If a test
// would take too much time or memory with the detector, make test runs it without.
package racedetector

// Enabled reports whether the race detector is on.
const Enabled = false
