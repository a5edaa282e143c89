// Package translate converts P4Runtime's messages to an engine's types, and back. [Bind] combines a
// P4Info and the program that it describes to a [Schema]. The package checks a table's keys, an
// action's parameters, restrictions on entries, typed data and byte strings against the Schema, as
// the specification requires (P4Runtime 1.4.1, sections 7 to 9). It has no connection and no state.
// Package p4rtserver is the server.
package translate

// APIVersion is the P4Runtime API version of the messages.
const APIVersion = "1.4.1"
