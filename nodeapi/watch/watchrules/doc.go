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
//	what happens                                         what is done
//	a watcher begins to follow a key                     the key is read; nothing is told before a
//	                                                     read that began afterwards has ended
//	a notification, of a newer version                   told
//	... whose sequence is not the next, or whose epoch   told; and all keys of the chain are read:
//	    is another                                       what lost one may have lost others
//	a notification of an older version                   nothing
//	nothing, for Config.Round                            the key is read
//	a read fails                                         it is done again, later and later
//	a watcher is slow                                    one change waits for it per key: the newest
package watchrules
