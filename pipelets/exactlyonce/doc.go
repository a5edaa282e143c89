// Package exactlyonce has the rules of a pipelet's worker, as a state machine without clocks,
// goroutines or stores. [Machine.Next] returns the next action, and [Machine.Done] receives its
// result.
//
// Exactly once, in order, rests on four rules. TestMutants removes each.
//
//   - The destination stores the position up to which the source was read. It stores the position
//     and the rows made from those records in one transaction.
//   - That transaction is conditional on the position that the worker began from. So of two workers
//     of one pipelet, or of two attempts, only one succeeds.
//   - After a start, and after a commit with an unknown outcome, a worker continues from the
//     destination's position, never from its own memory.
//   - A batch that is too large is read again with fewer records; it is never split after its flow.
package exactlyonce
