// Package guardedshell does the input and output for package guarded: goroutines and timers (its
// Runtime), leases in etcd (its Sessions), and the check whether etcd lets everybody read (its
// Open). Package slotclient accesses the slots; package service puts it all together.
package guardedshell
