// Package replay asks an etcd what a real cluster asked of its own: the recorded trace of
// experiments/data, at its own speed or faster, through any etcd endpoint.
//
//	trace (when, what, which key, how many bytes) ─┐
//	                                               ├─▶ requests at their times ──▶ etcd, or a gateway before it
//	export (keys and values) ──────────────────────┘        │
//	                                                        └─▶ each get: who answered it, was it right
//
// The trace has no values. A key that the export has is written with its value there; another with
// the value of the key next to it in the same directory, as a new pod's object is like any other
// pod's. Values carry a number, so that every get can be compared with what was written last.
package replay
