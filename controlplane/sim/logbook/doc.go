// Package logbook is what a run leaves for people: its timeline, line by line (line.go), and how
// often everything happened (coverage.go).
package logbook
