package clock

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// These are the clocks' numbers in Linux's time.h.
const monotonic, monotonicRaw = 1, 4

// TestNow checks that Now advances at the rate of Go's clock.
func TestNow(t *testing.T) {
	began, from := time.Now(), Now()
	time.Sleep(20 * time.Millisecond)
	if took := Since(from); took < 20*time.Millisecond || took > time.Since(began) {
		t.Errorf("%v of %v", took, time.Since(began))
	}
	if Since(from.Add(time.Hour)) > -50*time.Minute {
		t.Error("an hour later is not later")
	}
}

// TestSuspendedMeanwhile checks that the first call of Now after a suspension notices it, because
// the kernel sets the wall clock. If the wall clock does not show the suspension, Now notices it a
// moment later.
func TestSuspendedMeanwhile(t *testing.T) {
	right := func() bool {
		before := system()
		now := time.Duration(Now())
		return before-time.Millisecond <= now && now <= system()+time.Millisecond
	}
	for i := range 1000 {
		if !right() {
			t.Fatalf("look %d: the clock is %v, not %v", i, time.Duration(Now()), system())
		}
	}
	r := *last.Load()
	// simulate the reading that was made before a suspension of one hour
	r.wall, r.offset = r.wall-time.Hour, r.offset-time.Hour
	last.Store(&r)
	if !right() {
		t.Error("an hour of sleep is not noticed")
	}
	r = *last.Load()
	r.offset -= time.Hour // simulate that someone has also set the wall clock back by one hour
	last.Store(&r)
	time.Sleep(readAgain)
	if !right() {
		t.Error("an hour of sleep is not noticed where the wall's clock was set back")
	}
}

// TestForward checks that the clock never goes back for several concurrent goroutines. It does not
// check the accuracy, which is lower on a busy machine.
func TestForward(t *testing.T) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for end, before := time.Now().Add(50*time.Millisecond), Now(); time.Now().Before(end); {
				now := Now()
				if now < before.Add(-time.Millisecond) {
					t.Errorf("it went back by %v", time.Duration(before-now))
					return
				}
				before = now
			}
		})
	}
	all.Wait()
}

// TestReadBadly checks that the clock does not go back after a reading that was too high. A reading
// is too high if a delay occurs between its two reads of Go's clock.
func TestReadBadly(t *testing.T) {
	Now()
	old := *last.Load()
	defer last.Store(&old)
	r := old
	r.offset += 5 * time.Millisecond
	last.Store(&r)
	before := Now()
	time.Sleep(2 * readAgain)
	if d := Since(before); d < 2*readAgain {
		t.Errorf("%v of %v: it went back", d, 2*readAgain)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}

func BenchmarkRaw(b *testing.B) {
	for b.Loop() {
		Raw()
	}
}

// TestRaw checks that Raw returns the kernel's CLOCK_MONOTONIC_RAW.
func TestRaw(t *testing.T) {
	for last := Raw(); ; {
		before, now, after := clock(monotonicRaw), Raw(), clock(monotonicRaw)
		if now < before || now > after {
			t.Fatalf("%v, between %v and %v", now, before, after)
		}
		if now-last > 20*time.Millisecond {
			return
		}
	}
}

// TestGoesOnWhileSuspended checks that Now includes the time of a suspension. A test cannot suspend
// the machine, but it can simulate this for a process in a time namespace. There CLOCK_BOOTTIME is
// 1,000 hours ahead, and CLOCK_MONOTONIC is not.
func TestGoesOnWhileSuspended(t *testing.T) {
	if os.Getenv("NETCRAQ_BOOTTIME") != "" {
		fmt.Println("asleep for", (time.Duration(Now()) - clock(monotonic)).Round(time.Hour))
		return
	}
	if out, err := exec.Command("unshare", "--time", "true").CombinedOutput(); err != nil {
		t.Skipf("a time namespace takes root and Linux 5.6: %v\n%s", err, out)
	}
	// the real machine may have been suspended, too
	before := (time.Duration(Now()) - clock(monotonic)).Round(time.Hour)
	cmd := exec.Command("unshare", "--time", "--boottime", "3600000", os.Args[0], "-test.run=^TestGoesOnWhileSuspended$")
	cmd.Env = append(os.Environ(), "NETCRAQ_BOOTTIME=1")
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprint("asleep for ", before+1000*time.Hour); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: the clock is another than that of the time since the boot: it does not say %q but\n%s", err, want, out)
	}
}
