//go:build race

package unannounced

const raceDetector = true
