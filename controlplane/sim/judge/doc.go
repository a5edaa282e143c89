// Package judge checks whether the answers to clients are consistent. It knows calls and their
// answers, and nothing of the run that produced them.
//
// history.go has the calls. check.go asks porcupine, key by key, for an order of the calls that
// explains all answers, and looks for answers that contradict each other. another.go finds values
// that are another key's, and names.go versions of a name that went back. Everything that must not
// happen, whoever finds it, is a Violation of one of the kinds in check.go.
package judge
