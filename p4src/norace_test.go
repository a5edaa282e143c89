//go:build !race

package p4src

const raceDetector = false
