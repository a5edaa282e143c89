// Package ops implements the procedures that chain.Machine requests, on switches: copying,
// re-propagating, writing keys until they are clean, and draining. It also implements moving keys,
// which the controller starts itself. The procedures are plain blocking functions, and this is
// their only implementation. The shipped controller runs them on goroutines over P4Runtime, and the
// simulator runs them as coroutines in simulated time, over switches that it makes fail.
//
//	chain.Machine ──▶ ops.Chain.{Copy, Redrive, WriteAll, Drain}
//	                    │ Runtime: time and concurrency     switches/goroutines.go   coroutine/task.go
//	                    │ Target: a switch                  switches/target.go       world/target.go
//	                    ▼
//	                  goroutines, P4Runtime                 or coroutines, simulated switches
//
//	ops.Move ──▶ Keeper: directory, store, operations       controller/move.go  sim/keys.go
//	ops.Tidy: directory and key_index agree again           controller/tidy.go  sim/tidy.go
//
// The package starts goroutines, waits and reads the time only through Runtime.
package ops
