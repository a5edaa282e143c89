package agent

// WithStep has f called before each step of an attachment.
func WithStep(o Options, f func(name string)) Options {
	o.step = f
	return o
}

// PodRules are those of a pod's interface.
var PodRules = podRules
