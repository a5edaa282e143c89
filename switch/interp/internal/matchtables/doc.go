// Package matchtables holds the control plane's data for packets: match-action tables, the members
// and groups of action profiles, and parser value sets.
//
// A [Table] packs the fields of its key into few lanes (keys.go) and looks the key up in a
// structure that fits its kind of match (finders.go, wordmap.go). An [Entry] says which action
// runs, with which parameters. The package knows an action by its number; it does not run it.
//
// changes.go, members.go and ageing.go are for the control plane. The caller must serialize these
// calls. Changes that packets could notice are made under the mutex that is held while a packet is
// in the program.
package matchtables
