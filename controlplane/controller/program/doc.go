// Package program extracts from a compiled P4 program what the controller needs: how many keys,
// sessions and routes it holds (program.go), whether a topology fits it and which slots each chain
// gets, which other programs a switch may keep running for now (kin.go), and the names of its event
// counters' cells (counters.go). All of it comes from the P4Info; nothing here talks to a switch.
package program
