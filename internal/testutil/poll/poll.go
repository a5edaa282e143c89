// Package poll waits in tests until a condition holds, and fails the test after a time limit.
package poll

import (
	"errors"
	"testing"
	"time"
)

// pause is the maximum interval between checks. The first checks follow sooner.
const pause = 20 * time.Millisecond

// Until waits, for at most limit, until the function `so` returns true. If the wait fails, what
// describes the expected condition, and more describes the actual state. more may be omitted.
func Until(t testing.TB, limit time.Duration, what string, so func() bool, more ...func() string) {
	t.Helper()
	Nil(t, limit, what, func() error {
		if so() {
			return nil
		}
		return errNotSo
	}, more...)
}

var errNotSo = errors.New("it is not so")

// Nil waits until do returns no error, for at most limit. The failure includes the last error.
func Nil(t testing.TB, limit time.Duration, what string, do func() error, more ...func() string) {
	t.Helper()
	end := time.Now().Add(limit)
	for next := time.Millisecond; ; next = min(2*next, pause) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			text := ""
			for _, m := range more {
				text += "\n" + m()
			}
			t.Fatalf("waited %v for: %s: %v%s", limit, what, err, text)
		}
		time.Sleep(next)
	}
}
