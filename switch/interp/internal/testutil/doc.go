// Package testutil has test helpers that several of the interpreter's packages share.
package testutil
