// Package clockwork provides time and random choices for a simulated run. A Loop holds the pending
// events, in order. A Dice is a stream of random numbers that follows from the seed. Each part of a
// run has its own stream, so drawing more often in one part changes nothing in another. The same
// seed always gives the same run. groups.go names the groups of faults that can be left out of all
// runs.
package clockwork
