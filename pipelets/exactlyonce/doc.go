// Package exactlyonce implements the rules of a pipelet's worker as a state machine without clocks,
// goroutines or stores. [Machine.Next] returns the worker's next action, and [Machine.Done]
// receives the result of the action.
//
// Four rules ensure that each record arrives exactly once, in order. TestMutants checks that each
// rule is necessary.
//
//   - The destination stores the position up to which the source was read. It stores the position
//     in the same transaction as the rows that were made from these records.
//   - The transaction succeeds only if the stored position is the one from which the worker began.
//     So of two workers of one pipelet, or of two attempts, only one succeeds.
//   - After a start, and after a commit with an unknown outcome, a worker continues from the
//     destination's position, never from its own memory.
//   - If a batch is too large, the worker reads it again with fewer records. It never splits the
//     rows that a flow has made.
package exactlyonce
