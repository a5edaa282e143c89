//go:build race

package p4src

// raceDetector: memory is several times as much with it.
const raceDetector = true
