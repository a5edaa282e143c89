package agent

// WithStep sets a function that the agent calls before each step of an attachment.
func WithStep(o Options, f func(name string)) Options {
	o.step = f
	return o
}

// PodRules are the rules at a pod's interface.
var PodRules = podRules
