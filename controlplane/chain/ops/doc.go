// Package ops has the procedures by which a controller does to switches what chain.Machine asks
// for: copying, re-propagating, writing keys until they are clean, draining; and with keys of its
// own accord: moving them. They are plain blocking functions, and they are the only ones: the
// controller that ships runs them on goroutines over P4Runtime, the simulator as coroutines in
// simulated time over switches that it makes fail.
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
// Nothing here starts a goroutine, waits for a channel, or asks what time it is, other than by
// Runtime.
package ops
