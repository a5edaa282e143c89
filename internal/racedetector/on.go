//go:build race

package racedetector

// Enabled: memory and time are several times as much with it.
const Enabled = true
