// Package world has the parts of a run: switches, the network between them, controllers, their
// store and clients, in one thread. A World has them all. Its parts know each other, as those of a
// real network do; nothing here decides that something goes wrong (package trouble does), and
// nothing judges (package judge does).
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
// shell.go carries out what the controller's machine asks for. It is the counterpart of package
// controller, and the place to add to when the machine learns a new action. Its parts are in
// keys.go, leases.go, recovery.go, rejoin.go, tidy.go, watch.go, pretend.go and late.go.
package world
