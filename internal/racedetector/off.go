//go:build !race

// Package racedetector says whether the program was built with Go's race detector. Tests that take
// too long or too much with it are run by make test without it.
package racedetector

// Enabled reports whether it was.
const Enabled = false
