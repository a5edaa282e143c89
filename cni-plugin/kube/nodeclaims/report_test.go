package nodeclaims

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestFaultReport checks that faults are logged and counted when they change. A node that changes
// its statements all the time must not fill the log.
func TestFaultReport(t *testing.T) {
	var log bytes.Buffer
	r := NewReport(slog.New(slog.NewTextHandler(&log, nil)), NewCounter())
	now := time.Unix(1000, 0)
	look := func(what string, lines, count int, f Faults) {
		t.Helper()
		log.Reset()
		r.Update(f, now)
		if n := strings.Count(log.String(), "\n"); n != lines {
			t.Errorf("%s: %d lines: %s", what, n, log.String())
		}
		if n := testutil.ToFloat64(r.counter.WithLabelValues("n2", WrongPodIP)); int(n) != count {
			t.Errorf("%s: counted %v, not %d", what, n, count)
		}
	}
	var two, three Faults
	two.AddMany("n2", WrongPodIP, 2, "%.64q", strings.Repeat("x", 1000))
	three.AddMany("n2", WrongPodIP, 3, "y")
	three.Add("n3", WrongPodMAC, "z")
	look("nothing", 0, 0, nil)
	look("two", 1, 2, two)
	if s := log.String(); !strings.Contains(s, "node=n2") || !strings.Contains(s, "pod-ip") || !strings.Contains(s, "and 1 more") || len(s) > 400 {
		t.Errorf("the log says %s", s)
	}
	now = now.Add(time.Minute)
	look("the same", 0, 2, two)
	look("others", 2, 5, three)
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		look("again and again", 0, int(testutil.ToFloat64(r.counter.WithLabelValues("n2", WrongPodIP)))+2, two)
		look("again and again", 0, int(testutil.ToFloat64(r.counter.WithLabelValues("n2", WrongPodIP)))+3, three)
	}
	now = now.Add(reportInterval)
	n := int(testutil.ToFloat64(r.counter.WithLabelValues("n2", WrongPodIP)))
	look("the last word", 2, n+2, two) // the log has n2's last statement, and says that n3 has no faults any more
	now = now.Add(reportInterval)
	look("all is well", 1, n+2, nil)
	look("all is well yet", 0, n+2, nil)
}
