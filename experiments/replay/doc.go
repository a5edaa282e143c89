// Package replay replays the etcd requests of a real cluster. It sends the recorded trace of
// experiments/data to any etcd endpoint, at the recorded speed or faster.
//
//	trace (when, what, which key, how many bytes) ─┐
//	                                               ├─▶ requests at their times ──▶ etcd, or a gateway before it
//	export (keys and values) ──────────────────────┘        │
//	                                                        └─▶ each get: who answered it, was it right
//
// The trace has no values. A key in the export is written with its value there. Any other key is
// written with the value of a neighbouring key in the same directory, because a new pod's object
// resembles other pods' objects. Values carry a number, so that every get can be compared with the
// last written value.
package replay
