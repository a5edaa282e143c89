// Package etcdstore keeps a controller's state in etcd, and elects a leader among several
// controllers.
//
//	PREFIX leader/LEASE     the candidates (clientv3/concurrency): the oldest leads; its value says where its admin API is
//	PREFIX revision         changed by every write of state; a writer must have seen its ModRevision
//	PREFIX chains/NAME      chain.Record        PREFIX sessions   leases on writer sessions
//	PREFIX keys/KEY_ID      directory.Key       PREFIX avoided    switches that routes go around
//	PREFIX next, retired    the next KEY_IDs, and those above them that were used
//	PREFIX principals, switches, spaces, epoch, version   as in saved.State
//
// The value of "revision" has the number of the leader that wrote it, and the directory's floor:
// the highest version that a removed key's name had. Older controllers do not write the floor. If
// one of them wrote last, reading the state sets a floor above all versions that names can have had
// (saved.State.FloorAbove).
//
// # One at a time
//
// Every write is a transaction with two conditions. First, the writer's key in the election still
// exists, under the revision that made the writer leader. Second, "revision" is unchanged since the
// writer last read it. So a late write of an earlier leader does nothing, two leaders never build
// on the same record, and every reader of the record reads the newest.
//
// The revision that made a controller leader grows from leader to leader. It is the high half of
// the election id at the switches (P4Runtime arbitration). So a switch that a later leader has
// contacted accepts nothing from an earlier leader.
//
// A deposed leader could still give leases on reads to switches that the new leader cannot reach. A
// leader gives leases only if etcd has confirmed, within the duration Leading, that it leads
// (Term.Led). A new leader assumes that its predecessor continued for the same duration after the
// election (controller.Options.Leading).
package etcdstore
