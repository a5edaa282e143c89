// Package guarded is etcd's key-value service in which the switches answer reads of placed keys. It
// implements the rules of docs/etcd.md.
//
//	          Range of one placed key                 Put, DeleteRange, Txn
//	                   │                                       │
//	            read the slot                        guard the placed keys among
//	value, absent ─────┤                             those it may change, in order
//	  the answer       │ clear, guard, unfit, silence          │
//	                   ▼                                       ▼
//	                 etcd ◀──── as a transaction on the fence and the session
//	                   │                                       │
//	  if it was clear: populate                     publish what etcd has now
//
// This package has the logic on which correctness depends. It does no input or output of its own. A
// Server calls its Slots, its Directory, its Sessions and etcd, and waits through its Runtime
// (ports.go). In the gateway, Slots are a slotclient.Network and the Directory is a
// placement.Follower. Package guardedshell implements Sessions, with a lease in etcd, and Runtime,
// with goroutines. In the simulator (the tests of this package), all of them are parts of a
// deterministic world. Several gateways run there step by step, crash between any two steps, and
// have their messages lost or delivered late. The simulator returns the same errors as etcd's
// client and client/calls. Each rule has a mutant, which is the server without that rule. The tests
// must detect every mutant.
//
// # The rules, by the names that the code and the mutants use
//
//	guard               a write of a placed key first makes the key's slot unreadable
//	exclusive           no gateway takes over a guard whose session may be alive
//	break wait          a gateway asks etcd whether the session is alive only after it has seen the guard
//	key order           guards are acquired in the order of the keys, so that no two writes wait for each other
//	                    (TestGivenBack: a write that waits for a key first releases its guards of later keys)
//	handed on           a guard that one write leaves to the next keeps the first write's result
//	remembered          what a gateway remembers of a slot holds only for the version in which it left the slot
//	published late      a slot stays guarded until it has the write's result, though the client has its answer earlier
//	session condition   a write that holds guards is executed only if the session still exists
//	directory condition a write is executed only if there is no newer placement than the gateway knows (the fence)
//	give up             if it is not known whether etcd executed a write, its session is ended
//	words               an error after which etcd may have executed a write does not count as a refusal
//	publish CAS         publication replaces only the guard that this write acquired
//	populate CAS        a reader's cell replaces only the version that it read before it asked etcd
//	populate clear      only a clear slot is populated
//	not found           a missing slot is not written to; a write waits until the directory shows that the placement ended
//	lease               a key that is attached to a lease is not put into a slot
//	header              an answer from a slot names no revision newer than the reading of the slot
//
// These rules protect against programs that are not gateways and write slots:
//
//	sealed              a cell that no gateway has sealed is not trusted
//	seal key            a cell sealed for another key or another placement is not trusted
//	seal version        a cell sealed for another version of the slot is not trusted
//	clear once          a slot without a seal is clear only in the version in which placement made it
//	forged stays        no gateway overwrites a forged cell, because a guard may have been there
//	ahead               a slot newer than etcd's last answer answers no read, and raises no revision
package guarded
