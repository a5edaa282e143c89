package kinds

import "sync/atomic"

// Defaults determines the kind of the new keys of a namespace, volatile or durable. A policy or an
// annotation of the Namespace sets it, and otherwise new keys are volatile. A namespace may have
// keys of both kinds if its default was ever set, or if it has ever had a durable key.
type Defaults struct {
	// Said returns the configured default of a namespace. The result `said` reports whether a
	// default is configured.
	Said func(namespace string) (durable, said bool)

	made atomic.Pointer[map[string]bool]
}

// Made sets the namespaces that have ever had a durable key. Until it is called, no such namespace
// is known.
func (d *Defaults) Made(namespaces map[string]bool) { d.made.Store(&namespaces) }

// Of returns a namespace's default.
func (d *Defaults) Of(namespace string) Default {
	durable, said := d.Said(namespace)
	if !said {
		if made := d.made.Load(); made != nil {
			said = (*made)[namespace]
		}
	}
	return Default{Durable: durable, Both: said}
}
