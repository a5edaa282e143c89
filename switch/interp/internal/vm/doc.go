// Package vm runs the control flow of a pipeline as byte code: small instructions that lie one
// after the other in memory, where package reference calls a function for each statement.
//
// [Compile] works in four passes:
//
//  1. lower*.go: conditions, tables and actions become steps, which refer to each other. What no
//     instruction can do becomes a step that calls the function of package reference.
//  2. paths.go: a step that is reached knowing different things becomes several, and decisions
//     that are known already are left out (jump threading).
//  3. dead.go: steps that set a lane which nothing reads any more are left out.
//  4. place.go: the steps become instructions in a row.
//
// code.go executes them. The result must equal package reference's: TestCode runs programs with
// random packets and entries through both.
package vm
