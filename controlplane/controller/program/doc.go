// Package program extracts from a compiled P4 program what the controller needs. program.go finds
// how many keys, sessions and routes the program holds, whether a topology fits it, and which slots
// each chain gets. kin.go finds which other programs a switch may keep running for now. counters.go
// names the cells of the program's event counters. Everything comes from the P4Info, so the package
// contacts no switch.
package program
