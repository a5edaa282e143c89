// Package watchrules decides which versions watchers get, and which keys must be read for this. It
// has no clock, no goroutines and no network. nodeapi/watch drives it.
//
// The guarantee is described in docs/consistency.md, "Watches". Each watcher gets the newest
// committed version of each key. The versions that a watcher gets for a key only grow, and a
// watcher misses no version that stays the newest. If a newer version is committed before a watcher
// has taken a version, that version is skipped and counted.
//
// The hub learns about commits in two ways. First, the network *notifies* it soon after a commit,
// but a notification can be lost, duplicated, late, or out of order. Second, the hub *reads* keys.
// A read returns the version that was the newest when the read began, or a newer version. So
// notifications make watches fast, and reads make them correct. This table shows how the machine
// reacts to events:
//
//	event                                                reaction
//	a watcher begins to follow a key                     the key is read; nothing is reported before a
//	                                                     read that began afterwards has ended
//	a notification of a newer version                    the version is reported
//	... whose sequence is not the next, or whose epoch   also, all keys of the chain are read, because
//	    is a different one                               more notifications may have been lost
//	a notification of an older version                   none
//	no event for Config.Round                            the key is read
//	a read fails                                         it is repeated, with growing pauses
//	a watcher is slow                                    only the newest change of each key waits for it
package watchrules
