// Package compiled loads the compiled P4 program for the simulated switches, and converts the
// controller's table entries to the interpreter's form.
package compiled
