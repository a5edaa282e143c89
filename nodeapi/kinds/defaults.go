package kinds

import "sync/atomic"

// Defaults determines the kind of a namespace's new keys. A policy or a Namespace's annotation sets
// it; otherwise it is volatile. A namespace may have keys of both kinds if its default was ever
// set, or if it has ever had a durable key.
type Defaults struct {
	// Said is a namespace's configured default.
	Said func(namespace string) (durable, said bool)

	made atomic.Pointer[map[string]bool]
}

// Made sets which namespaces ever had a durable key. Until then none is known.
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
