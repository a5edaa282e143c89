// Package rules is the switchboard by which tests take rules of the controller away, one at a time:
// the simulator must notice each (controlplane/sim, mutants). The zero value is the controller as
// it is; nothing but a test ever sets another.
package rules

// Removed are the rules that are not kept. The comments give the ids that the model uses for the
// same (controlplane/model/mutants.json).
type Removed struct {
	Freeze bool // NO_FREEZE: donor and joiner are compared under a freeze of writes, which lasts until the roles flip
	// EMPTY_GETS_OLD_ROLE: an empty switch gets no role from a configuration that was decided
	// before it came back
	Lost bool
	// NO_WAIT: a configuration is installed when the members that it leaves out are fenced, or
	// their lease is over
	Wait bool
}
