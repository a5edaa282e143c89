package clock

import (
	"testing"
	"time"
)

// TestOutlasts checks that the margins cover the largest slew of adjtimex, together with
// oscillators that differ by a thousandth.
func TestOutlasts(t *testing.T) {
	const slow, fast, oscillators = 0.9 - 500e-6, 1.1 + 500e-6, 1e-3
	for d := time.Millisecond; d < time.Hour; d *= 3 {
		if most := float64(d) / slow * (1 + oscillators); float64(Outlasts(d)) < most {
			t.Errorf("%v by a slow clock takes up to %v, and not %v", d, time.Duration(most), Outlasts(d))
		}
		if most := float64(d) / slow * fast * (1 + oscillators); float64(OutlastsSlewed(d)) < most {
			t.Errorf("%v by a slow clock takes up to %v by a fast one, and not %v", d, time.Duration(most), OutlastsSlewed(d))
		}
	}
}
