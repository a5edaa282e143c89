package sim

import "github.com/netcraq/netcraq/controlplane/internal/rules"

// removed is the rules that are not kept, of those that are not the P4 program's.
type removed struct {
	machine          rules.Removed
	ackFromTailAlone bool // (what the program needs to break it: groups by which a replica can acknowledge)
	storeCompare     bool
	leads            bool
	arbitration      bool
	persist          bool
	redrive          bool
	redriveSession   bool
	toldVersions     bool
}

func init() {
	Mutants = append(Mutants,
		&Mutant{ID: "NO_WAIT", Rule: "a configuration is installed when the members that it leaves out are fenced, or their lease is over", remove: func(r *removed) { r.machine.Wait = true }},
		&Mutant{ID: "NO_STORE_COMPARE", Rule: "a controller records a configuration only if it has seen the newest one", remove: func(r *removed) { r.storeCompare = true }},
		&Mutant{ID: "LEASES_WITHOUT_LEADING", Rule: "a controller renews leases only if it has heard lately that it leads", own: true, remove: func(r *removed) { r.leads = true }},
		&Mutant{ID: "NO_ARBITRATION", Rule: "a switch takes no configuration from a controller that another has replaced", remove: func(r *removed) { r.arbitration = true }},
		&Mutant{ID: "NO_PERSIST", Rule: "a configuration is durable before any switch has it", remove: func(r *removed) { r.persist = true }},
		&Mutant{ID: "NO_REDRIVE", Rule: "what is dirty is driven down again", remove: func(r *removed) { r.redrive = true }, settles: true},
		&Mutant{ID: "REDRIVE_WITHOUT_SESSION", Rule: "a re-driven write carries its session and request", remove: func(r *removed) { r.redriveSession = true }},
		&Mutant{ID: "GUESS", Rule: "a CAS expects only a version that its client was told", remove: func(r *removed) { r.toldVersions = true }},
	)
}
