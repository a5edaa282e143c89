// Package testutil has what tests of several of the interpreter's packages need.
package testutil
