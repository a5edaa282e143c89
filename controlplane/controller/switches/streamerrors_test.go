package switches

import (
	"errors"
	"testing"
	"time"
)

// TestStreamErrors: if many errors come at once, one error per second is reported, with the number
// of the errors that were not reported.
func TestStreamErrors(t *testing.T) {
	var s streamErrors
	flood := errors.New("s1: FailedPrecondition: no pipeline")
	var shown []string
	for now := time.Duration(0); now <= 2*time.Second; now += 10 * time.Millisecond {
		if text := s.message(now, flood); text != "" {
			shown = append(shown, text)
		}
	}
	if len(shown) != 3 || shown[0] != flood.Error() ||
		shown[2] != flood.Error()+" (and 99 stream errors before it that are not shown)" {
		t.Errorf("shown: %q", shown)
	}
	if text := s.message(time.Hour, errors.New("another")); text != "another" {
		t.Errorf("an hour after: %q", text)
	}
}
