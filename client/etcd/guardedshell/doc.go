// Package guardedshell is what package guarded is given to work with, which does no input or output
// of its own: goroutines and timers (its Runtime), leases in etcd (its Sessions), and whether etcd
// lets everybody read (its Open). The slots are slotclient's; package service puts it all together.
package guardedshell
