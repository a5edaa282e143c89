// Package program extracts from a compiled P4 program what the controller needs: how many keys,
// sessions and routes it holds, whether a topology fits it and which slots each chain gets
// (program.go), which other programs a switch may keep running for now (kin.go), and the names of
// the cells of its event counters (counters.go). Everything comes from the P4Info; the package
// contacts no switch.
package program
