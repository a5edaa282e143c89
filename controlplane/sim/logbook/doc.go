// Package logbook records a run for people: its timeline, line by line (line.go), and the number of
// times that everything happened (coverage.go).
package logbook
