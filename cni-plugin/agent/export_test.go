package agent

// WithStep sets a function that the agent calls before each step of an attachment.
func WithStep(o Options, f func(name string)) Options {
	o.step = f
	return o
}

// PodRules are the filter rules at the interface of a pod.
var PodRules = podRules
