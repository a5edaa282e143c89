// Package compiled loads the compiled P4 program for the simulated switches, and turns the
// controller's table entries into the interpreter's form.
package compiled
