package poll

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// fake is a testing.TB that records its failure.
type fake struct {
	testing.TB
	said string
}

type failed struct{}

func (f *fake) Helper() {}

func (f *fake) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	panic(failed{})
}

// TestPoll: a wait ends as soon as its condition holds. At its limit, it fails the test with the
// description.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Until(t, time.Second, "half a second", func() bool { return time.Since(begin) >= time.Second/2 })
		if d := time.Since(begin); d < time.Second/2 || d > time.Second/2+pause {
			t.Errorf("it waited %v", d)
		}
		f, n := &fake{TB: t}, 0
		begin = time.Now()
		func() {
			defer func() {
				if _, ok := recover().(failed); !ok {
					t.Error("the test goes on")
				}
			}()
			Nil(f, time.Second, "the last try", func() error { n++; return fmt.Errorf("try %d", n) }, func() string { return "a log" })
		}()
		if want := fmt.Sprintf("waited 1s for: the last try: try %d\na log", n); f.said != want {
			t.Errorf("%q, want %q", f.said, want)
		}
		if d := time.Since(begin); d < time.Second || d > time.Second+pause || n < 40 || n > 70 {
			t.Errorf("%d tries in %v", n, d)
		}
		Nil(t, 0, "what is so at once", func() error { return nil })
	})
}
