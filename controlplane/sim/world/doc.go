// Package world has the parts of a run: switches, the network between them, controllers, the
// controllers' store, and clients. A World holds all parts, in one thread. The parts communicate
// like those of a real network. Package trouble decides which faults happen, and package judge
// checks the results.
//
//	client.go ──frames──▶ network.go ──▶ node.go: a switch, which runs the program on switch/interp
//	    ▲                                   ▲
//	    │ overheard.go, noslot.go:          │ channels.go, device.go: a P4Runtime connection, which
//	    │ what somebody must not hear       │ can break, and in which messages come late
//	    ▼                                   ▼
//	judge.History                       shell.go ◀─▶ chain.Machine, ops (package coroutine, target.go)
//	                                        │
//	                                    store.go: etcd or a file, as the shipped stores write it
//
// shell.go carries out the actions of the controller's machine. It is the counterpart of package
// controller, and the place to implement a new action of the machine. Its parts are in keys.go,
// leases.go, recovery.go, rejoin.go, tidy.go, watch.go, pretend.go and late.go.
package world
