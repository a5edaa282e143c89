// Package translate turns P4Runtime's messages into what an engine understands, and back. [Bind]
// joins a P4Info and the program that it describes into a [Schema]. A table's keys, an action's
// parameters, restrictions on entries, typed data and byte strings are checked against it as the
// specification asks (P4Runtime 1.4.1, sections 7 to 9). It knows no connection and keeps no
// state; package p4rt is the server.
package translate

// APIVersion is the version of the P4Runtime API that the messages are of.
const APIVersion = "1.4.1"
