// Package rules names the rules of the controller, its store and clients that a mutant can disable.
// Each rule is a field of Removed. The simulator checks the field where it applies the rule. A run
// of the shipped code sets no field.
package rules
