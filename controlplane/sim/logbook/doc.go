// Package logbook records a run for people. It records the run's timeline, line by line (line.go),
// and how often each thing happened (coverage.go).
package logbook
