// Package saved defines the state that survives the controller, and the stores that keep it.
//
// A controller leaves a State to the next controller. It holds the chains' records, the directory
// of keys, the leases of sessions, and the numbers of principals. It also holds the switches that
// chains still need although they are no longer in the topology. A Store keeps it: in files (File),
// not at all (Memory), or in etcd (package etcdstore). A Saver writes it on a goroutine of its own,
// so that a slow disk does not delay leases.
package saved
