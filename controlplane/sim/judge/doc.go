// Package judge checks whether the answers to clients are consistent. It sees only calls and their
// answers, not the run that produced them.
//
// history.go defines calls. check.go asks porcupine, key by key, for an order of the calls that
// explains all answers, and looks for answers that contradict each other. another.go finds answers
// with another key's value, and names.go finds names whose versions decrease. Each finding is a
// Violation of one of the kinds in check.go.
package judge
