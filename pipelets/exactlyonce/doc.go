// Package exactlyonce has the rules of a pipelet's worker, as a state machine without clocks,
// goroutines or stores. It returns the next action ([Machine.Next]), and gets its result
// ([Machine.Done]).
//
// Exactly once, in order, rests on four rules. TestMutants leaves out each.
//
//   - The destination has the position that the source was read to, and gets it together with the
//     rows that were made of it: one transaction.
//   - That transaction is conditional on the position that the worker began from. So of two workers
//     with one pipelet, or of two tries, one succeeds.
//   - After a start, and after a commit of which it does not know the outcome, a worker reads on
//     from the destination's position, never from what it remembers.
//   - A batch that does not fit is read again, smaller; it is never cut behind its flow.
package exactlyonce
