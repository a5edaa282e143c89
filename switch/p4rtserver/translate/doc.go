// Package translate turns P4Runtime's messages into an engine's, and back. [Bind] joins a P4Info
// and the program that it describes into a [Schema]. A table's keys, an action's parameters,
// restrictions on entries, typed data and byte strings are checked against it as the specification
// requires (P4Runtime 1.4.1, sections 7 to 9). It has no connection and no state; package
// p4rtserver is the server.
package translate

// APIVersion is the P4Runtime API version of the messages.
const APIVersion = "1.4.1"
