// Package etcdstore keeps a controller's state in etcd, and elects a leader among several
// controllers.
//
//	PREFIX leader/LEASE     the candidates (clientv3/concurrency): the oldest leads; its value says where its admin API is
//	PREFIX revision         changed by every write of state; its ModRevision is what a writer must have seen
//	PREFIX chains/NAME      chain.Record        PREFIX sessions   leases on writer sessions
//	PREFIX keys/KEY_ID      directory.Key       PREFIX avoided    switches that routes go around
//	PREFIX next, retired    where KEY_IDs go on, and those beyond that were used
//	PREFIX principals, switches, spaces, epoch, version   as in saved.State
//
// The value of "revision" is who wrote it, and the directory's floor: the highest version by name
// of the keys that were removed. Controllers of before did not keep it. Where they wrote last, the
// state that is read has a floor above all versions that names can have had
// (saved.State.FloorAbove).
//
// # One at a time
//
// Every write is a transaction on two conditions: the writer's key in the election is still there,
// under the revision that made it leader, and "revision" is unchanged since the writer last read
// it. So a late write of an earlier leader does nothing, two leaders never build on the same
// record, and every reader of the record reads the newest.
//
// The revision that made a controller leader grows from leader to leader. It is the high half of
// the election id at the switches (P4Runtime arbitration), which therefore accept nothing from an
// earlier leader once they have heard from a later one.
//
// Leases on reads are the one thing that a deposed leader could still give to switches that the new
// one cannot reach. A leader gives them only if it has asked etcd at most Leading ago whether it
// leads (Term.Led), and a new one assumes that its predecessor continued for that long after it was
// elected (controller.Options.Leading).
package etcdstore
