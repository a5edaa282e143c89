package kinds

import "sync/atomic"

// Defaults says which kind namespaces' new keys are: what somebody has said about them (a policy, a
// Namespace's annotation), and volatile without that. A namespace may have keys of both kinds if
// anything was said about it, or if it has ever had a durable key.
type Defaults struct {
	// Said is what was said about a namespace.
	Said func(namespace string) (durable, said bool)

	made atomic.Pointer[map[string]bool]
}

// Made takes which namespaces ever had a durable key. Until then none is known.
func (d *Defaults) Made(namespaces map[string]bool) { d.made.Store(&namespaces) }

// Of is a namespace's default.
func (d *Defaults) Of(namespace string) Default {
	durable, said := d.Said(namespace)
	if !said {
		if made := d.made.Load(); made != nil {
			said = (*made)[namespace]
		}
	}
	return Default{Durable: durable, Both: said}
}
