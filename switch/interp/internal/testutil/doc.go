// Package testutil has helpers for tests of several of the interpreter's packages.
package testutil
