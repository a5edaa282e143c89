// Package rules names the rules of the controller, its store and clients that a mutant can take
// away from a run. Each is a field that the simulator asks before it keeps the rule, so a run of
// the code as it ships has none set.
package rules
