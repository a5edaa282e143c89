// Package vm runs the control flow of a pipeline as byte code, which is a list of small
// instructions. Package reference, in contrast, calls a function for each statement.
//
// [Compile] works in four passes:
//
//  1. lower*.go: conditions, tables and actions become steps, which refer to each other. If no
//     instruction has a statement's effect, the step calls the function of package reference.
//  2. paths.go: a step that packets reach with different facts becomes several steps, and decisions
//     with a known result are left out (jump threading).
//  3. dead.go: steps are left out if nothing reads the lane that they set.
//  4. place.go: the steps become a list of instructions.
//
// code.go executes the instructions. The result must equal that of package reference. TestCode
// checks this with random packets and entries.
package vm
