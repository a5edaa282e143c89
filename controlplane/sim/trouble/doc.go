// Package trouble draws the faults of a run, and causes them. faults.go draws a seed's schedule:
// the network's shape and conditions, the kinds of faults, and how often they come. Each other file
// has one kind of trouble with its own stream of random numbers. Switches leave the network
// (leave.go), lose their state (wipe.go), are suspended (suspend.go) or begin with garbage
// (garbage.go). Controllers get no processor time (starve.go) or wait for a joiner (heldup.go).
// Rights, sessions and keys are taken away (taken.go). Chains change while they have no keys
// (keyless.go). There are hostile hosts and a hostile switch (hostile.go, worker.go). operators.go
// has the operators, who remove and add switches.
//
// Package world provides the means to cause faults, and does not depend on this package.
package trouble
