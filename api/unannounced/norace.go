//go:build !race

package unannounced

const raceDetector = false
