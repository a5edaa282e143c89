// Package compiled has the compiled P4 program as the simulated switches run it, and turns the
// controller's entries into the form that the interpreter takes.
package compiled
