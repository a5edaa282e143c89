// Package vm runs the control flow of a pipeline as byte code: small instructions in a row, whereas
// package reference calls a function for each statement.
//
// [Compile] works in four passes:
//
//  1. lower*.go: conditions, tables and actions become steps, which refer to each other. If no
//     instruction has a statement's effect, the step calls the function of package reference.
//  2. paths.go: a step that is reached with different knowledge becomes several, and decisions with
//     a known result are left out (jump threading).
//  3. dead.go: steps are left out if nothing reads the lane that they set.
//  4. place.go: the steps become a list of instructions.
//
// code.go executes them. The result must equal package reference's: TestCode runs random packets
// and entries through both.
package vm
