// Package watchrules decides which versions watchers get, and which reads that needs. It has no
// clock, no goroutines and no network. nodeapi/watch drives it.
//
// The guarantee (docs/consistency.md, "Watches"): each watcher gets each key's newest committed
// version, versions only grow, and a watcher misses no version that stays the newest. Versions that
// were overtaken before a watcher took them are left out, and counted.
//
// The hub learns about commits in two ways. The network *notifies* it: soon, but a notification can
// be lost, duplicated, late, or out of order. And it *reads* keys: a read returns the version that
// was the newest when it began, or a newer one. So notifications make it fast, and reads make it
// right:
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
