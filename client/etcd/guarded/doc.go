// Package guarded is etcd's key-value service with placed keys read from the network: the rules of
// docs/etcd.md.
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
// The logic that has to be right is here, and does no input or output of its own: a Server calls
// its Slots, its Directory, its Sessions and etcd, and waits through its Runtime (ports.go). In the
// gateway these are a slotclient.Network, a placement.Follower, and package guardedshell's: a lease
// in etcd, and goroutines. In the simulator (the tests of this package) they are one deterministic
// world in which several gateways run step by step, crash between any two of them, and have their
// messages lost or delivered late. Errors there, too, are those of etcd's client and of
// client/calls. Each rule has a mutant: the server without that rule, which the tests must detect.
//
// # The rules, by the names that the code and the mutants use
//
//	guard               whoever writes a placed key makes its slot unreadable first
//	exclusive           a guard is taken over from nobody whose session may be alive
//	break wait          whether it is alive is asked in etcd, after the guard was seen
//	key order           guards are taken in the order of the keys, so that no two writes wait for each other
//	                    (TestGivenBack: those that were taken side by side are given back before one before them is waited for)
//	handed on           a guard that one write leaves to the next keeps what the first one wrote
//	remembered          what a gateway remembers of a slot holds in the version in which it left it, and in no other
//	published late      a slot is guarded until it has what came of the write, though the client has its answer before
//	session condition   a write that holds guards is a transaction on its session
//	directory condition a write is a transaction on there being no newer placement than it knows (the fence)
//	give up             if it is not known whether etcd executed a write, its session is ended
//	words               an error after which etcd may have executed a write is not taken for a refusal
//	publish CAS         what is published replaces the guard that was taken, nothing else
//	populate CAS        what a reader puts into a slot replaces what it read there before it asked etcd
//	populate clear      only a clear slot is populated
//	not found           a slot that is not there is not written to, and a write waits until the directory says so
//	lease               a key that is attached to a lease is not put into a slot
//	header              an answer from a slot says no revision that is newer than the reading of the slot
//
// and those against writers of slots that are not gateways:
//
//	sealed              what a gateway has not sealed is not believed
//	seal key            nor what it has sealed for another key, or another placement
//	seal version        nor what it has sealed for another version of the slot
//	clear once          a slot without a seal is clear in the version in which placement made it, and in no other
//	forged stays        nobody puts anything over what no gateway has written: a guard may have been there
//	ahead               a slot that is newer than what etcd has told is no answer, and raises no revision
package guarded
