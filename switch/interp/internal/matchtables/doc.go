// Package matchtables holds the data with which the control plane steers packets: match-action
// tables, the members and groups of action profiles, and parser value sets.
//
// A [Table] packs the fields of its key into few lanes (keys.go). It looks the key up in a
// structure that depends on its match kind (finders.go, wordmap.go). An [Entry] says which action
// runs, with which parameters. The package knows an action by its number, but does not run it.
//
// changes.go, members.go and ageing.go are for the control plane. The caller must serialize these
// calls. Changes that packets could notice are made under the mutex that is held while a packet is
// in the program.
package matchtables
