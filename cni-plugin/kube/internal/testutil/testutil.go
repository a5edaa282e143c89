// Package testutil has helpers for tests of several packages of the agent: a fake API server with
// nodes and pods in it, and agents with certificates.
package testutil

import (
	"log/slog"
	"testing"
)

// Quiet is a logger that discards everything.
var Quiet = slog.New(slog.DiscardHandler)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
