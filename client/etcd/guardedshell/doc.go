// Package guardedshell does the input and output for package guarded. It provides goroutines and
// timers (Runtime), leases in etcd (Sessions), and the check whether etcd lets everybody read
// (Open). Package slotclient accesses the slots. Package service combines all of these.
package guardedshell
