// Package clockwork is time and chance in a simulated run. A Loop has what is to happen, in order.
// A Dice is a stream of chance that follows from the seed: each part of a run has its own, so that
// one that asks more often changes nothing for another, and the same seed does the same. groups.go
// says which groups of faults can be left out of all runs.
package clockwork
