// Package p4rtserver serves P4Runtime (specification 1.4.1, API p4.v1) over any [target.Device].
//
// The server translates between two forms. A controller uses numeric ids from the P4Info, byte
// strings without leading zeros, and optional fields. An engine uses names, values of full width,
// and complete keys. The server makes every check that needs no engine, so requests that reach the
// engine are well formed. It also stores the data that packets do not need (an entry's metadata, a
// group's max_size, the primary). A read combines this data with the engine's data.
//
// The parts, each in its own file:
//
//   - arbitration: roles, election ids, and which controller may write (section 5);
//   - stream: the StreamChannel RPC with packet I/O, digests and stream errors (section 16);
//   - config: the forwarding pipeline RPCs (sections 14 and 15);
//   - write and read: batches and their error details (sections 12 and 13);
//   - table, profile, counter, meter, register, pre, valueset, digest: one entity each (section 9);
//   - since: the changes of a register since an earlier read (not part of P4Runtime).
//
// Package translate has the parts that need no server: the P4Info bound to its program (section 7),
// and the values inside the entities (section 8).
//
// Locking. One lock serializes writes and pipeline changes, and reads share it. So a read sees each
// write completely or not at all, and writes are strictly serialisable, as sections 12.1 and 13.4
// require. Packets do not take the lock. Before the server answers a Write, the engine makes sure
// that no packet still uses the previous content ([target.Pipeline.Barrier]). While it holds the
// lock, the server checks that a controller is primary and still connected (mayExecute). Local, for
// other protocols, has no election, and its callers cannot abandon a call: the Thrift server
// executes every call that it has read.
//
// It imports bmv2json, target and translate.
package p4rtserver
