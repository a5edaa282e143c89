// Package program knows what the controller must know about a compiled P4 program: how many keys,
// sessions and routes it holds (program.go), whether a topology fits it and which slots each chain
// gets, which other programs a switch may continue running for now (kin.go), and what the cells of
// its counter of events are called (counters.go). All of it is read from the P4Info; nothing here
// talks to a switch.
package program
