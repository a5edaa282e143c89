//go:build race

package racedetector

// Enabled reports whether the race detector is on. The race detector multiplies the use of memory
// and time.
const Enabled = true
