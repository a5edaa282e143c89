// Package p4rtserver serves P4Runtime (specification 1.4.1, API p4.v1) over any [target.Device].
//
// The server stands between two languages. A controller speaks of numeric ids from the P4Info, byte
// strings without leading zeros and fields that may be left out; an engine speaks of names, values
// of full width and keys that are all there. Everything that can be judged without the engine is
// judged here: a request that reaches it is well formed. What the engine does not keep, because
// packets have no use for it (an entry's metadata, a group's max_size, who is primary), is kept
// here, and a read joins the two.
//
// The parts, each in its own file:
//
//   - arbitration: roles, election ids, who may write (section 5);
//   - stream: the StreamChannel RPC with packet I/O, digests and stream errors (section 16);
//   - config: the forwarding pipeline RPCs (sections 14 and 15);
//   - write and read: batches and their error details (sections 12 and 13);
//   - table, profile, counter, meter, register, pre, valueset, digest: one entity each (section 9);
//   - since: of a register, what has changed since it was read (not P4Runtime's).
//
// Package translate, below it, has what needs no server: the P4Info bound to its program (section
// 7), and the values inside the entities (section 8).
//
// Locking. Writes and pipeline changes are serialised by one lock, reads share it: a read sees each
// write whole or not at all, and writes are strictly serialisable, as sections 12.1 and 13.4
// require. Packets do not take it; before a Write is answered the engine makes sure that none
// continues with what was there before ([target.Pipeline.Barrier]). Under that lock the server
// checks that a controller is primary and still connected (mayExecute). Local, for other protocols,
// has neither an election nor a caller that could give up: what Thrift has read of a call it
// executes.
//
// It imports bmv2json, target and translate.
package p4rtserver
