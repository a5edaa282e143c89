// Package poll waits in tests until something is so, and fails the test that waits without success.
package poll

import (
	"errors"
	"testing"
	"time"
)

// pause is the longest time between two looks. The first ones come sooner.
const pause = 20 * time.Millisecond

// Until waits until so says true, for limit at most. what and more, which may be left out, are what
// is said about a wait without success: what was waited for, and how things are instead.
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

// Nil waits until do returns no error, for limit at most. The last error is said, too.
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
