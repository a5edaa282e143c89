// Package guardedshell is what a gateway gives package guarded to work with, which does no input or
// output of its own: goroutines and timers (its Runtime), leases in etcd (its Sessions), and
// whether etcd lets everybody read (its Open). The slots are slotclient's.
package guardedshell
