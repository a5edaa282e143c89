// Package trouble draws the faults of a run, and causes them. faults.go draws a seed's schedule:
// the network's shape and conditions, the kinds of faults, and how often they come. Each other file
// has one kind of trouble with its own stream of random numbers: switches that leave the network
// (leave.go), lose their state (wipe.go), are suspended (suspend.go) or begin with garbage
// (garbage.go); controllers that get no processor time (starve.go) or wait for a joiner
// (heldup.go); rights, sessions and keys that are taken away (taken.go); chains that change while
// they have no keys (keyless.go); hostile hosts and a hostile switch (hostile.go, worker.go).
// operators.go has the operators, who remove and add switches.
//
// Package world provides the means to cause faults, and does not depend on this package.
package trouble
